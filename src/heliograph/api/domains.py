"""Sending domains over HTTP, for keys with `manage`: required DNS records and their verification."""

from typing import Annotated

import msgspec
from msgspec.structs import asdict

from heliograph.api.call import Call
from heliograph.domain.field_docs import CONTROL, DOMAIN_NAME, Id, Records, limited, says, such_as
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DOMAIN_MAX
from heliograph.domain.setup.domain_records import Alignment, Record, Verdict
from heliograph.domain.setup.records import Domain
from heliograph.domain.text import LINE_MAX
from heliograph.web.bodies import to_request
from heliograph.web.paging import Listed, page, read_after, read_limit
from heliograph.web.request import Response
from heliograph.web.route import answer

Brand = Annotated[str, limited(maxLength=LINE_MAX, pattern=rf"^([^{CONTROL}]*[^\s{CONTROL}][^{CONTROL}]*)?$")]


class DomainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, says("The domain, such as `acme.test`.", maxLength=DOMAIN_MAX, pattern=f"^{DOMAIN_NAME}$")]
    brand: Annotated[Brand | None, says("The display name of its mail; default the team's name.")] = None


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    type: Annotated[str, says("TXT or MX.", example="TXT")]
    name: Annotated[str, says("The name to set it for.", example="hs1._domainkey.demo.test")]
    value: Annotated[str, says("The value to set.", example="v=DKIM1; k=ed25519; p=…")]
    purpose: Annotated[str, says("ownership, dkim, return_path, spf or dmarc.", example="dkim")]
    ok: Annotated[
        bool | None, says("Whether DNS had it at the last check; null before one or unanswered.", example=True)
    ] = None
    found: Annotated[tuple[str, ...], says("What DNS said.", example=["v=DKIM1; k=ed25519; p=…"])] = ()
    fix: Annotated[str, says("What to do about it; empty when nothing is wrong.")] = ""
    mend: Annotated[str, says("The first name of `fix`, for programs that know it.")] = ""


class DomainView(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[Id, such_as("dom_demo")]
    name: Annotated[str, says("The domain, in A-labels.", example="demo.test")]
    brand: Annotated[str, says("The display name of its mail.", example="Demo")]
    verified: Annotated[bool, says("DNS, or an operator, confirms that the team may send from it.", example=True)]
    approved: Annotated[bool, says("An operator approved it.", example=True)]
    checked_at: Annotated[
        str | None, says("When DNS was last checked; null before the first check.", example="2026-11-15T09:30:00.000Z")
    ]
    records: Annotated[list[RecordView], says("The DNS records to set.")]
    alignment: Annotated[Alignment | None, says("Whether its mail passes DMARC; null before a check.")] = None


class DomainList(Listed, frozen=True, kw_only=True):
    data: Records[DomainView]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query, len(call.caller.team.domains)), read_after(query, "domain") or ""
    domains = sorted(call.caller.team.domains.values(), key=lambda domain: domain.id)
    found = [domain for domain in domains if domain.id > after][: limit + 1]
    return page([await _view(call, domain) for domain in found], limit)


async def read(call: Call) -> Response:
    return answer(await _view(call, _own(call)))


async def create(call: Call) -> Response:
    request = to_request(call.json, DomainRequest)
    team = call.caller.team.record.id
    made = await call.management.domains.add(call.actor, team, request.name, request.brand or "")
    return answer(await _view(call, made), 201)


async def rotate(call: Call) -> Response:
    await call.management.domains.rotate(call.actor, _own(call).id)
    return answer(await _view(call, _own(call)))


async def check(call: Call) -> Response:
    done = await call.management.domains.check(call.actor, _own(call).id)
    records = [_judged(record, verdict) for record, verdict in done.records]
    return answer(_domain(done.domain, records, done.alignment, done.checked_at))


def _own(call: Call) -> Domain:
    return call.management.domains.own(call.caller.team.record.id, call.params["id"])


async def _view(call: Call, domain: Domain) -> DomainView:
    looked = await call.management.domains.looked_up(domain.id)
    records = [_judged(record, kept.verdict if kept else None) for record, kept in looked.records]
    return _domain(domain, records, looked.alignment, looked.checked_at)


def _domain(
    domain: Domain, records: list[RecordView], alignment: Alignment | None, checked_at: int | None
) -> DomainView:
    return DomainView(
        id=domain.id,
        name=domain.name,
        brand=domain.brand,
        verified=domain.verified,
        approved=domain.approved,
        checked_at=timestamp(checked_at) if checked_at else None,
        records=records,
        alignment=alignment,
    )


def _judged(record: Record, verdict: Verdict | None) -> RecordView:
    if verdict is None:
        return RecordView(**asdict(record))
    ok = verdict.ok if verdict.answered else None
    return RecordView(**asdict(record), ok=ok, found=verdict.found, fix=verdict.fix, mend=verdict.fix)
