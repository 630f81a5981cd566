"""Endpoints for sending domains and their DNS records; they require a key with the scope `manage`."""

from typing import Annotated

import msgspec
from msgspec.structs import asdict

from heliograph.api.call import Call
from heliograph.domain.field_docs import (
    CONTROL_CHARACTERS,
    DOMAIN_NAME,
    Id,
    Records,
    describe,
    schema_limits,
    with_example,
)
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DOMAIN_MAX
from heliograph.domain.setup.domain_records import Alignment, Record, Verdict
from heliograph.domain.setup.own_dkim_key import PRIVATE_KEY_MAX
from heliograph.domain.setup.records import DkimMethod, Domain
from heliograph.domain.text import LINE_MAX
from heliograph.web.bodies import to_request
from heliograph.web.paging import ListPage, page_response, read_after, read_limit
from heliograph.web.request import Response
from heliograph.web.route import json_response

Brand = Annotated[
    str,
    schema_limits(
        maxLength=LINE_MAX, pattern=rf"^([^{CONTROL_CHARACTERS}]*[^\s{CONTROL_CHARACTERS}][^{CONTROL_CHARACTERS}]*)?$"
    ),
]


class DomainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, describe("The domain, such as `acme.test`.", maxLength=DOMAIN_MAX, pattern=f"^{DOMAIN_NAME}$")]
    brand: Annotated[Brand | None, describe("Display name of mail from this domain. Default: the team's name.")] = None
    dkim: Annotated[
        DkimMethod | None,
        describe(
            "How the DKIM keys are published: `cname` points to our zone, where keys are replaced without a change of "
            "your records; `txt` has the keys. Default: `cname` if the operator set `dkim_zone`. Also moves an "
            "existing domain."
        ),
    ] = None
    private_key: Annotated[
        str | None,
        describe("Your own key, with `txt`: PEM, RSA of at least 2,048 bits or Ed25519.", maxLength=PRIVATE_KEY_MAX),
    ] = None
    selector: Annotated[str | None, describe("The selector of `private_key`.", maxLength=DOMAIN_MAX)] = None


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    type: Annotated[str, describe("Record type: TXT, CNAME or MX.", example="TXT")]
    name: Annotated[str, describe("Record name.", example="hs1._domainkey.demo.test")]
    value: Annotated[str, describe("Record value.", example="v=DKIM1; k=ed25519; p=…")]
    purpose: Annotated[
        str,
        describe("What the record is for: ownership, dkim, return_path, spf, dmarc or tls_reports.", example="dkim"),
    ]
    ok: Annotated[
        bool | None,
        describe(
            "Whether the record was found at the last check; null if it was not checked or DNS did not answer.",
            example=True,
        ),
    ] = None
    found: Annotated[tuple[str, ...], describe("Values found in DNS.", example=["v=DKIM1; k=ed25519; p=…"])] = ()
    fix: Annotated[str, describe("How to fix the record; empty if nothing is wrong.")] = ""


class DomainView(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[Id, with_example("dom_demo")]
    name: Annotated[str, describe("The domain name, in A-labels (punycode).", example="demo.test")]
    brand: Annotated[str, describe("Display name of mail from this domain.", example="Demo")]
    dkim: Annotated[DkimMethod, describe("How the DKIM keys are published: `cname` or `txt`.")]
    verified: Annotated[
        bool, describe("Whether the team may send from the domain, confirmed by DNS or by an operator.", example=True)
    ]
    approved: Annotated[bool, describe("Whether an operator approved the domain.", example=True)]
    checked_at: Annotated[
        str | None,
        describe("When DNS was last checked; null before the first check.", example="2026-11-15T09:30:00.000Z"),
    ]
    records: Annotated[list[RecordView], describe("The DNS records to set.")]
    alignment: Annotated[
        Alignment | None, describe("Whether mail from this domain passes DMARC alignment; null before the first check.")
    ] = None


class DomainList(ListPage, frozen=True, kw_only=True):
    data: Records[DomainView]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query, len(call.caller.team.domains)), read_after(query, "domain") or ""
    domains = sorted(call.caller.team.domains.values(), key=lambda domain: domain.id)
    rows = [domain for domain in domains if domain.id > after][: limit + 1]
    return page_response([await _view(call, domain) for domain in rows], limit)


async def read(call: Call) -> Response:
    return json_response(await _view(call, _find_domain(call)))


async def create(call: Call) -> Response:
    request = to_request(call.json, DomainRequest)
    created = await call.management.domains.add(
        call.actor,
        call.team_id,
        request.name,
        request.brand or "",
        method=request.dkim,
        private_key=request.private_key,
        selector=request.selector,
    )
    return json_response(await _view(call, created), 201)


async def rotate(call: Call) -> Response:
    await call.management.domains.rotate(call.actor, _find_domain(call).id)
    return json_response(await _view(call, _find_domain(call)))


async def check(call: Call) -> Response:
    result = await call.management.domains.check(call.actor, _find_domain(call).id)
    records = [_record_view(record, verdict) for record, verdict in result.records]
    return json_response(_to_view(result.domain, records, result.alignment, result.checked_at))


def _find_domain(call: Call) -> Domain:
    return call.management.domains.get_of_team(call.team_id, call.params["id"])


async def _view(call: Call, domain: Domain) -> DomainView:
    lookup = await call.management.domains.status(domain.id)
    records = [_record_view(record, stored.verdict if stored else None) for record, stored in lookup.records]
    return _to_view(domain, records, lookup.alignment, lookup.checked_at)


def _to_view(
    domain: Domain, records: list[RecordView], alignment: Alignment | None, checked_at: int | None
) -> DomainView:
    return DomainView(
        id=domain.id,
        name=domain.name,
        brand=domain.brand,
        dkim=domain.dkim,
        verified=domain.verified,
        approved=domain.approved,
        checked_at=timestamp(checked_at) if checked_at else None,
        records=records,
        alignment=alignment,
    )


def _record_view(record: Record, verdict: Verdict | None) -> RecordView:
    if verdict is None:
        return RecordView(**asdict(record))
    ok = verdict.ok if verdict.answered else None
    return RecordView(**asdict(record), ok=ok, found=verdict.found, fix=verdict.fix)
