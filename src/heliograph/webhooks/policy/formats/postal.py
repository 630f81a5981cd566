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
from heliograph.webhooks.policy.signature import Signing

BOUNCED = "MessageBounced"
TYPES = {  # our type: Postal's event
    "email.delivered": "MessageSent",
    DELAYED: "MessageDelayed",
    "email.failed": "MessageDeliveryFailed",
    "email.bounced": BOUNCED,
}
STATES = {"MessageSent": "Sent", "MessageDelayed": "SoftFail", "MessageDeliveryFailed": "HardFail"}
TAG = "tag"  # our tag that holds Postal's single tag
OUTPUT_MAX = 512  # characters of the remote server's reply


def body(event: StoredEvent, team: Team) -> bytes:
    own, kind, at = event_data(event), TYPES.get(event.type, event.type), event.created_at / SECOND_MS
    payload = own
    if kind == BOUNCED:
        payload = {"original_message": _message(own), "bounce": _bounce(event, own)}
    elif kind in STATES:
        payload = {"message": _message(own), "status": STATES[kind], **_words(own), "timestamp": at}
    return msgspec.json.encode({"event": kind, "timestamp": at, "payload": payload, "uuid": event.id})


def _message(own: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": own["id"],
        "token": own["id"],
        "direction": "outgoing",
        "message_id": message_id(own["id"], own["from"]),
        "to": own["recipient"],
        "from": own["from"],
        "subject": own["subject"],
        "timestamp": (parse_timestamp(own["created_at"]) or 0) / SECOND_MS,
        "spam_status": "NotChecked",
        "tag": own.get("tags", {}).get(TAG),
    }


def message_id(id_: str, sender: str) -> str:
    return f"{id_}@{sender.rpartition('@')[2].lower()}"


def _bounce(event: StoredEvent, own: dict[str, Any]) -> dict[str, Any]:
    """Return Postal's bounce message. The bounce mail itself is not stored; only its text is."""
    about = {"id": event.id, "token": event.id, "direction": "incoming", "message_id": None, "tag": None}
    of = {"to": own["from"], "from": own["recipient"], "subject": _words(own)["output"]}
    return about | of | {"timestamp": event.created_at / SECOND_MS, "spam_status": "NotChecked"}


def _words(own: dict[str, Any]) -> dict[str, Any]:
    said = (own.get("bounce") or own.get("error") or {}).get("text", "")
    explained = (own.get("explanation") or {}).get("text", "")
    return {"details": explained or said, "output": said[:OUTPUT_MAX], "sent_with_ssl": False, "time": None}


def sign(signing: Signing) -> dict[str, str]:
    """Sign the body as Postal does, with SHA-256, with SHA-1 for older receivers, and with the key id."""
    if not signing.key:  # previews are shown without a key
        return dict.fromkeys(("X-Postal-Signature", "X-Postal-Signature-256", "X-Postal-Signature-KID"), "")
    key, kid = _opened(signing.key)
    sha1, sha256 = (
        base64.b64encode(key.sign(signing.body, PKCS1v15(), hash_)).decode()
        for hash_ in (hashes.SHA1(), hashes.SHA256())
    )
    return {"X-Postal-Signature": sha1, "X-Postal-Signature-256": sha256, "X-Postal-Signature-KID": kid}


@lru_cache(maxsize=256)
def _opened(private: str) -> tuple[RSAPrivateKey, str]:
    """Return the private key and its id, computed as Postal's JWK library does.

    Skips validation: the key was encrypted by us.
    """
    key = load_pem_private_key(private.encode(), None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("the key is no RSA key")
    return key, hashlib.sha256(key.public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)).hexdigest()
