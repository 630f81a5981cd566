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
from heliograph.domain.text import check_line

ApprovalState = Literal["approved", "refused", "waiting"]
SubmittedRecord = Domain | DisplayName | SenderId
ChangeableRecord = Domain | SenderId | TeamRecord
# Field of an approved record whose change a team may request.
CHANGEABLE_FIELD_BY_KIND: dict[str, str] = {"domain": "brand", "sender_id": "value", "team": "name"}


class PendingSender(msgspec.Struct, frozen=True, kw_only=True):
    kind: str  # kind of the setup record
    team: str
    id: str  # record id
    text: str  # the request, as shown to the operator
    is_change: bool = False  # change of an approved record, not a new record
    asked_by: str = ""  # usr_…, if requested by a person


def state_of(record: SubmittedRecord) -> ApprovalState:
    if record.approved:
        return "approved"
    return "refused" if record.refused_reason else "waiting"


def pending_senders(setup: Setup) -> list[PendingSender]:
    """Return pending requests ordered by team. A domain is included once DNS has verified it."""
    change_requests = [
        PendingSender(
            kind=kind,
            team=team_of(record),
            id=id_,
            text=_CHANGE_TEXT_BY_KIND[kind](record),
            is_change=True,
            asked_by=record.asked_by,
        )
        for (kind, id_), record in setup.records.items()
        if isinstance(record, ChangeableRecord) and _is_approved(record) and record.wanted and not record.wanted_refused
    ]
    new_requests = [
        PendingSender(
            kind=kind,
            team=record.team,
            id=id_,
            text=_REQUEST_TEXT_BY_KIND[kind](record, setup),
            asked_by=record.asked_by,
        )
        for (kind, id_), record in setup.records.items()
        if isinstance(record, SubmittedRecord) and state_of(record) == "waiting" and getattr(record, "verified", True)
    ]
    return sorted(new_requests + change_requests, key=lambda item: (item.team, item.kind, item.text))


_REQUEST_TEXT_BY_KIND: dict[str, Callable[[Any, Setup], str]] = {
    "domain": lambda record, _: f"Send as {record.brand} from {record.name}",
    "display_name": lambda record, setup: f"Send as {record.name} from {_domain_name(setup, record.domain)}",
    "sender_id": lambda record, _: f"Send SMS as {record.value} to {record.country}",
}


_CHANGE_TEXT_BY_KIND: dict[str, Callable[[Any], str]] = {
    "domain": lambda record: f"Send as {record.wanted} from {record.name}, instead of {record.brand}",
    "sender_id": lambda record: f"Send SMS as {record.wanted} to {record.country}, instead of {record.value}",
    "team": lambda record: f"Be called {record.wanted}, instead of {record.name}",
}


def _is_approved(record: ChangeableRecord) -> bool:
    return getattr(record, "approved", True)  # teams are created by operators, so they count as approved


def team_of(record: SubmittedRecord | ChangeableRecord) -> str:
    return record.id if isinstance(record, TeamRecord) else record.team


def request_text(setup: Setup, record_id: RecordId) -> str:
    """Return the text of a record's request, as shown to the operator."""
    return _REQUEST_TEXT_BY_KIND[record_id[0]](setup.records[record_id], setup)


def change_request_text(setup: Setup, record_id: RecordId) -> str:
    return _CHANGE_TEXT_BY_KIND[record_id[0]](setup.records[record_id])


def request_change(setup: Setup, record_id: RecordId, value: str, *, operator: bool = False, by: str = "") -> list[Row]:
    """Request another brand, sender id or name; return the rows to write.

    The approved value stays in use until the decision; an operator's change is immediate.
    """
    kind, record = record_id[0], setup.records.get(record_id)
    assert isinstance(record, ChangeableRecord)
    is_new = getattr(record, CHANGEABLE_FIELD_BY_KIND[kind]) != value
    if operator or not _is_approved(record) or not is_new:
        return change_rows(setup, record_id, **{CHANGEABLE_FIELD_BY_KIND[kind]: value}, wanted="", wanted_refused="")
    return change_rows(setup, record_id, wanted=value, wanted_refused="", asked_by=by)


def _domain_name(setup: Setup, id_: str) -> str:
    record = setup.records.get(("domain", id_))
    return record.name if isinstance(record, Domain) else id_


def decide_request(setup: Setup, item: PendingSender, approve: bool, reason: str = "") -> list[Row]:
    """Return the rows of a decision; empty if the request has changed since the operator saw it.

    A refusal needs a reason.
    """
    current = next(
        (request for request in pending_senders(setup) if decision_basis(request) == decision_basis(item)), None
    )
    if current is None:
        return []
    decide = _change_decision_rows if current.is_change else decision_rows
    return decide(setup, (item.kind, item.id), approve, reason)


def decision_basis(item: PendingSender) -> PendingSender:
    """Return the request without its requester and `is_change`, for comparison: a decision does not depend on these."""
    return replace(item, is_change=False, asked_by="")


def _change_decision_rows(setup: Setup, record_id: RecordId, approve: bool, reason: str) -> list[Row]:
    record = setup.records[record_id]
    assert isinstance(record, ChangeableRecord)
    if approve:
        return change_rows(
            setup, record_id, **{CHANGEABLE_FIELD_BY_KIND[record_id[0]]: record.wanted}, wanted="", wanted_refused=""
        )
    return change_rows(setup, record_id, wanted_refused=_parse_reason(reason))


def decision_rows(setup: Setup, record_id: RecordId, approve: bool, reason: str = "") -> list[Row]:
    """Return the rows for an operator's decision about a record; can also revoke an approval."""
    return change_rows(setup, record_id, approved=approve, refused_reason="" if approve else _parse_reason(reason))


def resubmit_rows(setup: Setup, record_id: RecordId, by: str = "") -> list[Row]:
    """Return the rows that make a refused request pending again."""
    record = setup.records.get(record_id)
    if not isinstance(record, SubmittedRecord) or not record.refused_reason:
        return []
    return change_rows(setup, record_id, refused_reason="", asked_by=by)


def change_rows(setup: Setup, record_id: RecordId, **fields: Any) -> list[Row]:
    record = setup.records.get(record_id)
    if not isinstance(record, SubmittedRecord | ChangeableRecord) or not fields.keys() <= {*record.__struct_fields__}:
        return []
    new = replace(record, **fields)
    return [] if new == record else [to_row(*record_id, new, team_of(record))]


def _parse_reason(reason: str) -> str:
    try:
        return str(check_line(reason.strip()))
    except ValueError:
        raise InvalidRequest("Enter a one-line reason. It is shown to the team.", param="reason") from None
