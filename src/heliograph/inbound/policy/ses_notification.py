"""Parses notifications of Amazon SES that SNS sends by mail: a bounce, complaint or delivery as JSON in the text."""

import re

import msgspec

from heliograph.inbound.policy.arf import Feedback
from heliograph.inbound.policy.dsn import RecipientGroup

_STATUS = re.compile(r"2\.[0-9]{1,3}\.[0-9]{1,3}")


class _SesRecipient(msgspec.Struct, frozen=True, rename="camel"):
    email_address: str = ""
    action: str | None = None
    status: str | None = None
    diagnostic_code: str = ""


class _Bounce(msgspec.Struct, frozen=True, rename="camel"):
    bounce_type: str = ""
    bounced_recipients: list[_SesRecipient] = []


class _Complaint(msgspec.Struct, frozen=True, rename="camel"):
    complained_recipients: list[_SesRecipient] = []
    complaint_feedback_type: str = "abuse"


class _Delivery(msgspec.Struct, frozen=True, rename="camel"):
    recipients: list[str] = []
    smtp_response: str = ""


class _Notification(msgspec.Struct, frozen=True, rename="camel"):
    bounce: _Bounce | None = None
    complaint: _Complaint | None = None
    delivery: _Delivery | None = None


class _Envelope(msgspec.Struct, frozen=True):
    message: str = msgspec.field(default="", name="Message")


def read_notification(text: str) -> list[RecipientGroup] | Feedback | None:
    """Return the content of the SES notification in a mail's text; None if there is no notification."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or "notificationType" not in text:
        return None
    try:
        payload = text[start : end + 1].replace("!\n ", "")  # some relays fold lines over 998 octets like this
        payload = msgspec.json.decode(payload, type=_Envelope).message or payload
        notification = msgspec.json.decode(payload, type=_Notification)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if notification.bounce:
        default_status = "5.0.0" if notification.bounce.bounce_type == "Permanent" else "4.0.0"
        return [
            RecipientGroup(
                action="failed",
                status=recipient.status or default_status,
                diagnostic=recipient.diagnostic_code,
                final_recipient=recipient.email_address or None,
            )
            for recipient in notification.bounce.bounced_recipients or [_SesRecipient()]
        ]
    if notification.complaint:
        recipients = notification.complaint.complained_recipients[:1]
        return Feedback(
            type=notification.complaint.complaint_feedback_type,
            recipients=tuple(recipient.email_address for recipient in recipients if recipient.email_address),
        )
    if notification.delivery:
        response = notification.delivery.smtp_response
        match = _STATUS.search(response)
        status = match[0] if match else None
        return [
            RecipientGroup(action="delivered", status=status, diagnostic=response, final_recipient=recipient)
            for recipient in notification.delivery.recipients
        ]
    return None
