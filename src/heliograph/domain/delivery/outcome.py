"""What carriers say: an outcome at hand-over, a report later."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from heliograph.domain.setup.records import CarrierRecord

# What we say ourselves, when nobody else has said anything, in the `reason` of a detail.
Own = Literal[
    "no_carrier",
    "out_of_reach",
    "no_answer",
    "uncertain",
    "broke_off",
    "not_ready",
    "quarantined",
    "retried",
    "dropped",
    "canceled",
    "expired",
    "suspended",
    "suppressed",
    "opted_out",
    "template_unavailable",
]

# What kept a mail server from replying: the `trouble` in the detail of an outcome.
Trouble = Literal["unreachable", "server_silent", "encryption", "account", "not_ready"]

# The `reason` of a report about another address, which ours was forwarded or expanded to.
FORWARDING_FAILED = "forwarding_failed"
# … and of an email that a provider did not try to deliver, because of its own list.
PROVIDER_SUPPRESSED = "provider_suppressed"
# In the detail of an SMS: the sender that the carrier used.
SENDER = "sender"
# What a report may say beside a message state: it changes none, and is a line of the timeline.
COMPLAINT = "complaint"  # by one of several recipients, and nobody says which
NOTES = ("deferred", "unsubscribed", COMPLAINT)


def own(reason: Own, text: str) -> dict[str, Any]:
    """Make a detail in our own words."""
    return {"reason": reason, "text": text}


class IncomingText(msgspec.Struct, frozen=True, kw_only=True):
    """A text that somebody wrote to us."""

    id: str  # the carrier's own; a repeat has it again
    sender: str  # E.164
    to: str  # the number, or what else of ours was written to
    text: str
    sent_at: int | None = None  # when its author sent it, in ms, where the carrier says so
    is_unnamed: bool = False  # the carrier has no ids for them: this one is a hash of what it says
    is_incomplete: bool = False  # parts of a long text are missing


class TextPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a long text that somebody wrote to us."""

    sender: str  # E.164
    to: str
    reference: str  # the same for all parts of a text, with the kind of reference
    total: int
    number: int  # from 1
    coding: int  # data_coding
    octets: bytes


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the world says later about one hand-over: receipt, DSN, complaint, status."""

    status: str  # a message state, or one of NOTES
    detail: dict[str, Any] = {}  # carrier's words for the timeline
    suppress: str | None = None  # "bounce" or "complaint" when the address must not be mailed again
    absent: bool = False  # because its domain does not exist, which counts when it is told twice
    text: IncomingText | None = None  # what a simulated phone answers


class CarrierReport(NamedTuple):
    """A report by the carrier's own id."""

    carrier_id: str
    report: Report


class ProviderReport(msgspec.Struct, frozen=True, kw_only=True):
    """A mail provider's report: what it gives back of ours is looked for in this order, then the address."""

    along: str | None = None  # the message's id, as it was sent along
    carrier_ids: tuple[str, ...] = ()  # the provider's own
    message_id: str | None = None  # the message's id, from its Message-ID
    address: str | None = None
    report: Report


class DueReport(NamedTuple):
    """A report that is applied some time after the hand-over: a simulator's, or one that came with the answer."""

    after_ms: int
    report: Report


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The carrier took the message."""

    carrier_id: str | None = None  # what later reports name
    parts: tuple[str, ...] = ()  # instead of it: the id of each part of a long message, in order
    detail: dict[str, Any] = {}
    delivered: bool = False  # the carrier is the last one: accepted is delivered
    reports: Sequence[DueReport] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The carrier will never take it."""

    detail: dict[str, Any] = {}
    bounced: bool = False  # the address itself is bad: `bounced` and suppressed
    by_inbox: bool = False  # the recipient's own mail server refused it: `bounced`; without either `failed`
    absent: bool = False  # because its domain does not exist, which counts when it is told twice


class Deferred(msgspec.Struct, frozen=True, kw_only=True):
    """Not now: try again."""

    delayed: bool = False  # a simulator's: to be told as delayed at once

    detail: dict[str, Any] = {}
    retry_after_ms: int | None = None
    unreachable: bool = False  # the carrier cannot be reached: it was not sent, and the next carrier is asked at once
    uncertain: bool = False  # the carrier fell silent: maybe it was sent, so no other carrier may be asked
    held: bool = False  # for a reason on our own side: it waits, and this was no attempt
    absent: bool = False  # the recipient's domain does not exist, by what was said lately for the first time


Outcome = Accepted | Refused | Deferred


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A carrier that a message was handed to, and what it said."""

    carrier: CarrierRecord
    outcome: Outcome
    took_ms: int

    @property
    def result(self) -> Literal["accepted", "refused", "put_off"]:
        match self.outcome:
            case Accepted():
                return "accepted"
            case Refused():
                return "refused"
        return "put_off"


def word_of(outcome: Outcome) -> str:
    """Say the outcome in one word, for counters."""
    match outcome:
        case Accepted():
            return "accepted"
        case Refused():
            return "bounced" if outcome.bounced else "refused"
        case Deferred():
            return "unreachable" if outcome.unreachable else "uncertain" if outcome.uncertain else "deferred"
