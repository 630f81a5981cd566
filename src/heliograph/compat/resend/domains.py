"""Resend's domains."""

from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.resend.codec import ResendDeleted, cut, listed, made_at
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.domain_records import Record
from heliograph.domain.setup.records import Domain
from heliograph.storage.domain_checks import KeptVerdict
from heliograph.web.request import Response
from heliograph.web.route import answer

RECORDS = {"dkim": "DKIM", "spf": "SPF", "return_path": "SPF", "dmarc": "DMARC", "ownership": "Ownership"}


class ResendTracking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tracking and TLS options of Resend. We never change mail, so tracking and enforced TLS are refused."""

    id: str | None = None  # resend-python repeats the id of the path
    open_tracking: bool | None = None
    click_tracking: bool | None = None
    tracking_subdomain: str | None = None
    tls: str | None = None
    capabilities: dict[str, str] | None = None


class ResendDomain(ResendTracking, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    region: str | None = None  # accepted and ignored: there is one region
    custom_return_path: str | None = None


async def create(call: Call) -> Response:
    given = given_as(ResendDomain, call.json)
    _check(given)
    made = await call.management.domains.add(call.actor, call.caller.team.record.id, given.name)
    return answer(await _whole(call, made))


async def list_all(call: Call) -> Response:
    found, more = cut(call, list(call.caller.team.domains.values()), lambda domain: domain.id)
    return answer(listed([_line(domain) for domain in found], has_more=more))


async def read(call: Call) -> Response:
    return answer(await _whole(call, _own(call)))


async def change(call: Call) -> Response:
    _check(given_as(ResendTracking, call.json))
    return answer({"object": "domain", "id": _own(call).id})


async def delete(call: Call) -> Response:
    domain = _own(call)
    await call.management.domains.remove(call.actor, domain)
    return answer(ResendDeleted(object="domain", id=domain.id))


async def verify(call: Call) -> Response:
    domain = _own(call)
    await call.management.domains.check(call.actor, domain.id)
    return answer({"object": "domain", "id": domain.id})


def _check(given: ResendTracking) -> None:
    for name in ("open_tracking", "click_tracking", "tracking_subdomain"):
        if getattr(given, name):
            raise InvalidRequest(f"{name}: this service does not track readers. Leave it out.", param=name)
    if given.tls == "enforced":
        why = "an operator decides how mail is encrypted on its way. Leave it out, or send opportunistic."
        raise InvalidRequest(f"tls: {why}", param="tls")


def _own(call: Call) -> Domain:
    return call.management.domains.own(call.caller.team.record.id, call.params["id"])


async def _whole(call: Call, domain: Domain) -> dict[str, Any]:
    looked = await call.management.domains.looked_up(domain.id)
    return {"object": "domain", **_line(domain), "records": [_record(record, kept) for record, kept in looked.records]}


def _line(domain: Domain) -> dict[str, Any]:
    begun = "not_started" if domain.checked_at is None else "pending"
    return {
        "id": domain.id,
        "name": domain.name,
        "status": "verified" if domain.usable else begun,
        "created_at": made_at(domain.id),
        "region": None,
        "open_tracking": False,
        "click_tracking": False,
    }


def _record(record: Record, kept: KeptVerdict | None) -> dict[str, Any]:
    status = "not_started" if kept is None else "verified" if kept.verdict.ok else "pending"
    shown = {"record": RECORDS[record.purpose], "name": record.name, "type": record.type, "ttl": "Auto"}
    priority, _, host = record.value.partition(" ")
    if record.type != "MX":
        return shown | {"status": status, "value": record.value}
    return shown | {"status": status, "value": host, "priority": int(priority)}
