"""What people are told of by the service itself: which kinds there are, who is told, and how often."""

from typing import NamedTuple

import msgspec

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.limits import HOUR_MS, MINUTE_MS

HOURLY = 10  # mails to one person, or posts to one chat, in an hour; the last of them tells of all that waits
# How long to wait after each try that was put off; when no step is left, the notice is given up.
RETRY_MS = (MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 6 * HOUR_MS)

INSTANCE = ""  # instead of a team
NUMBERED = "#"  # and a team's number, until its id is looked up
TEST = "test"  # tells the chat alone

WISHES = ("domain", "display_name", "sender_id", "template", "team")  # what operators approve and refuse
# Which of Meta's words on a template are told.
UPSTREAM = tuple(f"template.upstream_{word}" for word in ("approved", "rejected", "paused", "disabled"))


class NoticeKind(NamedTuple):
    """What somebody chooses to be told of."""

    team: str
    kind: str


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table, in the order of its columns."""

    name: str  # of this one alone
    at: int
    team: str  # empty: the instance
    kind: str
    facts: dict[str, str] = {}
    actor: str = SERVICE.name


def of_entry(entry: AuditEntry) -> NoticeRow | None:
    """Return what a change in the audit log is to people; None: there is nothing to tell of."""
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
    """Make a notice; where credit is spent, a team is known by its number alone."""
    facts = {"credit": credit, "mark": mark}
    return NoticeRow(name=f"credit/{event}", at=at, team=f"{NUMBERED}{ref}", kind="credit", facts=facts)


def dead_letters(count: int, at: int) -> NoticeRow:
    """Make one notice an hour, however many dead letters there are."""
    name = f"dead_letters/{at - at % HOUR_MS}"
    return NoticeRow(name=name, at=at, team=INSTANCE, kind="dead_letters", facts={"count": str(count)})


def is_told(role: str | None, chosen: int | None) -> bool:
    """Tell whether a member is told, or an operator about the instance; a viewer is told what they asked for."""
    if role is None:
        return False
    return bool(chosen) if chosen is not None else role != "viewer"


def batches(waiting: int, sent: int) -> list[int]:
    """Return how many notices each mail of now tells of, when so many went in the last hour. What is left waits."""
    free = max(0, HOURLY - sent)
    if waiting <= free - 1 or (waiting == free == 1):
        return [1] * waiting
    return [1] * (free - 1) + [waiting - (free - 1)] if free else []
