"""Endpoints that templates and layouts share: edit, submit, archive, list versions (scope `manage`).

`template_drafts.py` and `layouts.py` define what differs.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from heliograph.api.call import Call
from heliograph.domain.audit.actor import Actor
from heliograph.domain.field_docs import TIME, describe
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.limits import MIB, SCAN_COST_FACTOR
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Layout, Team, Template
from heliograph.domain.setup.snapshot import Setup
from heliograph.domain.text import parse_int, quoted
from heliograph.storage.store import Store
from heliograph.templates.policy.check import TemplateProblem
from heliograph.templates.store import VersionReader
from heliograph.web.bodies import to_request
from heliograph.web.paging import read_after, read_limit
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, large_json_response

R = TypeVar("R", Template, Layout)

PAGE_BYTES_MAX = 4 * MIB  # bytes of content after which a page ends
VERSIONS_AFTER = QueryParam("after", "The last version of the previous page.", {"type": "integer", "minimum": 1})

VersionNumber = Annotated[int, describe("Version number, starting at 1 and incremented by each approved change.")]
RefusedReason = Annotated[str | None, describe("Why an operator did not approve the draft.")]
SubmittedAt = Annotated[
    str | None, describe("When the draft was submitted for approval; null if it is not submitted.", **TIME)
]
VersionCreatedAt = Annotated[
    str | None,
    describe(
        "When this version was created; null for versions older than this field.",
        example="2026-11-15T09:30:00.000Z",
        **TIME,
    ),
]


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    level: Annotated[
        str,
        describe(
            "Severity: an error prevents saving, a warning does not.", example="warning", enum=["error", "warning"]
        ),
    ]
    code: Annotated[str, describe("Machine-readable problem code.", example="no_text_part")]
    part: Annotated[str, describe("The template field with the problem.", example="text")]
    locale: Annotated[str | None, describe("Language of the part; null for the default language.")]
    line: Annotated[
        int | None, describe("Line of the part, starting at 1; null if the problem concerns the whole part.")
    ]
    text: Annotated[
        str,
        describe(
            "Description of the problem.",
            example="there is no text part: some people read mail as text, and some filters distrust mail without one",
        ),
    ]


Problems = Annotated[list[ProblemView], describe("Problems found in the newest version or draft.")]


class DraftUseCases(Protocol[R]):
    """The use cases that `templates/service.py` and `templates/layout_service.py` implement."""

    def get(self, setup: Setup, team: str | None, id_: str, /) -> R: ...
    def draft_or_current(self, setup: Setup, record: R, /) -> R: ...
    async def submit(self, store: Store, actor: Actor, team: str, id_: str, /) -> bool: ...
    async def archive(self, store: Store, actor: Actor, team: str | None, id_: str, /) -> bool: ...


class DraftEndpoints(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """The endpoints for templates or for layouts; the fields define what differs between the two."""

    kind: Literal["template", "layout"]
    use_cases: DraftUseCases[R]
    create_request: type[msgspec.Struct]  # body of POST; `change_request` is the body of PATCH
    change_request: type[msgspec.Struct]
    view: type[msgspec.Struct]  # response with a record; `version_view` is the response with a version
    version_view: type[msgspec.Struct]
    removable: Collection[str]  # fields that a null in the request removes
    records_of: Callable[[Team], Mapping[str, R]]
    make_base: Callable[[str, str, str], R]  # (id, team, name) → new record without content
    # (call, base, fields, is_new) → whether the record changed
    save: Callable[[Call, R, dict[str, Any], bool], Awaitable[bool]]
    find_version: Callable[[VersionReader, str, int], Awaitable[R | None]]
    size_of: Callable[[R], int]
    content_fields: Callable[[R], dict[str, Any]]
    to_summary: Callable[[Setup, R], msgspec.Struct]
    find_problems: Callable[[Setup, R], Sequence[TemplateProblem]]

    async def list_all(self, call: Call) -> Response:
        query, setup = call.query(), call.context.store.setup.current
        limit, after = read_limit(query), read_after(query, self.kind) or ""
        records = sorted(self.records_of(call.caller.team).values(), key=lambda item: item.id)
        page_records: list[R] = []
        octets, has_more = 0, False
        for record in (item for item in records if item.id > after):
            if has_more := len(page_records) == limit or octets > PAGE_BYTES_MAX:
                break
            octets += self._total_size(call, record)
            page_records.append(record)
        return await _list_response(
            call, octets, has_more, lambda: [self.to_summary(setup, item) for item in page_records]
        )

    async def read(self, call: Call) -> Response:
        return await self._respond(call, self._find_record(call))

    async def create(self, call: Call) -> Response:
        to_request(call.json, self.create_request)
        id_, fields = call.context.clock.new_id(PREFIXES[self.kind]), self._request_fields(call)
        await self.save(call, self.make_base(id_, call.team_id, fields.get("name") or id_), fields, True)
        return await self._respond(call, self._find_record(call, id_), 201)

    async def change(self, call: Call) -> Response:
        to_request(call.json, self.change_request)
        base = self.use_cases.draft_or_current(call.context.store.setup.current, self._find_record(call))
        await self.save(call, base, self._request_fields(call), False)
        return await self._respond(call, self._find_record(call))

    async def submit(self, call: Call) -> Response:
        await self.use_cases.submit(call.context.store, call.actor, call.team_id, call.params["id"])
        return await self._respond(call, self._find_record(call))

    async def archive(self, call: Call) -> Response:
        """Archive a record, or delete it if it was never approved; return its last state."""
        record = self._find_record(call)
        await self.use_cases.archive(call.context.store, call.actor, record.team, record.id)
        return await self._respond(call, replace(record, status="archived"))

    async def list_versions(self, call: Call) -> Response:
        query, id_, versions = call.query(), self._find_record(call).id, call.context.store.versions
        limit, before = read_limit(query), parse_int(query.get("after", "0"), 9)
        if before is None:
            raise InvalidRequest(f"after must be a version number, not {quoted(query['after'])}.", param="after")
        rows = await versions.list(id_, before)
        views: list[msgspec.Struct] = []
        octets = 0
        for row in rows[:limit]:
            content = await self.find_version(versions, id_, row.version)
            if content is None or octets > PAGE_BYTES_MAX:
                break
            octets += self.size_of(content)
            created_at = None if row.at is None else timestamp(row.at)
            views.append(self.version_view(**self.content_fields(content), version=row.version, created_at=created_at))
        return await _list_response(call, octets, len(rows) > len(views), lambda: views)

    def _request_fields(self, call: Call) -> dict[str, Any]:
        """Return the request's fields. A null field is included only if null removes the field."""
        assert isinstance(call.json, dict)
        return {name: value for name, value in call.json.items() if value is not None or name in self.removable}

    def _find_record(self, call: Call, id_: str | None = None) -> R:
        return self.use_cases.get(call.context.store.setup.current, call.team_id, id_ or call.params["id"])

    def _total_size(self, call: Call, record: R) -> int:
        proposed = self.use_cases.draft_or_current(call.context.store.setup.current, record)
        return self.size_of(record) + (self.size_of(proposed) if proposed is not record else 0)

    async def _respond(self, call: Call, record: R, status: int = 200) -> Response:
        octets = self._total_size(call, record)
        await call.reserve_memory(octets)
        return await large_json_response(SCAN_COST_FACTOR * octets, lambda: self._view(call, record), status)

    def _view(self, call: Call, record: R) -> msgspec.Struct:
        setup = call.context.store.setup.current
        problems = [
            ProblemView(**asdict(problem))
            for problem in self.find_problems(setup, self.use_cases.draft_or_current(setup, record))
        ]
        return self.view(**asdict(self.to_summary(setup, record)), problems=problems)


async def _list_response(call: Call, octets: int, has_more: bool, records: Callable[[], list[Any]]) -> Response:
    await call.reserve_memory(octets)
    return await large_json_response(octets, lambda: {"object": "list", "has_more": has_more, "data": records()})
