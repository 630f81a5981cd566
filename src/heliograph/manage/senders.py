"""Display names and sender ids, requested and removed by teams; operators' decisions about them and about domains."""

from collections.abc import Callable

from heliograph.changes.decisions import Ruling, asker, decided
from heliograph.changes.fields import ONE_LINE, check_fields, check_room, is_line
from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup.records import DisplayName, SenderId
from heliograph.domain.setup.sender_approvals import (
    PendingSender,
    Submitted,
    as_seen,
    asked_again,
    pending,
    text_of,
    wish,
)
from heliograph.domain.setup.sender_approvals import decide as rows_of_pending
from heliograph.domain.setup.sender_approvals import decided as rows_of_word
from heliograph.domain.setup.setup_file import read_sender_id_fields
from heliograph.domain.setup.snapshot import RecordId, Row, Setup, to_row
from heliograph.manage.teams import find_team
from heliograph.storage.store import Store

WRONG = {
    "country": "Choose a country: its ISO code, such as GB.",
    "value": "Write at most 11 letters and digits with one letter or more, or a number.",
}


async def submit_name(store: Store, actor: Actor, team: str, domain: str, name: str) -> None:
    """Request a display name for the team's domain with the id `domain`."""
    new = DisplayName(id=store.clock.new_id("dn_"), team=team, domain=domain, name=name, asked_by=asker(actor))

    def rows(setup: Setup) -> list[Row]:
        own = find_team(setup, team)
        errors = {} if is_line(name) else {"name": ONE_LINE}
        if all(domain != one.id for one in own.domains.values()):
            errors["of"] = "Choose a domain of this team."
        if any((old.domain, old.name) == (domain, name) for old in own.display_names.values()):
            errors["name"] = "This domain has the name already."
        check_fields(errors)
        check_room(actor, "name", len(own.display_names), "display names")
        return [to_row("display_name", new.id, new, team)]

    await change_rows(store, actor, team, "display_name.submit", name, rows)


async def submit_sender_id(store: Store, actor: Actor, team: str, country: str, value: str) -> None:
    """Request a sender id. An approved sender id stays in use until the new one is approved."""
    _, errors = read_sender_id_fields({"country": country, "value": value})
    check_fields({field: WRONG[field] for field in errors})
    id_ = f"{team}/{country}"

    def rows(setup: Setup) -> list[Row]:
        old = find_team(setup, team).sender_ids.get(country)
        if old and old.approved:
            found = wish(setup, ("sender_id", id_), value, by=asker(actor))
        elif old and old.value == value and not old.refused_reason:
            found = []
        else:
            new = SenderId(team=team, country=country, value=value, asked_by=asker(actor))
            found = [to_row("sender_id", id_, new, team)]
        if not found:
            raise InvalidRequest(f"{country} has this sender id already.", param="value")
        return found

    await change_rows(store, actor, team, "sender_id.submit", f"{value} for {country}", rows)


async def remove(store: Store, actor: Actor, team: str, record: RecordId) -> str:
    """Remove a record of the team and return its display text."""
    kind, id_ = record
    subject = subject_of(store.setup.current, team, record)

    def rows(setup: Setup) -> list[Row]:
        subject_of(setup, team, record)
        return [to_row(kind, id_, None, team)]

    await change_rows(store, actor, team, f"{kind}.remove", subject, rows)
    return subject


async def ask_again(store: Store, actor: Actor, team: str, record: RecordId) -> None:
    subject = subject_of(store.setup.current, team, record)
    await change_rows(
        store, actor, team, f"{record[0]}.submit", subject, lambda setup: asked_again(setup, record, asker(actor))
    )


async def decide(store: Store, actor: Actor, team: str, record: RecordId, approve: bool, reason: str = "") -> None:
    """Record an operator's decision about a record of the team, also if already decided before."""
    before = store.setup.current
    asked_by = _find(before, team, record).asked_by
    item = PendingSender(kind=record[0], team=team, id=record[1], text=text_of(before, record), asked_by=asked_by)
    await _write(store, actor, item, approve, reason, lambda setup: rows_of_word(setup, record, approve, reason))


async def decide_pending(store: Store, actor: Actor, item: PendingSender, approve: bool, reason: str = "") -> bool:
    """Record an operator's decision about a pending request; return False if it was changed or decided meanwhile."""
    asked = next((one for one in pending(store.setup.current) if as_seen(one) == as_seen(item)), item)
    return await _write(
        store, actor, asked, approve, reason, lambda setup: rows_of_pending(setup, item, approve, reason)
    )


async def _write(
    store: Store,
    actor: Actor,
    item: PendingSender,
    approve: bool,
    reason: str,
    rows_of: Callable[[Setup], list[Row]],
) -> bool:
    """Write the decision and notify the requester.

    The audit entry has the full request text, because the same name may exist on two domains.
    """
    action, detail = f"{item.kind}.{'approve' if approve else 'refuse'}", "" if approve else reason
    done = await change_rows(store, actor, item.team, action, item.text, rows_of, detail)
    if done:
        ruling = Ruling(
            team=item.team,
            kind=item.kind,
            text=item.text,
            approved=approve,
            reason=detail.strip(),
            asked_by=item.asked_by,
            id=item.id,
        )
        await decided(store, actor, ruling)
    return done


def waiting(setup: Setup, id_: str) -> PendingSender:
    """Return the pending request with this id in its current state; raise NotFound if there is none."""
    for item in pending(setup):
        if item.id == id_:
            return as_seen(item)
    raise NotFound(f"Nothing waits for approval with the id {id_}.")


def subject_of(setup: Setup, team: str, record_id: RecordId) -> str:
    """Return the name of the team's record, as shown to people; raise NotFound if the team has no such record."""
    record = _find(setup, team, record_id)
    return record.country if isinstance(record, SenderId) else record.name


def _find(setup: Setup, team: str, record_id: RecordId) -> Submitted:
    record = setup.records.get(record_id)
    if not isinstance(record, Submitted) or record.team != team:
        raise NotFound(f"The team has no {record_id[0].replace('_', ' ')} {record_id[1]}.")
    return record
