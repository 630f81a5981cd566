"""The `data` objects of events, by subject. Events are encoded from these structs, whose schemas document them."""

from typing import Annotated, Any

import msgspec

from heliograph.domain.delivery.message_states import STATES_BY_CHANNEL
from heliograph.domain.field_docs import (
    MONEY,
    TIME,
    ChannelName,
    CreatedAt,
    Detail,
    Id,
    ObjectName,
    Sandbox,
    VerificationStatus,
    describe,
)
from heliograph.domain.mail.suppression_file import REASONS
from heliograph.domain.mail.unsubscribe import UNSUBSCRIBE_REASONS
from heliograph.domain.phones.opt_out import OPT_OUT_REASONS, PHONE_CHANNELS

_STATES = list(dict.fromkeys(state for states in STATES_BY_CHANNEL.values() for state in states))

PreviousStatus = Annotated[str | None, describe("The state before this event.", example="sent")]
PhoneNumber = Annotated[str, describe("Phone number in E.164 format.", example="+4915112345678")]


class RecipientChange(msgspec.Struct, frozen=True, kw_only=True):
    """A recipient's state change: the fields that a message event has in addition to those of the message."""

    status: Annotated[str | None, describe("The recipient's new state.", example="delivered", enum=_STATES)]
    message_status: Annotated[
        str | None, describe("The state of the whole message after this event.", example="delivered", enum=_STATES)
    ]
    previous_status: PreviousStatus
    recipient: Annotated[
        str | None,
        describe("The recipient's address or phone; null for a bcc recipient.", example="delivered@simulator.test"),
    ]
    recipient_kind: Annotated[
        str | None, describe("Header in which the recipient was addressed.", enum=["to", "cc", "bcc"])
    ]


class VerificationEventData(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    channel: ChannelName
    to: Annotated[str, describe("Phone number or email address that received the code.", example="+15005550006")]
    status: VerificationStatus
    sandbox: Sandbox
    expires_at: Annotated[str, describe("When the code stops working.", **TIME)]
    error_message: Annotated[str | None, describe("Why the status is `failed`, else null.")]
    previous_status: PreviousStatus


class SuppressionEventData(msgspec.Struct, frozen=True, kw_only=True):
    email: Annotated[str, describe("The email address.", example="ada@example.com")]
    reason: Annotated[str, describe("Why the address is or was suppressed.", example="bounce", enum=list(REASONS))]
    source_message_id: Annotated[str | None, describe("The message that bounced or caused the complaint.")]
    detail: Detail
    created_at: CreatedAt


class OptOutEventData(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "opt_out"
    phone: PhoneNumber
    channel: Annotated[str, describe("The channel of the opt-out.", enum=list(PHONE_CHANNELS))]
    reason: Annotated[str, describe("How the number opted out.", example="text", enum=list(OPT_OUT_REASONS))]
    created_at: CreatedAt


class UnsubscribeEventData(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "unsubscribe"
    address: Annotated[str, describe("The recipient's email address.", example="ada@example.com")]
    category: Annotated[str, describe("The category of emails.", example="newsletter")]
    reason: Annotated[str, describe("How the recipient unsubscribed.", example="link", enum=list(UNSUBSCRIBE_REASONS))]
    created_at: CreatedAt


class InboundTextData(msgspec.Struct, frozen=True, kw_only=True):
    """An inbound SMS or WhatsApp text."""

    object: ObjectName = "received"
    id: Id
    from_: Annotated[str, describe("The sender's phone number.", example="+4915112345678")] = msgspec.field(name="from")
    to: Annotated[str, describe("The team's number or sender ID.", example="+15005550006")]
    text: Annotated[str, describe("The text.", example="Thanks!")]
    carrier: Annotated[str, describe("Id of the carrier that reported the text.", example="sms")]
    incomplete: Annotated[
        bool | msgspec.UnsetType, describe("`true` if parts of a long text are missing.", maybe=True)
    ] = msgspec.UNSET


class DomainEventData(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    name: Annotated[str, describe("The domain.", example="acme.test")]
    verified: Annotated[bool, describe("Whether the team has proved that the domain is its own.", example=True)]


class TemplateStatusData(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a WhatsApp template at Meta."""

    object: ObjectName = "template"
    id: Id
    name: Annotated[str, describe("The template's name.")]
    channel: ChannelName
    upstream_name: Annotated[str, describe("The template's name at Meta.")]
    language: Annotated[str, describe("The template's language at Meta.", example="en")]
    upstream_status: Annotated[str, describe("Meta's status.", example="approved")]
    upstream_reason: Annotated[str | None, describe("Meta's reason for the status.")]
    upstream_quality: Annotated[str | None, describe("Meta's quality rating.")]
    previous_upstream_status: Annotated[str | None, describe("Meta's status before this event.")]


class CreditLowData(msgspec.Struct, frozen=True, kw_only=True):
    credit: Annotated[str, describe("Available credit.", example="4.9550", **MONEY)]
    held: Annotated[str, describe("Credit on hold for messages being sent.", example="0.0450", **MONEY)]
    threshold: Annotated[str, describe("The team's threshold for this event.", example="5.0000", **MONEY)]


class WebhookTestData(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    url: Annotated[str, describe("The webhook's URL.", example="https://example.com/hooks")]
    events: Annotated[tuple[str, ...], describe("What the webhook subscribes to.", example=["*"])]
    description: Annotated[str | None, describe("The webhook's description.")]


def encode_data(data: Any) -> str:
    """Encode an event's data object in the stored form, JSON."""
    return msgspec.json.encode(data).decode()
