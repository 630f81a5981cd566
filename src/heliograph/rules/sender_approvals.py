"""Domains, display names and sender ids that wait for an operator's word, and what that word changes."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from heliograph.rules.reading import line
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup import RecordId, Row, Setup, to_row
from heliograph.rules.team import DisplayName, Domain, SenderId

State = Literal["approved", "refused", "waiting"]
Submitted = Domain | DisplayName | SenderId


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    kind: str  # of the record
    team: str
    id: str  # of the record
    text: str  # what is asked for, for the operator


def state_of(record: Submitted) -> State:
    if record.approved:
        return "approved"
    return "refused" if record.refused_reason else "waiting"


def pending(setup: Setup) -> list[Pending]:
    """Team by team. A domain is asked about once DNS has shown whose it is."""
    waiting = [
        Pending(kind=kind, team=record.team, id=id_, text=_TEXT[kind](record, setup))
        for (kind, id_), record in setup.records.items()
        if isinstance(record, Submitted) and state_of(record) == "waiting" and getattr(record, "verified", True)
    ]
    return sorted(waiting, key=lambda item: (item.team, item.kind, item.text))


_TEXT: dict[str, Callable[[Any, Setup], str]] = {
    "domain": lambda record, _: f"Send as {record.brand} from {record.name}",
    "display_name": lambda record, setup: f"Send as {record.name} from {_domain_name(setup, record.domain)}",
    "sender_id": lambda record, _: f"Send SMS as {record.value} to {record.country}",
}


def _domain_name(setup: Setup, id_: str) -> str:
    record = setup.records.get(("domain", id_))
    return record.name if isinstance(record, Domain) else id_


def decide(setup: Setup, item: Pending, approve: bool, reason: str = "") -> list[Row]:
    """The rows to write, none when it is no longer what was seen. A refusal needs a reason."""
    return decided(setup, (item.kind, item.id), approve, reason) if item in pending(setup) else []


def decided(setup: Setup, record_id: RecordId, approve: bool, reason: str = "") -> list[Row]:
    """An operator's word about any such record; it also takes an approval back."""
    if not approve:
        reason = _read_reason(reason)
    return _changed(setup, record_id, approved=approve, refused_reason="" if approve else reason)


def asked_again(setup: Setup, record_id: RecordId) -> list[Row]:
    """What was refused waits for another look."""
    return _changed(setup, record_id, refused_reason="")


def _changed(setup: Setup, record_id: RecordId, **fields: Any) -> list[Row]:
    record = setup.records.get(record_id)
    if not isinstance(record, Submitted):
        return []
    new = replace(record, **fields)
    return [] if new == record else [to_row(*record_id, new, record.team)]


def _read_reason(reason: str) -> str:
    try:
        return str(line(reason.strip()))
    except ValueError:
        raise InvalidRequest("Give the reason in one line: the team reads it.", param="reason") from None
