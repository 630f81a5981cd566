"""Events of messages as Twilio calls back: a form, signed with its URL by HMAC-SHA1 (compat.md)."""

import base64
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from heliograph.domain.delivery.outcome import SENDER, Own
from heliograph.domain.events import TYPES as OURS
from heliograph.domain.events import StoredEvent, event_data
from heliograph.domain.ids import PREFIXES
from heliograph.domain.phones.phone import to_e164
from heliograph.domain.setup.records import Team
from heliograph.webhooks.policy.signature import Signing

CONTENT_TYPE = "application/x-www-form-urlencoded"
ACCOUNT = "AccountSid"  # in the origin of a message that came in Twilio's shape: whose it is
SERVICE = "MessagingServiceSid"  # beside it: what the caller named
WHATSAPP = "whatsapp:"  # before a number
API_VERSION = "2010-04-01"
TYPES = tuple(name for name in OURS if name.startswith(("sms.", "whatsapp.")))
_SERVICE_ID = "MG"  # begins the id of a messaging service of Twilio's, which chooses the sender itself
_CANCELED: Own = "canceled"
_CODES: dict[Own, int] = {"expired": 30036, "no_carrier": 21612, "suppressed": 21610, "opted_out": 21610}
_UNKNOWN = 30008  # "unknown error": what the carrier said is in the message's own words


def to_status(status: str, reason: str | None, *, was_sent: bool) -> str:
    """Return Twilio's word: what a carrier took and could not deliver did not fail, it is undelivered."""
    if status != "failed":
        return status
    return "canceled" if reason == _CANCELED else "undelivered" if was_sent else status


def error_code(reason: Any) -> int:
    return _CODES.get(reason, _UNKNOWN)


def sender(id_: str, name: str | None, detail: Mapping[str, Any]) -> str | None:
    """Return the sender of a message: an SMS carrier's own, if `detail` names it; None for older records."""
    if id_.startswith(PREFIXES["whatsapp"]):
        return name and WHATSAPP + name
    used = str(detail.get(SENDER) or "")
    return name if not used or used.startswith(_SERVICE_ID) else to_e164(used)


def body(event: StoredEvent, team: Team) -> bytes:
    own, prefix = event_data(event), WHATSAPP if event.type.startswith("whatsapp.") else ""
    origin: dict[str, str] = own.get("origin", {})
    told = {ACCOUNT: origin.get(ACCOUNT, team.record.id), "ApiVersion": API_VERSION}
    if event.type.endswith(".received"):
        return urlencode(told | _received(own, prefix)).encode()
    if event.record is None:  # a test, or what waited while the format changed
        return urlencode(told | {"EventType": event.type}).encode()
    reason = own.get("error", {}).get("reason")
    status = to_status(event.status or "", reason, was_sent=event.previous_status in ("sent", "delivered"))
    told |= {
        "MessageSid": own["id"],
        "SmsSid": own["id"],
        "From": sender(own["id"], own.get("sender_id"), msgspec.json.decode(event.detail or "{}")) or "",
        "To": prefix + own["to"],
        "MessageStatus": status,
        "SmsStatus": status,
    }
    if SERVICE in origin:
        told[SERVICE] = origin[SERVICE]
    if event.status == "failed" and status != "canceled":
        told["ErrorCode"] = str(error_code(reason))
    return urlencode(told).encode()


def _received(own: dict[str, Any], prefix: str) -> dict[str, str]:
    """Tell of a text that came in as Twilio does."""
    id_ = own["id"]
    return {
        "MessageSid": id_,
        "SmsSid": id_,
        "SmsMessageSid": id_,
        "From": prefix + own["from"],
        "To": prefix + own["to"],
        "Body": own["text"],
        "NumMedia": "0",
        "NumSegments": "1",
        "SmsStatus": "received",
    }


def sign(signing: Signing) -> dict[str, str]:
    """Sign with the newest secret: its libraries look at one signature."""
    fields = "".join(name + value for name, value in sorted(parse_qsl(signing.body.decode(), keep_blank_values=True)))
    digest = hmac.digest(signing.secrets[0].encode(), (signing.url + fields).encode(), "sha1")
    return {"X-Twilio-Signature": base64.b64encode(digest).decode()}
