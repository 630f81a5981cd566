"""Endpoints shared by templates and layouts, for keys with `manage`: edit, submit, archive, and list versions.

`template_drafts.py` and `layouts.py` supply the parts that differ.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from heliograph.api.call import Call
from heliograph.domain.audit.actor import Actor
from heliograph.domain.field_docs import TIME, says
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.limits import MIB, PARSED
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Layout, Team, Template
from heliograph.domain.setup.snapshot import Setup
from heliograph.domain.text import quoted, whole_number
from heliograph.storage.store import Store
from heliograph.templates.policy.check import TemplateProblem
from heliograph.templates.store import Versions
from heliograph.web.bodies import to_request
from heliograph.web.paging import read_after, read_limit
from heliograph.web.request import Response
from heliograph.web.route import Query, answer_of

R = TypeVar("R", Template, Layout)

PAGE_OCTETS = 4 * MIB  # a page ends after this many bytes of content
BEFORE = Query("after", "The last version of the previous page.", {"type": "integer", "minimum": 1})


VersionNumber = Annotated[int, says("Counts from 1, and on with each approved change.")]
RefusedReason = Annotated[str | None, says("Why an operator did not approve the draft.")]
SubmittedAt = Annotated[str | None, says("Since when the draft waits for approval; null: it does not.", **TIME)]
MadeAt = Annotated[
    str | None, says("When it was made; null before that was kept.", example="2026-11-15T09:30:00.000Z", **TIME)
]


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    level: Annotated[
        str, says("An error refuses a save, a warning does not.", example="warning", enum=["error", "warning"])
    ]
    code: Annotated[str, says("What is wrong, for programs.", example="no_text_part")]
    part: Annotated[str, says("The field it is in.", example="text")]
    locale: Annotated[str | None, says("Of another language's part; null: the template's own.")]
    line: Annotated[int | None, says("Of the part, from 1; null where it is about the whole.")]
    text: Annotated[
        str,
        says(
            "What is wrong, for people.",
            example="there is no text part: some people read mail as text, and some filters distrust mail without one",
        ),
    ]


Problems = Annotated[list[ProblemView], says("What should be looked at in its newest words.")]


class Managed(Protocol[R]):
    """The use cases that `templates/service.py` and `templates/layout_service.py` implement."""

    def find(self, setup: Setup, team: str | None, id_: str, /) -> R: ...
    def proposed(self, setup: Setup, record: R, /) -> R: ...
    async def submit(self, store: Store, actor: Actor, team: str, id_: str, /) -> bool: ...
    async def archive(self, store: Store, actor: Actor, team: str | None, id_: str, /) -> bool: ...


class Drafts(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """The endpoints of one kind of record; the fields supply what differs between templates and layouts."""

    kind: Literal["template", "layout"]
    manage: Managed[R]
    new: type[msgspec.Struct]  # request body of POST; `part` is that of PATCH
    part: type[msgspec.Struct]
    view: type[msgspec.Struct]  # response; `version_view` is that of a version
    version_view: type[msgspec.Struct]
    removable: Collection[str]  # fields that null removes
    of: Callable[[Team], Mapping[str, R]]
    base: Callable[[str, str, str], R]  # (id, team, name) → empty record to which the request is applied
    write: Callable[[Call, R, dict[str, Any], bool], Awaitable[bool]]  # (call, base, fields, is_new)
    version: Callable[[Versions, str, int], Awaitable[R | None]]
    octets: Callable[[R], int]
    words: Callable[[R], dict[str, Any]]
    line: Callable[[Setup, R], msgspec.Struct]
    problems: Callable[[Setup, R], Sequence[TemplateProblem]]

    async def list_all(self, call: Call) -> Response:
        query, setup = call.query(), call.context.store.setup.current
        limit, after = read_limit(query), read_after(query, self.kind) or ""
        own = sorted(self.of(call.caller.team).values(), key=lambda one: one.id)
        found: list[R] = []
        octets, more = 0, False
        for record in (one for one in own if one.id > after):
            if more := len(found) == limit or octets > PAGE_OCTETS:
                break
            octets += self._octets(call, record)
            found.append(record)
        return await _page(call, octets, more, lambda: [self.line(setup, one) for one in found])

    async def read(self, call: Call) -> Response:
        return await self._answer(call, self._own(call))

    async def create(self, call: Call) -> Response:
        to_request(call.json, self.new)
        id_, given = call.context.clock.new_id(PREFIXES[self.kind]), self._given(call)
        await self.write(call, self.base(id_, _team(call), given.get("name") or id_), given, True)
        return await self._answer(call, self._own(call, id_), 201)

    async def change(self, call: Call) -> Response:
        to_request(call.json, self.part)
        base = self.manage.proposed(call.context.store.setup.current, self._own(call))
        await self.write(call, base, self._given(call), False)
        return await self._answer(call, self._own(call))

    async def submit(self, call: Call) -> Response:
        await self.manage.submit(call.context.store, call.actor, _team(call), call.params["id"])
        return await self._answer(call, self._own(call))

    async def archive(self, call: Call) -> Response:
        """Archive a record. A record that was never approved is deleted; the response is its last state."""
        record = self._own(call)
        await self.manage.archive(call.context.store, call.actor, record.team, record.id)
        return await self._answer(call, replace(record, status="archived"))

    async def list_versions(self, call: Call) -> Response:
        query, id_, versions = call.query(), self._own(call).id, call.context.store.versions
        limit, before = read_limit(query), whole_number(query.get("after", "0"), 9)
        if before is None:
            raise InvalidRequest(f"after is the number of a version, not {quoted(query['after'])}.", param="after")
        lines = await versions.of(id_, before)
        found: list[msgspec.Struct] = []
        octets = 0
        for line in lines[:limit]:
            words = await self.version(versions, id_, line.version)
            if words is None or octets > PAGE_OCTETS:
                break
            octets += self.octets(words)
            made_at = None if line.at is None else timestamp(line.at)
            found.append(self.version_view(**self.words(words), version=line.version, created_at=made_at))
        return await _page(call, octets, len(lines) > len(found), lambda: found)

    def _given(self, call: Call) -> dict[str, Any]:
        """Return the request's fields, without those that are null unless null removes them."""
        assert isinstance(call.json, dict)
        return {name: value for name, value in call.json.items() if value is not None or name in self.removable}

    def _own(self, call: Call, id_: str | None = None) -> R:
        return self.manage.find(call.context.store.setup.current, _team(call), id_ or call.params["id"])

    def _octets(self, call: Call, record: R) -> int:
        newest = self.manage.proposed(call.context.store.setup.current, record)
        return self.octets(record) + (self.octets(newest) if newest is not record else 0)

    async def _answer(self, call: Call, record: R, status: int = 200) -> Response:
        octets = self._octets(call, record)
        await call.hold(octets)
        return await answer_of(PARSED * octets, lambda: self._view(call, record), status)

    def _view(self, call: Call, record: R) -> msgspec.Struct:
        setup = call.context.store.setup.current
        problems = [ProblemView(**asdict(one)) for one in self.problems(setup, self.manage.proposed(setup, record))]
        return self.view(**asdict(self.line(setup, record)), problems=problems)


async def _page(call: Call, octets: int, more: bool, records: Callable[[], list[Any]]) -> Response:
    await call.hold(octets)
    return await answer_of(octets, lambda: {"object": "list", "has_more": more, "data": records()})


def _team(call: Call) -> str:
    return call.caller.team.record.id
