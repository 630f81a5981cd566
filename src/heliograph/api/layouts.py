"""Layouts over HTTP, for keys with `manage`: written as drafts, submitted, archived, and their versions."""

from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.api.template_drafts import PAGE_OCTETS, ProblemView
from heliograph.manage import layouts
from heliograph.rules.field_docs import TIME, Id, Records, says
from heliograph.rules.ids import PREFIXES, timestamp
from heliograph.rules.setup.layout_drafts import find_draft
from heliograph.rules.setup.records import Layout
from heliograph.rules.templates.lint import problems_of_layout
from heliograph.rules.templates.render import octets as octets_of
from heliograph.web.bodies import to_request
from heliograph.web.paging import Listed, read_after, read_limit
from heliograph.web.request import Response
from heliograph.web.route import answer_of

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
    text: Annotated[str | None, says(CONTENT)]


class LayoutLine(LayoutWords, frozen=True, kw_only=True):
    id: Id
    status: Annotated[str, says("A template takes an approved one.", enum=["approved", "draft", "archived"])]
    version: Annotated[int, says("Counts from 1, and on with each approved change.")]
    draft: Annotated[LayoutWords | None, says("The words that are not approved; null: there are none.")]
    submitted_at: Annotated[str | None, says("Since when the draft waits for approval; null: it does not.", **TIME)]


class LayoutView(LayoutLine, frozen=True, kw_only=True):
    problems: Annotated[list[ProblemView], says("What should be looked at in its newest words.")]


class LayoutList(Listed, frozen=True, kw_only=True):
    data: Records[LayoutLine]


class LayoutVersion(LayoutWords, frozen=True, kw_only=True):
    version: Annotated[int, says("Counts from 1.")]
    created_at: Annotated[str | None, says("When it was made; null before that was kept.", **TIME)]


class LayoutVersionList(Listed, frozen=True, kw_only=True):
    data: Records[LayoutVersion]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query), read_after(query, PREFIXES["layout"]) or ""
    own = sorted(call.caller.team.layouts.values(), key=lambda one: one.id)
    found: list[LayoutLine] = []
    octets = 0
    for layout in (one for one in own if one.id > after):
        if len(found) == limit or octets > PAGE_OCTETS:
            return await _page(found, octets, True)
        octets += _octets(call, layout)
        found.append(_line(call, layout))
    return await _page(found, octets, False)


async def read(call: Call) -> Response:
    return await _answer(call, _own(call))


async def create(call: Call) -> Response:
    request = to_request(call.json, LayoutRequest)
    id_ = call.context.clock.new_id(PREFIXES["layout"])
    base = Layout(id=id_, team=_team(call), name=request.name or id_, status="draft")
    await layouts.write(call.context.store, call.actor, base, _given(call))
    return await _answer(call, _own(call, id_), 201)


async def change(call: Call) -> Response:
    to_request(call.json, LayoutChange)
    base = layouts.proposed(call.context.store.setup.current, _own(call))
    await layouts.write(call.context.store, call.actor, base, _given(call))
    return await _answer(call, _own(call))


async def submit(call: Call) -> Response:
    await layouts.submit(call.context.store, call.actor, _team(call), call.params["id"])
    return await _answer(call, _own(call))


async def archive(call: Call) -> Response:
    """One that was never approved is gone; the answer is the last that is seen of it."""
    layout = _own(call)
    await layouts.archive(call.context.store, call.actor, layout.team, layout.id)
    return await _answer(call, msgspec.structs.replace(layout, status="archived"))


async def list_versions(call: Call) -> Response:
    query, layout, versions = call.query(), _own(call), call.context.store.versions
    before = int(query["after"]) if query.get("after", "").isdecimal() and len(query["after"]) < 10 else None
    limit, lines = read_limit(query), await versions.of(layout.id, before)
    found: list[LayoutVersion] = []
    octets = 0
    for line in lines:
        words = await versions.find_layout(layout.id, line.version)
        if words is None or len(found) == limit or octets > PAGE_OCTETS:
            break
        octets += octets_of(words.html) + octets_of(words.text)
        made_at = None if line.at is None else timestamp(line.at)
        found.append(LayoutVersion(**_words(words), version=line.version, created_at=made_at))
    return await _page(found, octets, len(lines) > len(found))


async def _page(found: list[Any], octets: int, more: bool) -> Response:
    return await answer_of(octets, lambda: {"object": "list", "has_more": more, "data": found})


def _given(call: Call) -> dict[str, Any]:
    """What was sent; null takes a part away."""
    assert isinstance(call.json, dict)
    return {name: value for name, value in call.json.items() if value is not None or name != "name"}


def _team(call: Call) -> str:
    return call.caller.team.record.id


def _own(call: Call, id_: str | None = None) -> Layout:
    return layouts.find(call.context.store.setup.current, _team(call), id_ or call.params["id"])


def _octets(call: Call, layout: Layout) -> int:
    shown = (layout, layouts.proposed(call.context.store.setup.current, layout))
    return sum(octets_of(one.html) + octets_of(one.text) for one in shown)


async def _answer(call: Call, layout: Layout, status: int = 200) -> Response:
    octets = _octets(call, layout)
    await call.hold(octets)
    return await answer_of(octets, lambda: _view(call, layout), status)


def _view(call: Call, layout: Layout) -> LayoutView:
    shown = layouts.proposed(call.context.store.setup.current, layout)
    problems = [ProblemView(**msgspec.structs.asdict(one)) for one in problems_of_layout(shown)]
    return LayoutView(**msgspec.structs.asdict(_line(call, layout)), problems=problems)


def _line(call: Call, layout: Layout) -> LayoutLine:
    draft = find_draft(call.context.store.setup.current, layout.id)
    return LayoutLine(
        **_words(layout),
        id=layout.id,
        status=layout.status,
        version=layout.version,
        draft=LayoutWords(**_words(draft)) if draft else None,
        submitted_at=timestamp(draft.submitted_at) if draft and draft.submitted_at else None,
    )


def _words(layout: Layout) -> dict[str, Any]:
    return {"name": layout.name, "html": layout.html, "text": layout.text}
