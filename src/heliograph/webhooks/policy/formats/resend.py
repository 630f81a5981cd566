"""Events in Resend's format, compatible with Resend's libraries and django-anymail (compat.md)."""

from typing import Any

import msgspec

from heliograph.domain.delivery.outcome import LocalReason
from heliograph.domain.events import SCHEDULED, StoredEvent, event_data, is_hard_bounce
from heliograph.domain.ids import timestamp
from heliograph.domain.sending.send_options import to_name_addr
from heliograph.domain.setup.records import Team

RECEIVED = "email.received"
RESEND_TYPE_BY_TYPE = {  # our event type → Resend's
    SCHEDULED: SCHEDULED,
    "email.sent": "email.sent",
    "email.delivered": "email.delivered",
    "email.bounced": "email.bounced",
    "email.complained": "email.complained",
    "email.failed": "email.failed",
    "email.delayed": "email.delivery_delayed",
    RECEIVED: RECEIVED,
    "domain.verified": "domain.updated",
    "domain.failed": "domain.updated",
    "suppression.created": "suppression.added",
    "suppression.deleted": "suppression.removed",
}
_SUPPRESSED: LocalReason = "suppressed"
# failure reasons for which Resend has an event type
RESEND_TYPE_BY_REASON: dict[LocalReason, str] = {"canceled": "email.canceled", _SUPPRESSED: "email.suppressed"}
# anymail searches this text for the reason: "bounce message" means bounced, "suppressed sending" blocked
_BOUNCED_TEXT = "The recipient's email provider sent a {}bounce message"
_SUPPRESSED_TEXT = "Heliograph has suppressed sending to this address because it is on the team's suppression list."


def resend_type(type_: str, reason: Any) -> str:
    return RESEND_TYPE_BY_REASON.get(reason) or RESEND_TYPE_BY_TYPE.get(type_, type_)


def body(event: StoredEvent, team: Team) -> bytes:
    data = event_data(event)
    type_ = resend_type(event.type, data.get("error", {}).get("reason"))
    if event.type == RECEIVED:
        data = _inbound_data(data, timestamp(event.created_at))
    elif event.type.startswith("email."):
        data, error = _email_data(data), data.get("error", {})
        if error.get("reason") == _SUPPRESSED:
            data["suppressed"] = {"message": _SUPPRESSED_TEXT, "type": "OnAccountSuppressionList"}
            data["bounce"] = {"type": "Permanent", "subType": "Suppressed", "message": _SUPPRESSED_TEXT}
        elif type_ == "email.failed":
            data["failed"] = {"reason": error.get("reason") or error.get("text") or "failed"}
    elif type_.startswith("domain."):
        status = event.type.partition(".")[2]
        data = {"id": data["id"], "name": data["name"], "status": status, "created_at": timestamp(event.created_at)}
    elif type_.startswith("suppression."):
        data = {
            "id": data["email"],
            "email": data["email"],
            "origin": data["reason"],
            "source_id": data["source_message_id"],
            "created_at": data["created_at"],
        }
    return msgspec.json.encode({"type": type_, "created_at": timestamp(event.created_at), "data": data})


def _inbound_data(data: dict[str, Any], at: str) -> dict[str, Any]:
    """Return the data of an inbound mail without its body, which clients read with GET, as with Resend."""
    attachment_fields = ("id", "filename", "content_type", "content_id")
    return {
        "email_id": data["id"],
        "created_at": at,
        **{name: data[name] for name in ("from", "to", "cc", "message_id", "subject")},
        "bcc": [],
        "attachments": [
            {name: attachment[name] for name in attachment_fields}
            | {"content_disposition": "inline" if attachment["content_id"] else "attachment"}
            for attachment in data["attachments"]
        ],
    }


def _email_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data for one recipient; Resend lists all To addresses, which hides whom an event is about."""
    payload = {
        "email_id": data["id"],
        "created_at": data["created_at"],
        "from": data.get("sender_id") or data["from"],
        "to": [to_name_addr(data["recipient"], data.get("named", []))] if data["recipient"] else [],
        "subject": data["subject"],
        "tags": data.get("tags", {}),
        "headers": [{"name": name, "value": value} for name, value in data.get("headers", {}).items()],
    }
    if data["status"] == "bounced":
        details = data.get("bounce", {})
        is_permanent, text = is_hard_bounce("bounced", details), details.get("text", "")
        summary = _BOUNCED_TEXT.format("hard " if is_permanent else "")
        payload["bounce"] = {
            "type": "Permanent" if is_permanent else "Transient",  # clients remove addresses with a permanent bounce
            "subType": "General",
            "message": f"{summary}: {text}" if text else f"{summary}.",
            "diagnosticCode": [f"smtp; {text}"] if text else [],
        }
    return payload
