"""The headers that authenticate an event: our own signature and that of Standard Webhooks, from one secret.

Standard Webhooks grew out of Svix, whose libraries look for the same values under their own names.
"""

import hmac
from collections.abc import Mapping, Sequence

import pybase64

from heliograph.rules.text import whole_number

PREFIX = "whsec_"
SHA256 = "sha256"
TOLERANCE_S = 300  # of a request's clock
ENTROPY_MIN = 24  # bytes; the minimum of Standard Webhooks


def make_secret(entropy: bytes) -> str:
    if len(entropy) < ENTROPY_MIN:
        raise ValueError(f"a secret needs {ENTROPY_MIN} random bytes, not {len(entropy)}")
    return PREFIX + pybase64.b64encode(entropy).decode()


def headers(secrets: Sequence[str], event_id: str, t: int, body: bytes) -> dict[str, str]:
    """Sign with every secret, as during a rotation there are two; `t` has the Unix seconds of this attempt."""
    return service_header(secrets, t, body) | standard_headers(secrets, event_id, t, body)


def service_header(secrets: Sequence[str], t: int, body: bytes) -> dict[str, str]:
    """Return the signature header that every webhook request carries (spec 6)."""
    signed = b"%d.%b" % (t, body)
    v1 = [f"v1={hmac.digest(secret.encode(), signed, SHA256).hex()}" for secret in secrets]
    return {"X-Service-Signature": ",".join([f"t={t}", *v1])}


def standard_headers(secrets: Sequence[str], event_id: str, t: int, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks, also under Svix's names."""
    signed = b"%b.%d.%b" % (event_id.encode(), t, body)
    keys = [pybase64.b64decode(secret.removeprefix(PREFIX), validate=True) for secret in secrets]
    digests = [hmac.digest(key, signed, SHA256) for key in keys]
    time, signature = str(t), " ".join([f"v1,{pybase64.b64encode(digest).decode()}" for digest in digests])
    return {
        "webhook-id": event_id,
        "webhook-timestamp": time,
        "webhook-signature": signature,
        "svix-id": event_id,
        "svix-timestamp": time,
        "svix-signature": signature,
    }


def is_signed(secrets: Sequence[str], given: Mapping[str, str], body: bytes, now_s: int) -> bool:
    """Tell whether a request to us has the headers of Standard Webhooks, fresh and made with one of these secrets."""
    id_, made_s = given.get("webhook-id", ""), whole_number(given.get("webhook-timestamp", ""), 11)
    if made_s is None or abs(now_s - made_s) > TOLERANCE_S:
        return False
    right = [standard_headers([secret], id_, made_s, body)["webhook-signature"] for secret in secrets]
    found = given.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(one.encode(), other.encode()) for one in found for other in right)
