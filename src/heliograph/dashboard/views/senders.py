"""Who a team's messages come from: domains, display names, SMS sender ids; and whom a sandbox may send to."""

from typing import Any

from heliograph.dashboard.visit import Answer, Gone, Page, Redirect, Visit, errors_of
from heliograph.manage.fields import ONE_LINE, is_line
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.file import read_sender_id_fields
from heliograph.rules.setup.records import DisplayName, Domain, Recipient, SenderId
from heliograph.rules.setup.sender_approvals import Submitted, asked_again, decided, state_of, wish
from heliograph.rules.setup.snapshot import RecordId, Setup, to_row
from heliograph.storage.setup import SetupChange

REMOVABLE = {"display_name": "The display name", "sender_id": "The sender id", "recipient": "The recipient"}


async def show(visit: Visit) -> Answer:
    return page(visit)


def page(visit: Visit, **errors: str) -> Page:
    """With errors, the form's values stay where they were typed."""
    team = visit.team
    values: dict[str, Any] = {
        "team": team,
        "platform": visit.setup.platform,
        "domains": sorted(team.domains.values(), key=lambda domain: domain.name),
        "domain_names": {domain.id: domain.name for domain in team.domains.values()},
        "names": sorted(team.display_names.values(), key=lambda name: (name.domain, name.name)),
        "sender_ids": sorted(team.sender_ids.values(), key=lambda sender: sender.country),
        "recipients": sorted(team.recipients),
        "state_of": state_of,
        "errors": errors,
        "typed": visit.form if errors else {},
    }
    return Page("senders.html", values, 400 if errors else 200)


async def add_domain(visit: Visit) -> Answer:
    typed, brand = visit.form.get("domain", "").strip(), visit.form.get("brand", "").strip()
    try:
        made = await visit.tools.management.domains.add(visit.actor, visit.team.record.id, typed, brand)
    except InvalidRequest as refusal:
        errors = errors_of(refusal)
        return page(visit, **{"domain" if field == "name" else field: why for field, why in errors.items()})
    known, name = made.name in visit.team.domains, made.name
    told = f"You have {name} already." if known else f"{name} is added. Set the records below, then check them."
    return Redirect(f"{visit.base}/senders/domains/{made.id}", told)


async def add_name(visit: Visit) -> Answer:
    team, name, domain = visit.team, visit.form.get("name", "").strip(), visit.form.get("of", "")
    if not is_line(name):
        return page(visit, name=ONE_LINE)
    if domain not in {own.id for own in team.domains.values()}:
        return page(visit, of="Choose a domain of this team.")
    new = DisplayName(id=visit.context.clock.new_id("dn_"), team=team.record.id, domain=domain, name=name)

    def change(setup: Setup) -> SetupChange:
        names = setup.teams[team.record.id].display_names.values()
        known = any((old.domain, old.name) == (domain, name) for old in names)
        return SetupChange(rows=() if known else [to_row("display_name", new.id, new, new.team)])

    if not (await visit.change_setup("display_name.submit", name, change)).rows:
        return page(visit, name="This domain has the name already.")
    return Redirect(f"{visit.base}/senders", f"{name} waits for the operator's approval.")


async def set_sender_id(visit: Visit) -> Answer:
    country, value = visit.form.get("country", "").strip().upper(), visit.form.get("value", "").strip()
    _, errors = read_sender_id_fields({"country": country, "value": value})
    if "country" in errors:
        return page(visit, country="Write a country as its ISO code, such as GB.")
    if "value" in errors:
        return page(visit, value="Write at most 11 letters and digits with one letter or more, or a number.")
    team, id_ = visit.team.record.id, f"{visit.team.record.id}/{country}"
    new = SenderId(team=team, country=country, value=value)

    def change(setup: Setup) -> SetupChange:
        old = setup.teams[team].sender_ids.get(country)
        if old and old.approved:
            return SetupChange(rows=wish(setup, ("sender_id", id_), value))
        same = old is not None and old.value == value and not old.refused_reason
        return SetupChange(rows=() if same else [to_row("sender_id", id_, new, team)])

    if not (await visit.change_setup("sender_id.submit", f"{value} for {country}", change)).rows:
        return page(visit, value=f"{country} has this sender id already.")
    return Redirect(f"{visit.base}/senders", f"{value} for {country} waits for the operator's approval.")


async def remove(visit: Visit) -> Answer:
    kind, id_ = _named(visit)
    if kind not in REMOVABLE:
        raise Gone
    subject = id_.partition("/")[2] or getattr(visit.setup.records[kind, id_], "name", id_)
    team = visit.team.record.id
    await visit.change_setup(f"{kind}.remove", subject, lambda _: SetupChange(rows=[to_row(kind, id_, None, team)]))
    return Redirect(f"{visit.base}/senders", f"{REMOVABLE[kind]} {subject} is removed.")


async def ask_again(visit: Visit) -> Answer:
    record = _named(visit)
    await visit.change_setup(
        f"{record[0]}.submit", record[1], lambda setup: SetupChange(rows=asked_again(setup, record))
    )
    return Redirect(_back(visit, record), "The operator is asked again.")


async def decide(visit: Visit) -> Answer:
    """An operator's word, given where the team sees it."""
    record, approve, reason = _named(visit), visit.form.get("approve") == "yes", visit.form.get("reason", "")
    action = f"{record[0]}.{'approve' if approve else 'refuse'}"
    try:
        await visit.change_setup(
            action, record[1], lambda setup: SetupChange(rows=decided(setup, record, approve, reason)), reason
        )
    except InvalidRequest as refusal:
        return Redirect(_back(visit, record), refusal.message)
    return Redirect(_back(visit, record), "Approved." if approve else "Refused; the team sees the reason.")


def _named(visit: Visit) -> RecordId:
    """The record that the form is about, if it is this team's."""
    record = visit.setup.records.get(named := (visit.form.get("kind", ""), visit.form.get("id", "")))
    if not isinstance(record, Submitted | Recipient) or record.team != visit.team.record.id:
        raise Gone
    return named


def _back(visit: Visit, record: RecordId) -> str:
    return f"{visit.base}/senders" + (f"/domains/{record[1]}" if record[0] == "domain" else "")


def own_domain(visit: Visit) -> Domain:
    return visit.tools.management.domains.own(visit.team.record.id, visit.params["id"])
