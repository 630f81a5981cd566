"""Events in Resend's format, compatible with Resend's libraries and django-anymail (compat.md)."""

from typing import Any

import msgspec

from heliograph.domain.delivery.outcome import Own
from heliograph.domain.events import SCHEDULED, StoredEvent, event_data, is_hard
from heliograph.domain.ids import timestamp
from heliograph.domain.sending.send_options import with_name
from heliograph.domain.setup.records import Team

RECEIVED = "email.received"
TYPES = {  # our type: Resend's type
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
_SUPPRESSED: Own = "suppressed"
# Our failure reasons for which Resend has a separate event type.
FAILED: dict[Own, str] = {"canceled": "email.canceled", _SUPPRESSED: "email.suppressed"}
# anymail derives the reason from this text: "bounce message" means bounced, "suppressed sending" blocked.
_BOUNCED = "The recipient's email provider sent a {}bounce message"
_HELD_BACK = "Heliograph has suppressed sending to this address because it is on the team's suppression list."


def name_of(type_: str, reason: Any) -> str:
    return FAILED.get(reason) or TYPES.get(type_, type_)


def body(event: StoredEvent, team: Team) -> bytes:
    own = event_data(event)
    type_ = name_of(event.type, own.get("error", {}).get("reason"))
    if event.type == RECEIVED:
        own = _received(own, timestamp(event.created_at))
    elif event.type.startswith("email."):
        own, error = _email(own), own.get("error", {})
        if error.get("reason") == _SUPPRESSED:
            own["suppressed"] = {"message": _HELD_BACK, "type": "OnAccountSuppressionList"}
            own["bounce"] = {"type": "Permanent", "subType": "Suppressed", "message": _HELD_BACK}
        elif type_ == "email.failed":
            own["failed"] = {"reason": error.get("reason") or error.get("text") or "failed"}
    elif type_.startswith("domain."):
        status = event.type.partition(".")[2]
        own = {"id": own["id"], "name": own["name"], "status": status, "created_at": timestamp(event.created_at)}
    elif type_.startswith("suppression."):
        own = {
            "id": own["email"],
            "email": own["email"],
            "origin": own["reason"],
            "source_id": own["source_message_id"],
            "created_at": own["created_at"],
        }
    return msgspec.json.encode({"type": type_, "created_at": timestamp(event.created_at), "data": own})


def _received(own: dict[str, Any], at: str) -> dict[str, Any]:
    """Return the data of an inbound mail without its body; clients read the body with GET, as with Resend."""
    kept = ("id", "filename", "content_type", "content_id")
    return {
        "email_id": own["id"],
        "created_at": at,
        **{name: own[name] for name in ("from", "to", "cc", "message_id", "subject")},
        "bcc": [],
        "attachments": [
            {name: one[name] for name in kept}
            | {"content_disposition": "inline" if one["content_id"] else "attachment"}
            for one in own["attachments"]
        ],
    }


def _email(own: dict[str, Any]) -> dict[str, Any]:
    """Return the data for one recipient.

    Resend lists all To addresses, which hides which recipient the event is about.
    """
    told = {
        "email_id": own["id"],
        "created_at": own["created_at"],
        "from": own.get("sender_id") or own["from"],
        "to": [with_name(own["recipient"], own.get("named", []))] if own["recipient"] else [],
        "subject": own["subject"],
        "tags": own.get("tags", {}),
        "headers": [{"name": name, "value": value} for name, value in own.get("headers", {}).items()],
    }
    if own["status"] == "bounced":
        words = own.get("bounce", {})
        hard, text = is_hard("bounced", words), words.get("text", "")
        about = _BOUNCED.format("hard " if hard else "")
        told["bounce"] = {
            "type": "Permanent" if hard else "Transient",  # clients drop addresses whose bounce is permanent
            "subType": "General",
            "message": f"{about}: {text}" if text else f"{about}.",
            "diagnosticCode": [f"smtp; {text}"] if text else [],
        }
    return told
