"""Notices to people from the service: kinds, recipients and rate limits."""

from typing import NamedTuple

import msgspec

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS

HOURLY_MAX = 10  # mails to one person, or posts to one chat, per hour; the last mail combines all pending notices
# Wait after each deferred attempt; after the last step, the notice fails permanently.
RETRY_MS = (MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 6 * HOUR_MS)

INSTANCE_TEAM = ""  # stands for the instance where a team id is expected
TEAM_REF_PREFIX = "#"  # prefix of a team's number, which stands for its id until the id is looked up
TEST = "test"  # kind of a test notice, which is sent only to the chat

# Records that operators approve or refuse
APPROVABLE_KINDS = ("domain", "display_name", "sender_id", "template", "team")
# Template states at Meta that cause a notice.
UPSTREAM_ACTIONS = tuple(f"template.upstream_{word}" for word in ("approved", "rejected", "paused", "disabled"))


class NoticeKind(NamedTuple):
    """A kind of notice to which a person can subscribe."""

    team: str
    kind: str


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the notices table, in column order."""

    name: str  # unique name of this notice
    at: int
    team: str  # empty if the notice is not about a team
    kind: str
    facts: dict[str, str] = {}
    actor: str = SERVICE.name


def notice_for_entry(entry: AuditEntry) -> NoticeRow | None:
    """Return the notice that an audit log entry causes; None if it causes none."""
    subject_kind, _, verb = entry.action.partition(".")
    kind = ""
    if verb in ("approve", "refuse") and subject_kind in APPROVABLE_KINDS and entry.team:
        kind = "approval"
    elif entry.action in UPSTREAM_ACTIONS:
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
        team=entry.team or INSTANCE_TEAM,
        kind=kind,
        facts={"action": entry.action, "subject": entry.subject, "detail": entry.detail},
        actor=entry.actor,
    )


def low_credit_notice(ref: int, event: str, at: int, credit: str, threshold: str) -> NoticeRow:
    """Return the notice that a team's credit is low. `ref`: the team's number."""
    facts = {"credit": credit, "mark": threshold}
    return NoticeRow(name=f"credit/{event}", at=at, team=f"{TEAM_REF_PREFIX}{ref}", kind="credit", facts=facts)


def key_limit_notice(ref: int, key_id: str, at: int) -> NoticeRow:
    """Return the notice that a key reached a limit. `ref`: the team's number.

    The name contains only the key and the day, so that one notice per key and day is enqueued.
    """
    name = f"key_limit/{key_id}/{at // DAY_MS}"
    return NoticeRow(name=name, at=at, team=f"{TEAM_REF_PREFIX}{ref}", kind="key_limit", facts={"key": key_id})


def dead_letter_notice(count: int, at: int) -> NoticeRow:
    """Return a notice that messages entered the dead-letter queue.

    The name contains only the hour, so that one notice per hour is enqueued, whatever the number of messages.
    """
    name = f"dead_letters/{at - at % HOUR_MS}"
    return NoticeRow(name=name, at=at, team=INSTANCE_TEAM, kind="dead_letters", facts={"count": str(count)})


def receives_notice(role: str | None, subscribed: int | None) -> bool:
    """Return whether a person with this role receives a kind of notice; a person without a role receives none.

    `subscribed`: the person's choice (0 or 1). If it is None, all but viewers receive the notice.
    """
    if role is None:
        return False
    return bool(subscribed) if subscribed is not None else role != "viewer"


def mail_sizes(pending: int, sent: int) -> list[int]:
    """Return the number of notices in each email to send now; the other notices wait.

    `pending`: number of waiting notices; `sent`: emails sent in the last hour.
    """
    available = max(0, HOURLY_MAX - sent)
    if pending <= available - 1 or (pending == available == 1):
        return [1] * pending
    return [1] * (available - 1) + [pending - (available - 1)] if available else []
