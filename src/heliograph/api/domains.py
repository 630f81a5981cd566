"""Sending domains over HTTP, for keys with `manage`: what to set in DNS, and whether it is there."""

from typing import Any

import msgspec

from heliograph.api.bodies import to_request
from heliograph.api.route import Call, answer
from heliograph.manage.domains import Checked
from heliograph.rules.ids import timestamp
from heliograph.rules.setup.domain_records import Alignment, Record, Verdict
from heliograph.rules.setup.records import Domain
from heliograph.web.request import Response


class DomainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    brand: str | None = None


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    name: str
    value: str
    purpose: str
    ok: bool | None = None  # null before a check
    found: tuple[str, ...] = ()
    mend: str = ""


class DomainView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    brand: str
    verified: bool
    approved: bool
    checked_at: str | None
    records: list[RecordView]
    alignment: Alignment | None = None


class DomainList(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "list"
    has_more: bool = False
    data: list[DomainView]


async def list_all(call: Call) -> Response:
    call.query()
    domains = call.caller.team.domains.values()
    return answer(DomainList(data=[await _view(call, domain) for domain in domains]))


async def read(call: Call) -> Response:
    call.query()
    return answer(await _view(call, _own(call)))


async def create(call: Call) -> Response:
    call.query()
    request = to_request(call.json, DomainRequest)
    team = call.caller.team.record.id
    made = await call.management.domains.add(call.actor, team, request.name, request.brand or "")
    return answer(await _view(call, made), 201)


async def check(call: Call) -> Response:
    call.query()
    done = await call.management.domains.check(call.actor, _own(call).id)
    return answer(_checked(done))


def _own(call: Call) -> Domain:
    return call.management.domains.own(call.caller.team.record.id, call.params["id"])


async def _view(call: Call, domain: Domain) -> DomainView:
    records = await call.management.domains.records(domain.id)
    return _domain(domain, [RecordView(**_fields(record)) for record in records], None)


def _checked(done: Checked) -> DomainView:
    return _domain(done.domain, [_judged(record, verdict) for record, verdict in done.records], done.alignment)


def _domain(domain: Domain, records: list[RecordView], alignment: Alignment | None) -> DomainView:
    return DomainView(
        id=domain.id,
        name=domain.name,
        brand=domain.brand,
        verified=domain.verified,
        approved=domain.approved,
        checked_at=timestamp(domain.checked_at) if domain.checked_at else None,
        records=records,
        alignment=alignment,
    )


def _judged(record: Record, verdict: Verdict) -> RecordView:
    ok = verdict.ok if verdict.answered else None
    return RecordView(**_fields(record), ok=ok, found=verdict.found, mend=verdict.mend)


def _fields(record: Record) -> dict[str, Any]:
    return msgspec.structs.asdict(record)
