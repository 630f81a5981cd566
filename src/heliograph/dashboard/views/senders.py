"""Senders of a team: domains, display names and SMS sender ids; and verified recipients of a sandbox team."""

from typing import Any

from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit, errors_of
from heliograph.domain.phones.countries import country_code, country_name, country_names
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.sender_approvals import state_of
from heliograph.domain.setup.snapshot import RecordId
from heliograph.manage import recipients, senders

REMOVABLE = {"display_name": "The display name", "sender_id": "The sender ID", "recipient": "The recipient"}


async def show(visit: Visit) -> Page:
    team = visit.team
    looked = await visit.store.domain_checks.of(domain.id for domain in team.domains.values())
    values: dict[str, Any] = {
        "team": team,
        "platform": visit.setup.platform,
        "domains": sorted(team.domains.values(), key=lambda domain: domain.name),
        "checked": {id_: one.checked_at for id_, one in looked.items()},
        "domain_names": {domain.id: domain.name for domain in team.domains.values()},
        "names": sorted(team.display_names.values(), key=lambda name: (name.domain, name.name)),
        "sender_ids": sorted(team.sender_ids.values(), key=lambda sender: country_name(sender.country)),
        "country_name": country_name,
        "recipients": sorted(team.recipients),
        "approval_of": state_of,
    }
    return Page("senders.html", values)


def new_page(visit: Visit, kind: str, **errors: str) -> Page:
    """Show the form for a new sender or recipient; with errors, the typed values are kept."""
    domains = sorted((domain.id, domain.name) for domain in visit.team.domains.values())
    countries = [("", "Choose a country"), *((code, f"{name} ({code})") for code, name in country_names().items())]
    values = {"kind": kind, "domains": domains, "countries": countries, "errors": errors, "typed": visit.form}
    return Page("sender_new.html", values, 400 if errors else 200)


async def new_name(visit: Visit) -> Answer:
    return new_page(visit, "names")


async def add_name(visit: Visit) -> Answer:
    team, name = visit.team.record.id, visit.form.get("name", "").strip()
    try:
        await senders.submit_name(visit.store, visit.actor, team, visit.form.get("of", ""), name)
    except InvalidRequest as refusal:
        return new_page(visit, "names", **errors_of(refusal))
    return Redirect(f"{visit.base}/senders", f"{name} waits for the operator's approval.")


async def new_sender_id(visit: Visit) -> Answer:
    return new_page(visit, "sender-ids")


async def set_sender_id(visit: Visit) -> Answer:
    country, value = country_code(visit.form.get("country", "")), visit.form.get("value", "").strip()
    try:
        await senders.submit_sender_id(visit.store, visit.actor, visit.team.record.id, country, value)
    except InvalidRequest as refusal:
        return new_page(visit, "sender-ids", **errors_of(refusal))
    return Redirect(f"{visit.base}/senders", f"{value} for {country_name(country)} waits for the operator's approval.")


async def remove(visit: Visit) -> Answer:
    kind, id_ = record = _named(visit)
    if kind not in REMOVABLE:
        raise Gone
    team = visit.team.record.id
    if kind == "recipient":
        subject = id_.removeprefix(f"{team}/")
        await recipients.remove(visit.store, visit.actor, team, subject)
    else:
        subject = await senders.remove(visit.store, visit.actor, team, record)
    return Redirect(f"{visit.base}/senders", f"{REMOVABLE[kind]} {subject} is deleted.")


async def ask_again(visit: Visit) -> Answer:
    record = _named(visit)
    await senders.ask_again(visit.store, visit.actor, visit.team.record.id, record)
    return Redirect(_back(visit, record), "The operator is asked again.")


async def decide(visit: Visit) -> Answer:
    """Approve or refuse a pending sender from the team's page."""
    record, approve, reason = _named(visit), visit.form.get("approve") == "yes", visit.form.get("reason", "")
    try:
        await senders.decide(visit.store, visit.actor, visit.team.record.id, record, approve, reason)
    except InvalidRequest as refusal:
        return Redirect(_back(visit, record), refusal.message)
    return Redirect(_back(visit, record), "Approved." if approve else "Refused; the team sees the reason.")


def _named(visit: Visit) -> RecordId:
    """Return kind and id of the record that the form is about."""
    return visit.form.get("kind", ""), visit.form.get("id", "")


def _back(visit: Visit, record: RecordId) -> str:
    return f"{visit.base}/senders" + (f"/domains/{record[1]}" if record[0] == "domain" else "")


def own_domain(visit: Visit) -> Domain:
    return visit.tools.management.domains.own(visit.team.record.id, visit.params["id"])
