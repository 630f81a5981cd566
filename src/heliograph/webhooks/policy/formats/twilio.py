"""Message events as Twilio's status callbacks: form-encoded, and signed with the URL by HMAC-SHA1 (compat.md)."""

import base64
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from heliograph.domain.delivery.outcome import SENDER, LocalReason
from heliograph.domain.events import EVENT_TYPES as OURS
from heliograph.domain.events import StoredEvent, event_data
from heliograph.domain.ids import PREFIXES
from heliograph.domain.phones.phone import to_e164
from heliograph.domain.setup.records import Team
from heliograph.webhooks.policy.signature import SignatureInput

CONTENT_TYPE = "application/x-www-form-urlencoded"
ACCOUNT = "AccountSid"  # key in a message's `origin`: the account id in the request to our Twilio compatibility API
SERVICE = "MessagingServiceSid"  # key in a message's `origin`: the messaging service named in the request
WHATSAPP = "whatsapp:"  # prefix of a phone number
API_VERSION = "2010-04-01"
TYPES = tuple(name for name in OURS if name.startswith(("sms.", "whatsapp.")))
_SERVICE_ID = "MG"  # id prefix of Twilio's messaging services, which choose the sender
_CANCELED: LocalReason = "canceled"
_ERROR_CODE_BY_REASON: dict[LocalReason, int] = {
    "expired": 30036,
    "no_carrier": 21612,
    "suppressed": 21610,
    "opted_out": 21610,
}
_UNKNOWN_ERROR_CODE = 30008  # Twilio's "unknown error"; the carrier's reply is the error text of the message


def to_status(status: str, reason: str | None, *, was_sent: bool) -> str:
    """Return Twilio's status. A message that was sent but not delivered is "undelivered" instead of "failed"."""
    if status != "failed":
        return status
    return "canceled" if reason == _CANCELED else "undelivered" if was_sent else status


def error_code(reason: Any) -> int:
    return _ERROR_CODE_BY_REASON.get(reason, _UNKNOWN_ERROR_CODE)


def message_sender(id_: str, name: str | None, detail: Mapping[str, Any]) -> str | None:
    """Return a message's sender: the number that the SMS carrier used, if `detail` names one, else `name`."""
    if id_.startswith(PREFIXES["whatsapp"]):
        return name and WHATSAPP + name
    used_sender = str(detail.get(SENDER) or "")
    return name if not used_sender or used_sender.startswith(_SERVICE_ID) else to_e164(used_sender)


def body(event: StoredEvent, team: Team) -> bytes:
    data, prefix = event_data(event), WHATSAPP if event.type.startswith("whatsapp.") else ""
    origin: dict[str, str] = data.get("origin", {})
    fields = {ACCOUNT: origin.get(ACCOUNT, team.record.id), "ApiVersion": API_VERSION}
    if event.type.endswith(".received"):
        return urlencode(fields | _inbound_fields(data, prefix)).encode()
    if event.record is None:  # a test event, or queued before the webhook's format changed
        return urlencode(fields | {"EventType": event.type}).encode()
    reason = data.get("error", {}).get("reason")
    status = to_status(event.status or "", reason, was_sent=event.previous_status in ("sent", "delivered"))
    fields |= {
        "MessageSid": data["id"],
        "SmsSid": data["id"],
        "From": message_sender(data["id"], data.get("sender_id"), msgspec.json.decode(event.detail or "{}")) or "",
        "To": prefix + data["to"],
        "MessageStatus": status,
        "SmsStatus": status,
    }
    if SERVICE in origin:
        fields[SERVICE] = origin[SERVICE]
    if event.status == "failed" and status != "canceled":
        fields["ErrorCode"] = str(error_code(reason))
    return urlencode(fields).encode()


def _inbound_fields(data: dict[str, Any], prefix: str) -> dict[str, str]:
    """Return the fields of an inbound text in Twilio's format."""
    id_ = data["id"]
    return {
        "MessageSid": id_,
        "SmsSid": id_,
        "SmsMessageSid": id_,
        "From": prefix + data["from"],
        "To": prefix + data["to"],
        "Body": data["text"],
        "NumMedia": "0",
        "NumSegments": "1",
        "SmsStatus": "received",
    }


def sign(signing: SignatureInput) -> dict[str, str]:
    """Sign with the newest secret only, because Twilio's libraries check only one signature."""
    fields = "".join(name + value for name, value in sorted(parse_qsl(signing.body.decode(), keep_blank_values=True)))
    digest = hmac.digest(signing.secrets[0].encode(), (signing.url + fields).encode(), "sha1")
    return {"X-Twilio-Signature": base64.b64encode(digest).decode()}
