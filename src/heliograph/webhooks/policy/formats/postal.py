"""Email events in Postal's format, signed with a key pair per webhook (compat.md)."""

import base64
import hashlib
from functools import lru_cache
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from heliograph.domain.events import DELAYED, StoredEvent, event_data
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.setup.records import Team
from heliograph.webhooks.policy.signature import SignatureInput

BOUNCED = "MessageBounced"
EVENT_BY_TYPE = {  # our event type → Postal's
    "email.delivered": "MessageSent",
    DELAYED: "MessageDelayed",
    "email.failed": "MessageDeliveryFailed",
    "email.bounced": BOUNCED,
}
STATUS_BY_EVENT = {"MessageSent": "Sent", "MessageDelayed": "SoftFail", "MessageDeliveryFailed": "HardFail"}
TAG = "tag"  # name of the tag that holds Postal's single tag
OUTPUT_MAX = 512  # maximum characters of the remote server's reply


def body(event: StoredEvent, team: Team) -> bytes:
    data, event_name, at = event_data(event), EVENT_BY_TYPE.get(event.type, event.type), event.created_at / SECOND_MS
    payload = data
    if event_name == BOUNCED:
        payload = {"original_message": _message(data), "bounce": _bounce(event, data)}
    elif event_name in STATUS_BY_EVENT:
        payload = {
            "message": _message(data),
            "status": STATUS_BY_EVENT[event_name],
            **_reply_fields(data),
            "timestamp": at,
        }
    return msgspec.json.encode({"event": event_name, "timestamp": at, "payload": payload, "uuid": event.id})


def _message(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": data["id"],
        "token": data["id"],
        "direction": "outgoing",
        "message_id": message_id(data["id"], data["from"]),
        "to": data["recipient"],
        "from": data["from"],
        "subject": data["subject"],
        "timestamp": (parse_timestamp(data["created_at"]) or 0) / SECOND_MS,
        "spam_status": "NotChecked",
        "tag": data.get("tags", {}).get(TAG),
    }


def message_id(id_: str, sender: str) -> str:
    return f"{id_}@{sender.rpartition('@')[2].lower()}"


def _bounce(event: StoredEvent, data: dict[str, Any]) -> dict[str, Any]:
    """Return the bounce mail in Postal's format. Its subject is the SMTP reply, because the mail is not stored."""
    id_fields = {"id": event.id, "token": event.id, "direction": "incoming", "message_id": None, "tag": None}
    mail_fields = {"to": data["from"], "from": data["recipient"], "subject": _reply_fields(data)["output"]}
    return id_fields | mail_fields | {"timestamp": event.created_at / SECOND_MS, "spam_status": "NotChecked"}


def _reply_fields(data: dict[str, Any]) -> dict[str, Any]:
    reply_text = (data.get("bounce") or data.get("error") or {}).get("text", "")
    explanation = (data.get("explanation") or {}).get("text", "")
    return {
        "details": explanation or reply_text,
        "output": reply_text[:OUTPUT_MAX],
        "sent_with_ssl": False,
        "time": None,
    }


def sign(signing: SignatureInput) -> dict[str, str]:
    """Sign the body as Postal does: with SHA-256, and with SHA-1 for older receivers; the key id is a header."""
    if not signing.private_key:  # previews in the dashboard have no key
        return dict.fromkeys(("X-Postal-Signature", "X-Postal-Signature-256", "X-Postal-Signature-KID"), "")
    key, key_id = _load_key(signing.private_key)
    sha1, sha256 = (
        base64.b64encode(key.sign(signing.body, PKCS1v15(), hash_)).decode()
        for hash_ in (hashes.SHA1(), hashes.SHA256())
    )
    return {"X-Postal-Signature": sha1, "X-Postal-Signature-256": sha256, "X-Postal-Signature-KID": key_id}


@lru_cache(maxsize=256)
def _load_key(private_pem: str) -> tuple[RSAPrivateKey, str]:
    """Return the private key and its id, computed as Postal's JWK library does.

    Skips validation of the key, which this service has created.
    """
    key = load_pem_private_key(private_pem.encode(), None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("the key is not an RSA key")
    return key, hashlib.sha256(key.public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)).hexdigest()
