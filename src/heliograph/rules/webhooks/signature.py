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
    service = b"%d.%b" % (t, body)
    standard = b"%b.%b" % (event_id.encode(), service)
    v1, v1_standard = [f"t={t}"], []
    for secret in secrets:
        shared = pybase64.b64decode(secret.removeprefix(PREFIX), validate=True)
        v1.append(f"v1={hmac.digest(secret.encode(), service, SHA256).hex()}")
        v1_standard.append(f"v1,{pybase64.b64encode(hmac.digest(shared, standard, SHA256)).decode()}")
    time, signature = str(t), " ".join(v1_standard)
    return {
        "X-Service-Signature": ",".join(v1),
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
    right = [headers([secret], id_, made_s, body)["webhook-signature"] for secret in secrets]
    found = given.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(one.encode(), other.encode()) for one in found for other in right)
