"""Domains, display names and sender ids that await an operator's decision, and the effect of the decision.

Only approved values are used: a new brand, sender id or team name is pending until it is approved.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import DisplayName, Domain, SenderId, TeamRecord
from heliograph.domain.setup.snapshot import RecordId, Row, Setup, to_row
from heliograph.domain.text import line

State = Literal["approved", "refused", "waiting"]
Submitted = Domain | DisplayName | SenderId
Changing = Domain | SenderId | TeamRecord
# Field of an approved record whose change a team may request.
FIELD: dict[str, str] = {"domain": "brand", "sender_id": "value", "team": "name"}


class PendingSender(msgspec.Struct, frozen=True, kw_only=True):
    kind: str  # record kind
    team: str
    id: str  # record id
    text: str  # the request, as shown to the operator
    is_change: bool = False  # the record is already approved
    asked_by: str = ""  # usr_…, if requested by a person


def state_of(record: Submitted) -> State:
    if record.approved:
        return "approved"
    return "refused" if record.refused_reason else "waiting"


def pending(setup: Setup) -> list[PendingSender]:
    """Return pending requests ordered by team. A domain is included once DNS has verified it."""
    changes = [
        PendingSender(
            kind=kind,
            team=team_of(record),
            id=id_,
            text=_CHANGE[kind](record),
            is_change=True,
            asked_by=record.asked_by,
        )
        for (kind, id_), record in setup.records.items()
        if isinstance(record, Changing) and _is_approved(record) and record.wanted and not record.wanted_refused
    ]
    waiting = [
        PendingSender(kind=kind, team=record.team, id=id_, text=_TEXT[kind](record, setup), asked_by=record.asked_by)
        for (kind, id_), record in setup.records.items()
        if isinstance(record, Submitted) and state_of(record) == "waiting" and getattr(record, "verified", True)
    ]
    return sorted(waiting + changes, key=lambda item: (item.team, item.kind, item.text))


_TEXT: dict[str, Callable[[Any, Setup], str]] = {
    "domain": lambda record, _: f"Send as {record.brand} from {record.name}",
    "display_name": lambda record, setup: f"Send as {record.name} from {_domain_name(setup, record.domain)}",
    "sender_id": lambda record, _: f"Send SMS as {record.value} to {record.country}",
}


_CHANGE: dict[str, Callable[[Any], str]] = {
    "domain": lambda record: f"Send as {record.wanted} from {record.name}, instead of {record.brand}",
    "sender_id": lambda record: f"Send SMS as {record.wanted} to {record.country}, instead of {record.value}",
    "team": lambda record: f"Be called {record.wanted}, instead of {record.name}",
}


def _is_approved(record: Changing) -> bool:
    return getattr(record, "approved", True)  # teams are created by operators, so they count as approved


def team_of(record: Submitted | Changing) -> str:
    return record.id if isinstance(record, TeamRecord) else record.team


def text_of(setup: Setup, record_id: RecordId) -> str:
    """Return the request for a record, as shown to the operator."""
    return _TEXT[record_id[0]](setup.records[record_id], setup)


def text_of_change(setup: Setup, record_id: RecordId) -> str:
    return _CHANGE[record_id[0]](setup.records[record_id])


def wish(setup: Setup, record_id: RecordId, value: str, *, operator: bool = False, by: str = "") -> list[Row]:
    """Request another brand, sender id or name. The approved value stays in use; an operator's change is immediate."""
    kind, record = record_id[0], setup.records.get(record_id)
    assert isinstance(record, Changing)
    is_new = getattr(record, FIELD[kind]) != value
    if operator or not _is_approved(record) or not is_new:
        return changed(setup, record_id, **{FIELD[kind]: value}, wanted="", wanted_refused="")
    return changed(setup, record_id, wanted=value, wanted_refused="", asked_by=by)


def _domain_name(setup: Setup, id_: str) -> str:
    record = setup.records.get(("domain", id_))
    return record.name if isinstance(record, Domain) else id_


def decide(setup: Setup, item: PendingSender, approve: bool, reason: str = "") -> list[Row]:
    """Return the rows to write; empty if the request has changed since `item` was shown. A refusal needs a reason."""
    found = next((one for one in pending(setup) if as_seen(one) == as_seen(item)), None)
    if found is None:
        return []
    record_id = (item.kind, item.id)
    return (
        _decided_change(setup, record_id, approve, reason)
        if found.is_change
        else decided(setup, record_id, approve, reason)
    )


def as_seen(item: PendingSender) -> PendingSender:
    """Return the part of the request that a decision depends on, without the requester and `is_change`."""
    return replace(item, is_change=False, asked_by="")


def _decided_change(setup: Setup, record_id: RecordId, approve: bool, reason: str) -> list[Row]:
    record = setup.records[record_id]
    assert isinstance(record, Changing)
    if approve:
        return changed(setup, record_id, **{FIELD[record_id[0]]: record.wanted}, wanted="", wanted_refused="")
    return changed(setup, record_id, wanted_refused=_read_reason(reason))


def decided(setup: Setup, record_id: RecordId, approve: bool, reason: str = "") -> list[Row]:
    """Return the rows for an operator's decision about a record; can also revoke an approval."""
    if not approve:
        reason = _read_reason(reason)
    return changed(setup, record_id, approved=approve, refused_reason="" if approve else reason)


def asked_again(setup: Setup, record_id: RecordId, by: str = "") -> list[Row]:
    """Return the rows that make a refused request pending again."""
    record = setup.records.get(record_id)
    if not isinstance(record, Submitted) or not record.refused_reason:
        return []
    return changed(setup, record_id, refused_reason="", asked_by=by)


def changed(setup: Setup, record_id: RecordId, **fields: Any) -> list[Row]:
    record = setup.records.get(record_id)
    if not isinstance(record, Submitted | Changing) or not fields.keys() <= {*record.__struct_fields__}:
        return []
    new = replace(record, **fields)
    return [] if new == record else [to_row(*record_id, new, team_of(record))]


def _read_reason(reason: str) -> str:
    try:
        return str(line(reason.strip()))
    except ValueError:
        raise InvalidRequest("Give the reason in one line: the team reads it.", param="reason") from None
