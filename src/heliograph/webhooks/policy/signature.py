"""Headers that authenticate an event: X-Service-Signature and Standard Webhooks, with the same secret.

Svix's libraries expect the headers of Standard Webhooks under names that begin with `svix-`.
"""

import hmac
from collections.abc import Mapping, Sequence

import msgspec
import pybase64

from heliograph.domain.text import parse_int

PREFIX = "whsec_"
SHA256 = "sha256"
TOLERANCE_S = 300  # maximum difference between a request's timestamp and the receiver's clock
ENTROPY_MIN = 24  # minimum bytes, as in Standard Webhooks


class SignatureInput(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a format signs or adds to its signature headers."""

    secrets: Sequence[str]  # the current secret and, during a rotation, the previous one
    event_id: str
    timestamp_s: int  # Unix seconds of this attempt
    body: bytes
    url: str = ""
    private_key: str = ""  # the webhook's private key as PEM, for formats with key pairs


def make_secret(entropy: bytes) -> str:
    if len(entropy) < ENTROPY_MIN:
        raise ValueError(f"a secret needs {ENTROPY_MIN} random bytes, not {len(entropy)}")
    return PREFIX + pybase64.b64encode(entropy).decode()


def signature_headers(secrets: Sequence[str], event_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers, with a signature by each of `secrets`. `timestamp_s`: time of this delivery attempt."""
    signing = SignatureInput(secrets=secrets, event_id=event_id, timestamp_s=timestamp_s, body=body)
    return service_header(signing) | standard_headers(signing)


def service_header(signing: SignatureInput) -> dict[str, str]:
    """Return the header that signs every webhook request (spec 6)."""
    signed_data = b"%d.%b" % (signing.timestamp_s, signing.body)
    parts = [f"t={signing.timestamp_s}"]
    for secret in signing.secrets:
        parts.append(f"v1={hmac.digest(secret.encode(), signed_data, SHA256).hex()}")
    return {"X-Service-Signature": ",".join(parts)}


def standard_headers(signing: SignatureInput) -> dict[str, str]:
    """Return the headers of Standard Webhooks, each also under Svix's name."""
    signed_data = b"%b.%d.%b" % (signing.event_id.encode(), signing.timestamp_s, signing.body)
    parts = []
    for secret in signing.secrets:
        key = pybase64.b64decode(secret.removeprefix(PREFIX), validate=True)
        parts.append(f"v1,{pybase64.b64encode(hmac.digest(key, signed_data, SHA256)).decode()}")
    timestamp, signature = str(signing.timestamp_s), " ".join(parts)
    return {
        "webhook-id": signing.event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature,
        "svix-id": signing.event_id,
        "svix-timestamp": timestamp,
        "svix-signature": signature,
    }


def is_signed(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: int) -> bool:
    """Return whether a received request has a valid, recent Standard Webhooks signature by one of `secrets`."""
    id_, signed_at_s = headers.get("webhook-id", ""), parse_int(headers.get("webhook-timestamp", ""), 11)
    if signed_at_s is None or abs(now_s - signed_at_s) > TOLERANCE_S:
        return False
    expected = [signature_headers([secret], id_, signed_at_s, body)["webhook-signature"] for secret in secrets]
    signatures = headers.get("webhook-signature", "").split(" ")
    return any(
        hmac.compare_digest(signature.encode(), candidate.encode())
        for signature in signatures
        for candidate in expected
    )
