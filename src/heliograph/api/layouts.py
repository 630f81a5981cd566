"""Request and response formats of layouts; drafts.py has the endpoints."""

from typing import Annotated, Any

import msgspec

from heliograph.api.drafts import Drafts, MadeAt, Problems, RefusedReason, SubmittedAt, VersionNumber
from heliograph.domain.field_docs import Id, Records, says
from heliograph.domain.ids import timestamp
from heliograph.domain.setup.records import Layout
from heliograph.domain.setup.snapshot import Setup
from heliograph.templates import layout_service as layouts
from heliograph.templates.policy.layout_drafts import find_draft
from heliograph.templates.policy.lint import problems_of_layout
from heliograph.templates.policy.render import octets as octets_of
from heliograph.web.paging import Listed

CONTENT = "Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted."


class LayoutChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str | None, says("One line of at most 200 characters.")] = None
    html: Annotated[str | None, says(CONTENT)] = None
    text: Annotated[str | None, says(CONTENT)] = None


class LayoutRequest(LayoutChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class LayoutWords(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, says("One line.")]
    html: Annotated[str | None, says(CONTENT)]
    text: Annotated[str | None, says(CONTENT, example="It works.")]


class LayoutLine(LayoutWords, frozen=True, kw_only=True):
    id: Id
    status: Annotated[str, says("A template takes an approved one.", enum=["approved", "draft", "archived"])]
    version: VersionNumber
    draft: Annotated[LayoutWords | None, says("The words that are not approved; null: there are none.")]
    submitted_at: SubmittedAt
    refused_reason: RefusedReason


class LayoutView(LayoutLine, frozen=True, kw_only=True):
    problems: Problems


class LayoutList(Listed, frozen=True, kw_only=True):
    data: Records[LayoutLine]


class LayoutVersion(LayoutWords, frozen=True, kw_only=True):
    version: Annotated[int, says("Counts from 1.")]
    created_at: MadeAt


class LayoutVersionList(Listed, frozen=True, kw_only=True):
    data: Records[LayoutVersion]


def _words(layout: Layout) -> dict[str, Any]:
    return {"name": layout.name, "html": layout.html, "text": layout.text}


def _line(setup: Setup, layout: Layout) -> LayoutLine:
    draft = find_draft(setup, layout.id)
    return LayoutLine(
        **_words(layout),
        id=layout.id,
        status=layout.status,
        version=layout.version,
        draft=LayoutWords(**_words(draft)) if draft else None,
        submitted_at=timestamp(draft.submitted_at) if draft and draft.submitted_at else None,
        refused_reason=draft.refused_reason or None if draft else None,
    )


LAYOUTS = Drafts[Layout](
    kind="layout",
    manage=layouts,
    new=LayoutRequest,
    part=LayoutChange,
    view=LayoutView,
    version_view=LayoutVersion,
    removable=("html", "text"),
    of=lambda team: team.layouts,
    base=lambda id_, team, name: Layout(id=id_, team=team, name=name, status="draft"),
    write=lambda call, base, given, _: layouts.write(call.context.store, call.actor, base, given),
    version=lambda versions, id_, number: versions.find_layout(id_, number),
    octets=lambda layout: octets_of(layout.html) + octets_of(layout.text),
    words=_words,
    line=_line,
    problems=lambda _, layout: problems_of_layout(layout),
)
