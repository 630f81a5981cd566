"""A team's senders: domains, display names and SMS sender ids; and a sandbox team's verified recipients."""

from typing import Any

from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.phones.countries import country_code, country_name, country_names
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.sender_approvals import state_of
from heliograph.domain.setup.snapshot import RecordId
from heliograph.manage import recipients, senders

REMOVABLE = {"display_name": "Display name", "sender_id": "Sender ID", "recipient": "Recipient"}


async def show(request: PageRequest) -> Page:
    team = request.team
    check_by_domain = await request.store.domain_checks.find_many(domain.id for domain in team.domains.values())
    values: dict[str, Any] = {
        "team": team,
        "platform": request.setup.platform,
        "domains": sorted(team.domains.values(), key=lambda domain: domain.name),
        "checked": {id_: domain_check.checked_at for id_, domain_check in check_by_domain.items()},
        "domain_names": {domain.id: domain.name for domain in team.domains.values()},
        "names": sorted(team.display_names.values(), key=lambda name: (name.domain, name.name)),
        "sender_ids": sorted(team.sender_ids.values(), key=lambda sender: country_name(sender.country)),
        "country_name": country_name,
        "recipients": sorted(team.recipients),
        "approval_of": state_of,
    }
    return Page("senders.html", values)


def new_sender_page(request: PageRequest, kind: str, **errors: str) -> Page:
    """Show the form for a new sender or recipient; with errors, the typed values are kept."""
    usable_first = sorted(request.team.domains.values(), key=lambda one: (not one.usable, not one.verified, one.name))
    domains = [(domain.id, domain.name) for domain in usable_first]
    countries = [("", "Choose a country"), *((code, f"{name} ({code})") for code, name in country_names().items())]
    values = {"kind": kind, "domains": domains, "countries": countries, "errors": errors, "typed": request.form}
    return Page("sender_new.html", values, 400 if errors else 200)


async def new_name(request: PageRequest) -> PageResponse:
    return new_sender_page(request, "names")


async def add_name(request: PageRequest) -> PageResponse:
    team, name = request.team.record.id, request.form.get("name", "").strip()
    try:
        await senders.submit_name(request.store, request.actor, team, request.form.get("of", ""), name)
    except InvalidRequest as refusal:
        return new_sender_page(request, "names", **field_errors(refusal))
    return Redirect(f"{request.team_path}/senders", f"{name} is waiting for approval.")


async def new_sender_id(request: PageRequest) -> PageResponse:
    return new_sender_page(request, "sender-ids")


async def set_sender_id(request: PageRequest) -> PageResponse:
    country, value = country_code(request.form.get("country", "")), request.form.get("value", "").strip()
    try:
        await senders.submit_sender_id(request.store, request.actor, request.team.record.id, country, value)
    except InvalidRequest as refusal:
        return new_sender_page(request, "sender-ids", **field_errors(refusal))
    return Redirect(f"{request.team_path}/senders", f"{value} for {country_name(country)} is waiting for approval.")


async def remove(request: PageRequest) -> PageResponse:
    kind, id_ = record = _form_record(request)
    if kind not in REMOVABLE:
        raise PageNotFound
    team = request.team.record.id
    if kind == "recipient":
        subject = id_.removeprefix(f"{team}/")
        await recipients.remove(request.store, request.actor, team, subject)
    else:
        subject = await senders.remove(request.store, request.actor, team, record)
    return Redirect(f"{request.team_path}/senders", f"{REMOVABLE[kind]} {subject} deleted.")


async def request_approval_again(request: PageRequest) -> PageResponse:
    record = _form_record(request)
    await senders.resubmit(request.store, request.actor, request.team.record.id, record)
    return Redirect(_record_page_url(request, record), "Approval requested again.")


async def decide(request: PageRequest) -> PageResponse:
    """Approve or refuse a pending sender from the team's page."""
    record, approve = _form_record(request), request.form.get("approve") == "yes"
    reason = request.form.get("reason", "")
    try:
        await senders.decide(request.store, request.actor, request.team.record.id, record, approve, reason)
    except InvalidRequest as refusal:
        return Redirect(_record_page_url(request, record), refusal.message)
    return Redirect(
        _record_page_url(request, record), "Approved." if approve else "Refused. The team can see the reason."
    )


def _form_record(request: PageRequest) -> RecordId:
    """Return kind and id of the record in the form."""
    return request.form.get("kind", ""), request.form.get("id", "")


def _record_page_url(request: PageRequest, record: RecordId) -> str:
    return f"{request.team_path}/senders" + (f"/domains/{record[1]}" if record[0] == "domain" else "")


def find_domain(request: PageRequest) -> Domain:
    return request.tools.management.domains.get_of_team(request.team.record.id, request.params["id"])
