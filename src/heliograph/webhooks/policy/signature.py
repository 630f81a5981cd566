"""Headers that authenticate an event: X-Service-Signature and Standard Webhooks, from one secret.

Standard Webhooks evolved from Svix, whose libraries expect the same values in `svix-` headers.
"""

import hmac
from collections.abc import Mapping, Sequence

import msgspec
import pybase64

from heliograph.domain.text import whole_number

PREFIX = "whsec_"
SHA256 = "sha256"
TOLERANCE_S = 300  # allowed clock difference of a request
ENTROPY_MIN = 24  # bytes; the minimum of Standard Webhooks


class Signing(msgspec.Struct, frozen=True, kw_only=True):
    """Input of a signature."""

    secrets: Sequence[str]  # current and, during a rotation, previous
    event: str  # event id
    t: int  # Unix seconds of this attempt
    body: bytes
    url: str = ""
    key: str = ""  # the webhook's private key as PEM, for formats with key pairs


def make_secret(entropy: bytes) -> str:
    if len(entropy) < ENTROPY_MIN:
        raise ValueError(f"a secret needs {ENTROPY_MIN} random bytes, not {len(entropy)}")
    return PREFIX + pybase64.b64encode(entropy).decode()


def headers(secrets: Sequence[str], event_id: str, t: int, body: bytes) -> dict[str, str]:
    """Return the signature headers, signed with every secret (two during a rotation).

    `t`: Unix seconds of this attempt.
    """
    signing = Signing(secrets=secrets, event=event_id, t=t, body=body)
    return service_header(signing) | standard_headers(signing)


def service_header(signing: Signing) -> dict[str, str]:
    """Return the signature header that every webhook request carries (spec 6)."""
    signed = b"%d.%b" % (signing.t, signing.body)
    parts = [f"t={signing.t}"]
    for secret in signing.secrets:
        parts.append(f"v1={hmac.digest(secret.encode(), signed, SHA256).hex()}")
    return {"X-Service-Signature": ",".join(parts)}


def standard_headers(signing: Signing) -> dict[str, str]:
    """Return the headers of Standard Webhooks, also under Svix's names."""
    signed = b"%b.%d.%b" % (signing.event.encode(), signing.t, signing.body)
    parts = []
    for secret in signing.secrets:
        key = pybase64.b64decode(secret.removeprefix(PREFIX), validate=True)
        parts.append(f"v1,{pybase64.b64encode(hmac.digest(key, signed, SHA256)).decode()}")
    time, signature = str(signing.t), " ".join(parts)
    return {
        "webhook-id": signing.event,
        "webhook-timestamp": time,
        "webhook-signature": signature,
        "svix-id": signing.event,
        "svix-timestamp": time,
        "svix-signature": signature,
    }


def is_signed(secrets: Sequence[str], given: Mapping[str, str], body: bytes, now_s: int) -> bool:
    """Return whether a received request has a fresh Standard Webhooks signature made with one of `secrets`."""
    id_, made_s = given.get("webhook-id", ""), whole_number(given.get("webhook-timestamp", ""), 11)
    if made_s is None or abs(now_s - made_s) > TOLERANCE_S:
        return False
    right = [headers([secret], id_, made_s, body)["webhook-signature"] for secret in secrets]
    found = given.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(one.encode(), other.encode()) for one in found for other in right)
