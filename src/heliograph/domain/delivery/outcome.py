"""Outcome of a send attempt, and later reports about a message."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from heliograph.domain.setup.records import CarrierRecord

# `reason` values set by Heliograph itself, where no carrier gave a reason.
LocalReason = Literal[
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
    "unsubscribed",
    "opted_out",
    "template_unavailable",
    "provider_rate",
    "warmup",
    "approval",
    "approval_rejected",
    "approval_expired",
]

# Why a mail server gave no reply; stored as `trouble` in the detail of an outcome.
ConnectionFailure = Literal["unreachable", "server_silent", "encryption", "account", "not_ready"]

# `reason` of a report about a forwarding target or a mailing list member, not about our recipient itself.
FORWARDING_FAILED = "forwarding_failed"
# `reason` of an email that a provider did not send because of its own suppression list.
PROVIDER_SUPPRESSED = "provider_suppressed"
# Key in the detail of an SMS outcome, whose value is the sender id that the carrier used.
SENDER = "sender"
# Report statuses that are not message states: they only add a timeline entry.
COMPLAINT = "complaint"  # complaint of one of several recipients; the report does not say of which one
TIMELINE_ONLY_STATUSES = ("deferred", "unsubscribed", COMPLAINT)


def local_failure(reason: LocalReason, text: str) -> dict[str, Any]:
    """Return the `detail` of a failure that Heliograph itself decided, with its reason and text."""
    return {"reason": reason, "text": text}


class IncomingText(msgspec.Struct, frozen=True, kw_only=True):
    """An inbound text message (SMS or WhatsApp)."""

    id: str  # id assigned by the carrier; a duplicate has the same id
    sender: str  # E.164
    to: str  # our number or other sender id to which the text was sent
    text: str
    sent_at: int | None = None  # when the author sent the text, in ms, if the carrier reports that
    is_unnamed: bool = False  # the carrier assigns no ids: `id` is a hash of the content
    is_incomplete: bool = False  # parts of a long text are missing


class TextPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a multipart inbound text message."""

    sender: str  # E.164
    to: str
    reference: str  # reference number, prefixed with its kind; equal for all parts of a text
    total: int
    number: int  # position of this part, from 1
    coding: int  # SMPP data_coding: encoding of `octets`
    octets: bytes


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A later report about a sent message: delivery receipt, bounce (DSN), complaint or status."""

    status: str  # a message state, or one of TIMELINE_ONLY_STATUSES
    detail: dict[str, Any] = {}  # the carrier's response, for the timeline
    suppress: str | None = None  # "bounce" or "complaint" if the address must be suppressed
    absent: bool = False  # the recipient's domain does not exist; has an effect only when reported a second time
    text: IncomingText | None = None  # reply of a simulated phone


class CarrierReport(NamedTuple):
    """A report that identifies the message by the carrier's id."""

    carrier_id: str
    report: Report


class ProviderReport(msgspec.Struct, frozen=True, kw_only=True):
    """A mail provider's report. The message is looked up by these fields in order, by the address last."""

    tracking_id: str | None = None  # our message id, which was sent as metadata
    carrier_ids: tuple[str, ...] = ()  # the provider's ids
    message_id: str | None = None  # our message id, from the Message-ID header
    address: str | None = None
    report: Report


class DueReport(NamedTuple):
    """A report to apply some time after the send: from a simulator, or returned with the carrier's response."""

    after_ms: int
    report: Report


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The carrier accepted the message."""

    carrier_id: str | None = None  # id that later reports refer to
    parts: tuple[str, ...] = ()  # replaces `carrier_id` for a multipart message: the id of each part, in order
    detail: dict[str, Any] = {}
    delivered: bool = False  # the carrier is the final recipient, so accepted means delivered
    reports: Sequence[DueReport] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The carrier rejected the message permanently."""

    detail: dict[str, Any] = {}
    bounced: bool = False  # the address is invalid: status `bounced`, and the address is suppressed
    # The recipient's mail server rejected the message: status `bounced`. Without `bounced` and `by_inbox`: `failed`.
    by_inbox: bool = False
    absent: bool = False  # the recipient's domain does not exist; has an effect only when reported a second time


class Deferred(msgspec.Struct, frozen=True, kw_only=True):
    """The carrier did not accept the message yet: retry later."""

    delayed: bool = False  # set by a simulator: publish `email.delayed` at once

    detail: dict[str, Any] = {}
    retry_after_ms: int | None = None
    unreachable: bool = False  # the carrier is unreachable and nothing was sent; the next carrier is tried at once
    # The carrier stopped responding after data was sent. The message may have been sent, so no other carrier is tried.
    uncertain: bool = False
    held: bool = False  # deferred because of a problem or limit on our side; does not count as an attempt
    overflow: str = ""  # id of the overflow carrier, which may send the held message at once
    absent: bool = False  # the recipient's domain was reported not to exist; a second report must confirm this


Outcome = Accepted | Refused | Deferred


class CarrierAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One send attempt with a carrier, its outcome and duration."""

    carrier: CarrierRecord
    outcome: Outcome
    duration_ms: int

    @property
    def result(self) -> Literal["accepted", "refused", "put_off"]:
        match self.outcome:
            case Accepted():
                return "accepted"
            case Refused():
                return "refused"
        return "put_off"


def outcome_label(outcome: Outcome) -> str:
    """Return the metric label of the outcome."""
    match outcome:
        case Accepted():
            return "accepted"
        case Refused():
            return "bounced" if outcome.bounced else "refused"
        case Deferred():
            return "unreachable" if outcome.unreachable else "uncertain" if outcome.uncertain else "deferred"
