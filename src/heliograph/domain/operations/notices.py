"""Notices to people from the service: kinds, recipients and rate limits."""

from typing import NamedTuple

import msgspec

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.limits import HOUR_MS, MINUTE_MS

HOURLY = 10  # mails to one person, or posts to one chat, per hour; the last one summarises all pending notices
# Wait after each deferred attempt; after the last step, the notice fails permanently.
RETRY_MS = (MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 6 * HOUR_MS)

INSTANCE = ""  # used in place of a team id
NUMBERED = "#"  # prefix of a team's number, until its id is looked up
TEST = "test"  # sent only to the chat

WISHES = ("domain", "display_name", "sender_id", "template", "team")  # records that operators approve or refuse
# Template states at Meta that cause a notice.
UPSTREAM = tuple(f"template.upstream_{word}" for word in ("approved", "rejected", "paused", "disabled"))


class NoticeKind(NamedTuple):
    """A kind of notice to which a person can subscribe."""

    team: str
    kind: str


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the notices table, in column order."""

    name: str  # unique name of this notice
    at: int
    team: str  # empty for the instance
    kind: str
    facts: dict[str, str] = {}
    actor: str = SERVICE.name


def of_entry(entry: AuditEntry) -> NoticeRow | None:
    """Return the notice for an audit log entry; None if the entry causes no notice."""
    thing, _, verb = entry.action.partition(".")
    kind = ""
    if verb in ("approve", "refuse") and thing in WISHES and entry.team:
        kind = "approval"
    elif entry.action in UPSTREAM:
        kind = "template"
    elif entry.action == "domain.failed":
        kind = "domain" if entry.team else "platform"
    elif entry.action == "webhook.disable" and entry.actor == SERVICE.name:
        kind = "webhook"
    elif entry.action in ("reputation.warn", "reputation.pause"):
        kind = "bounces"
    elif entry.action == "delivery.pause" and entry.actor == SERVICE.name:
        kind = "platform"
    if not kind:
        return None
    return NoticeRow(
        name=f"{entry.action}/{entry.team or ''}/{entry.subject}/{entry.at}",
        at=entry.at,
        team=entry.team or INSTANCE,
        kind=kind,
        facts={"action": entry.action, "subject": entry.subject, "detail": entry.detail},
        actor=entry.actor,
    )


def low_credit(ref: int, event: str, at: int, credit: str, mark: str) -> NoticeRow:
    """Return a notice of low credit; the code that spends credit knows only a team's number."""
    facts = {"credit": credit, "mark": mark}
    return NoticeRow(name=f"credit/{event}", at=at, team=f"{NUMBERED}{ref}", kind="credit", facts=facts)


def dead_letters(count: int, at: int) -> NoticeRow:
    """Return a notice of dead letters; its name allows one per hour, whatever the count."""
    name = f"dead_letters/{at - at % HOUR_MS}"
    return NoticeRow(name=name, at=at, team=INSTANCE, kind="dead_letters", facts={"count": str(count)})


def is_told(role: str | None, chosen: int | None) -> bool:
    """Return whether a member, or an operator for the instance, receives the notice; viewers only if subscribed."""
    if role is None:
        return False
    return bool(chosen) if chosen is not None else role != "viewer"


def batches(waiting: int, sent: int) -> list[int]:
    """Return the number of notices in each mail to send now, given `sent` mails in the last hour. The rest waits."""
    free = max(0, HOURLY - sent)
    if waiting <= free - 1 or (waiting == free == 1):
        return [1] * waiting
    return [1] * (free - 1) + [waiting - (free - 1)] if free else []
