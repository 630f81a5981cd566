"""Display names and sender ids, which teams request and remove; operators' decisions about them and about domains."""

from collections.abc import Callable

from heliograph.changes.decisions import ApprovalResult, notify_requester, requester_id
from heliograph.changes.fields import ONE_LINE_ERROR, check_fields, check_quota, is_single_line
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup.records import DisplayName, SenderId
from heliograph.domain.setup.sender_approvals import (
    PendingSender,
    SubmittedRecord,
    decide_request,
    decision_basis,
    decision_rows,
    pending_senders,
    request_change,
    request_text,
    resubmit_rows,
)
from heliograph.domain.setup.setup_file import read_sender_id_fields
from heliograph.domain.setup.snapshot import RecordId, Row, Setup, to_row
from heliograph.manage.teams import get_team
from heliograph.storage.store import Store

ERROR_BY_FIELD = {
    "country": "Choose a country (ISO code, such as GB).",
    "value": "Enter up to 11 letters and digits with at least one letter, or a phone number.",
}


async def submit_name(store: Store, actor: Actor, team: str, domain: str, name: str) -> None:
    """Request a display name for one of the team's domains, whose id is `domain`."""
    new = DisplayName(id=store.clock.new_id("dn_"), team=team, domain=domain, name=name, asked_by=requester_id(actor))

    def make_rows(setup: Setup) -> list[Row]:
        team_setup = get_team(setup, team)
        errors = {} if is_single_line(name) else {"name": ONE_LINE_ERROR}
        if all(domain != team_domain.id for team_domain in team_setup.domains.values()):
            errors["of"] = "Choose one of this team's domains."
        if any((old.domain, old.name) == (domain, name) for old in team_setup.display_names.values()):
            errors["name"] = "This domain already has this name."
        check_fields(errors)
        check_quota(actor, "name", len(team_setup.display_names), "display names")
        return [to_row("display_name", new.id, new, team)]

    await change_rows(store, actor, team, "display_name.submit", name, make_rows)


async def submit_sender_id(store: Store, actor: Actor, team: str, country: str, value: str) -> None:
    """Request a sender id. A sender id approved earlier stays in use until the new one is approved."""
    _, errors = read_sender_id_fields({"country": country, "value": value})
    check_fields({field: ERROR_BY_FIELD[field] for field in errors})
    id_ = f"{team}/{country}"

    def make_rows(setup: Setup) -> list[Row]:
        old = get_team(setup, team).sender_ids.get(country)
        if old and old.approved:
            changed_rows = request_change(setup, ("sender_id", id_), value, by=requester_id(actor))
        elif old and old.value == value and not old.refused_reason:
            changed_rows = []
        else:
            new = SenderId(team=team, country=country, value=value, asked_by=requester_id(actor))
            changed_rows = [to_row("sender_id", id_, new, team)]
        if not changed_rows:
            raise InvalidRequest(f"{country} already has this sender ID.", param="value")
        return changed_rows

    await change_rows(store, actor, team, "sender_id.submit", f"{value} for {country}", make_rows)


async def remove(store: Store, actor: Actor, team: str, record: RecordId) -> str:
    """Remove a sender record of the team, such as a display name; return its name as shown to people."""
    kind, id_ = record
    subject = display_text(store.setup.current, team, record)

    def make_rows(setup: Setup) -> list[Row]:
        display_text(setup, team, record)
        return [to_row(kind, id_, None, team)]

    await change_rows(store, actor, team, f"{kind}.remove", subject, make_rows)
    return subject


async def resubmit(store: Store, actor: Actor, team: str, record: RecordId) -> None:
    subject = display_text(store.setup.current, team, record)
    await change_rows(
        store,
        actor,
        team,
        f"{record[0]}.submit",
        subject,
        lambda setup: resubmit_rows(setup, record, requester_id(actor)),
    )


async def decide(store: Store, actor: Actor, team: str, record: RecordId, approve: bool, reason: str = "") -> None:
    """Record an operator's decision about a team's sender record, even if an earlier decision exists."""
    before = store.setup.current
    requester = _get_record(before, team, record).asked_by
    item = PendingSender(kind=record[0], team=team, id=record[1], text=request_text(before, record), asked_by=requester)
    await _write_decision(
        store, actor, item, approve, reason, lambda setup: decision_rows(setup, record, approve, reason)
    )


async def decide_pending(store: Store, actor: Actor, item: PendingSender, approve: bool, reason: str = "") -> bool:
    """Record an operator's decision about a pending request; return False if it was changed or decided meanwhile."""
    pending_item = next(
        (other for other in pending_senders(store.setup.current) if decision_basis(other) == decision_basis(item)), item
    )
    return await _write_decision(
        store, actor, pending_item, approve, reason, lambda setup: decide_request(setup, item, approve, reason)
    )


async def _write_decision(
    store: Store,
    actor: Actor,
    item: PendingSender,
    approve: bool,
    reason: str,
    make_rows: Callable[[Setup], list[Row]],
) -> bool:
    """Write the decision and notify the person who made the request.

    The audit entry has the full request text, because the same name may exist on two domains.
    """
    action, detail = f"{item.kind}.{'approve' if approve else 'refuse'}", "" if approve else reason
    changed = await change_rows(store, actor, item.team, action, item.text, make_rows, detail)
    if changed:
        result = ApprovalResult(
            team=item.team,
            kind=item.kind,
            text=item.text,
            approved=approve,
            reason=detail.strip(),
            requester=item.asked_by,
            id=item.id,
        )
        await notify_requester(store, actor, result)
    return changed


def get_pending(setup: Setup, id_: str) -> PendingSender:
    """Return the pending request with this id in its current state; raise NotFound if there is none."""
    for item in pending_senders(setup):
        if item.id == id_:
            return decision_basis(item)
    raise NotFound(f"There is no pending approval with the ID {id_}.")


def display_text(setup: Setup, team: str, record_id: RecordId) -> str:
    """Return a sender record's name as shown to people; raise NotFound if the team has no such record."""
    record = _get_record(setup, team, record_id)
    return record.country if isinstance(record, SenderId) else record.name


def _get_record(setup: Setup, team: str, record_id: RecordId) -> SubmittedRecord:
    record = setup.records.get(record_id)
    if not isinstance(record, SubmittedRecord) or record.team != team:
        raise NotFound(f"The team has no {record_id[0].replace('_', ' ')} {record_id[1]}.")
    return record
