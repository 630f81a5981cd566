"""For receivers of webhooks: is this request from Heliograph, and is it fresh? The standard library is enough."""

import base64
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

_PREFIX = "whsec_"
_TIME = re.compile("[0-9]{1,15}")


class WebhookRefused(ValueError):
    """Do not trust this request; answer 400."""


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance_s: float = 300,
    now: float | None = None,
) -> dict[str, Any]:
    """Return the event, or raise WebhookRefused; `body` has the bytes as they came, before anything parses them.

    The Standard Webhooks headers are judged where they are there, else X-Service-Signature: one good signature by
    one of the secrets is enough. A malformed secret is a plain ValueError. `now`: unix seconds, for tests.
    """
    secrets = {one: _key(one) for one in ([secret] if isinstance(secret, str) else secret)}
    given = {name.lower(): value for name, value in headers.items()}
    if "webhook-signature" in given:
        timestamp, good = _standard(body, given, secrets)
    else:
        timestamp, good = _service(body, given, secrets)
    if not good:
        raise WebhookRefused("no signature matches: wrong secret, or the body was changed or parsed on its way")
    age = (time.time() if now is None else now) - int(timestamp)
    if abs(age) > tolerance_s:
        raise WebhookRefused(f"signed {age:.0f} s ago, more than {tolerance_s:g} s: a replay, or a clock is wrong")
    try:
        event = json.loads(body)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise WebhookRefused("the body is signed but is not a JSON object")
    return event


def _standard(body: bytes, headers: Mapping[str, str], secrets: Mapping[str, bytes]) -> tuple[str, bool]:
    id_, timestamp = headers.get("webhook-id", ""), _time(headers.get("webhook-timestamp", ""), "webhook-timestamp")
    text = f"{id_}.{timestamp}.".encode("utf-8", "surrogateescape") + body
    right = [base64.b64encode(_sign(key, text)) for key in secrets.values()]
    found = [one[3:] for one in headers["webhook-signature"].split(" ") if one.startswith("v1,")]
    return timestamp, _any_equal(found, right)


def _service(body: bytes, headers: Mapping[str, str], secrets: Mapping[str, bytes]) -> tuple[str, bool]:
    if "x-service-signature" not in headers:
        raise WebhookRefused("not signed: neither webhook-signature nor X-Service-Signature is there")
    parts = [part.partition("=") for part in headers["x-service-signature"].split(",")]
    times = [value for name, _, value in parts if name == "t"]
    timestamp = _time(times[0] if len(times) == 1 else "", "t of X-Service-Signature")
    text = f"{timestamp}.".encode() + body
    right = [_sign(secret.encode(), text).hex().encode() for secret in secrets]
    return timestamp, _any_equal([value for name, _, value in parts if name == "v1"], right)


def _time(text: str, name: str) -> str:
    if not _TIME.fullmatch(text):
        raise WebhookRefused(f"{name} is missing or no time in unix seconds")
    return text


def _key(secret: str) -> bytes:
    """Return the key. An empty secret, such as an environment variable that is not set, would let anyone sign."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_PREFIX) or not key:
        raise ValueError(f"a webhook secret is {_PREFIX} and base64 after it")
    return key


def _sign(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _any_equal(found: Sequence[str], right: Sequence[bytes]) -> bool:
    """Compare every pair: the time says nothing about which one fits."""
    pairs = [hmac.compare_digest(one.encode("utf-8", "replace"), other) for one in found for other in right]
    return any(pairs)
