"""Compatibility API for Resend, domains."""

from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.resend.codec import ResendDeleted, creation_time, list_response, slice_page
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.domain_records import Record
from heliograph.domain.setup.records import Domain
from heliograph.storage.domain_checks import StoredVerdict
from heliograph.web.request import Response
from heliograph.web.route import json_response

RECORD_BY_PURPOSE = {
    "dkim": "DKIM",
    "spf": "SPF",
    "return_path": "SPF",
    "dmarc": "DMARC",
    "tls_reports": "TLS reports",
    "ownership": "Ownership",
}


class ResendTracking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resend's tracking and TLS options. Tracking and enforced TLS are refused, because we do not support them."""

    id: str | None = None  # resend-python repeats the path's id here
    open_tracking: bool | None = None
    click_tracking: bool | None = None
    tracking_subdomain: str | None = None
    tls: str | None = None
    capabilities: dict[str, str] | None = None


class ResendDomain(ResendTracking, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    region: str | None = None  # accepted and ignored, because there is only one region
    custom_return_path: str | None = None


async def create(call: Call) -> Response:
    request = parse_request(ResendDomain, call.json)
    _refuse_tracking(request)
    created = await call.management.domains.add(call.actor, call.team_id, request.name)
    return json_response(await _detail(call, created))


async def list_all(call: Call) -> Response:
    page, has_more = slice_page(call, list(call.caller.team.domains.values()), lambda domain: domain.id)
    return json_response(list_response([_summary(domain) for domain in page], has_more=has_more))


async def read(call: Call) -> Response:
    return json_response(await _detail(call, _find_domain(call)))


async def change(call: Call) -> Response:
    _refuse_tracking(parse_request(ResendTracking, call.json))
    return json_response({"object": "domain", "id": _find_domain(call).id})


async def delete(call: Call) -> Response:
    domain = _find_domain(call)
    await call.management.domains.remove(call.actor, domain)
    return json_response(ResendDeleted(object="domain", id=domain.id))


async def verify(call: Call) -> Response:
    domain = _find_domain(call)
    await call.management.domains.check(call.actor, domain.id)
    return json_response({"object": "domain", "id": domain.id})


def _refuse_tracking(request: ResendTracking) -> None:
    for name in ("open_tracking", "click_tracking", "tracking_subdomain"):
        if getattr(request, name):
            raise InvalidRequest(f"{name}: tracking is not supported. Remove this field.", param=name)
    if request.tls == "enforced":
        reason = "enforced TLS is set by the operator. Remove this field, or use opportunistic."
        raise InvalidRequest(f"tls: {reason}", param="tls")


def _find_domain(call: Call) -> Domain:
    return call.management.domains.get_of_team(call.team_id, call.params["id"])


async def _detail(call: Call, domain: Domain) -> dict[str, Any]:
    lookup = await call.management.domains.status(domain.id)
    return {
        "object": "domain",
        **_summary(domain),
        "records": [_record_json(record, stored) for record, stored in lookup.records],
    }


def _summary(domain: Domain) -> dict[str, Any]:
    unverified_status = "not_started" if domain.checked_at is None else "pending"
    return {
        "id": domain.id,
        "name": domain.name,
        "status": "verified" if domain.usable else unverified_status,
        "created_at": creation_time(domain.id),
        "region": None,
        "open_tracking": False,
        "click_tracking": False,
    }


def _record_json(record: Record, stored: StoredVerdict | None) -> dict[str, Any]:
    status = "not_started" if stored is None else "verified" if stored.verdict.ok else "pending"
    fields = {"record": RECORD_BY_PURPOSE[record.purpose], "name": record.name, "type": record.type, "ttl": "Auto"}
    priority, _, host = record.value.partition(" ")
    if record.type != "MX":
        return fields | {"status": status, "value": record.value}
    return fields | {"status": status, "value": host, "priority": int(priority)}
