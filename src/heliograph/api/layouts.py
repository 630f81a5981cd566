"""Request and response formats of layouts; their endpoints are in drafts.py."""

from typing import Annotated, Any

import msgspec

from heliograph.api.drafts import DraftEndpoints, Problems, RefusedReason, SubmittedAt, VersionCreatedAt, VersionNumber
from heliograph.domain.field_docs import Id, Records, describe
from heliograph.domain.ids import timestamp
from heliograph.domain.setup.records import Layout
from heliograph.domain.setup.snapshot import Setup
from heliograph.templates import layout_service as layouts
from heliograph.templates.policy.layout_drafts import find_draft
from heliograph.templates.policy.lint import find_layout_problems
from heliograph.templates.policy.render import octets as octets_of
from heliograph.web.paging import ListPage

CONTENT_DOC = "Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`."


class LayoutChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str | None, describe("Name: one line of up to 200 characters.")] = None
    html: Annotated[str | None, describe(CONTENT_DOC)] = None
    text: Annotated[str | None, describe(CONTENT_DOC)] = None


class LayoutRequest(LayoutChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class LayoutContent(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, describe("Name of the layout.")]
    html: Annotated[str | None, describe(CONTENT_DOC)]
    text: Annotated[str | None, describe(CONTENT_DOC, example="It works.")]


class LayoutSummary(LayoutContent, frozen=True, kw_only=True):
    id: Id
    status: Annotated[str, describe("Templates can use approved layouts only.", enum=["approved", "draft", "archived"])]
    version: VersionNumber
    draft: Annotated[LayoutContent | None, describe("Content that is not approved yet; null without a draft.")]
    submitted_at: SubmittedAt
    refused_reason: RefusedReason


class LayoutView(LayoutSummary, frozen=True, kw_only=True):
    problems: Problems


class LayoutList(ListPage, frozen=True, kw_only=True):
    data: Records[LayoutSummary]


class LayoutVersion(LayoutContent, frozen=True, kw_only=True):
    version: Annotated[int, describe("Version number, starting at 1.")]
    created_at: VersionCreatedAt


class LayoutVersionList(ListPage, frozen=True, kw_only=True):
    data: Records[LayoutVersion]


def _content_fields(layout: Layout) -> dict[str, Any]:
    return {"name": layout.name, "html": layout.html, "text": layout.text}


def _to_summary(setup: Setup, layout: Layout) -> LayoutSummary:
    draft = find_draft(setup, layout.id)
    return LayoutSummary(
        **_content_fields(layout),
        id=layout.id,
        status=layout.status,
        version=layout.version,
        draft=LayoutContent(**_content_fields(draft)) if draft else None,
        submitted_at=timestamp(draft.submitted_at) if draft and draft.submitted_at else None,
        refused_reason=draft.refused_reason or None if draft else None,
    )


LAYOUT_ENDPOINTS = DraftEndpoints[Layout](
    kind="layout",
    use_cases=layouts,
    create_request=LayoutRequest,
    change_request=LayoutChange,
    view=LayoutView,
    version_view=LayoutVersion,
    removable=("html", "text"),
    records_of=lambda team: team.layouts,
    make_base=lambda id_, team, name: Layout(id=id_, team=team, name=name, status="draft"),
    save=lambda call, base, fields, _: layouts.save(call.context.store, call.actor, base, fields),
    find_version=lambda versions, id_, number: versions.find_layout(id_, number),
    size_of=lambda layout: octets_of(layout.html) + octets_of(layout.text),
    content_fields=_content_fields,
    to_summary=_to_summary,
    find_problems=lambda _, layout: find_layout_problems(layout),
)
