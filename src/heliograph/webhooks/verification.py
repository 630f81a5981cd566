"""Verifies that Heliograph recently signed a webhook request; for receivers, with only the standard library."""

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
    """Raised if a request is not authentic or too old; respond with status 400."""


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance_s: float = 300,
    now: float | None = None,
) -> dict[str, Any]:
    """Return the event, or raise WebhookRefused. `body`: the raw request body, before any parsing.

    Checks the Standard Webhooks headers if present, else X-Service-Signature. One valid signature by one of the secrets
    suffices. A malformed secret raises a plain ValueError. `now`: current Unix seconds, for tests.
    """
    secrets = {text: _decode_key(text) for text in ([secret] if isinstance(secret, str) else secret)}
    lower_headers = {name.lower(): value for name, value in headers.items()}
    if "webhook-signature" in lower_headers:
        timestamp, is_valid = _verify_standard(body, lower_headers, secrets)
    else:
        timestamp, is_valid = _verify_service(body, lower_headers, secrets)
    if not is_valid:
        raise WebhookRefused(
            "no signature matches: the secret is wrong, or the body was changed or parsed before verification"
        )
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


def _verify_standard(body: bytes, headers: Mapping[str, str], secrets: Mapping[str, bytes]) -> tuple[str, bool]:
    id_ = headers.get("webhook-id", "")
    timestamp = _check_timestamp(headers.get("webhook-timestamp", ""), "webhook-timestamp")
    text = f"{id_}.{timestamp}.".encode("utf-8", "surrogateescape") + body
    expected = [base64.b64encode(_sign(key, text)) for key in secrets.values()]
    signatures = [part[3:] for part in headers["webhook-signature"].split(" ") if part.startswith("v1,")]
    return timestamp, _any_equal(signatures, expected)


def _verify_service(body: bytes, headers: Mapping[str, str], secrets: Mapping[str, bytes]) -> tuple[str, bool]:
    if "x-service-signature" not in headers:
        raise WebhookRefused("not signed: there is no webhook-signature or X-Service-Signature header")
    parts = [part.partition("=") for part in headers["x-service-signature"].split(",")]
    times = [value for name, _, value in parts if name == "t"]
    timestamp = _check_timestamp(times[0] if len(times) == 1 else "", "t of X-Service-Signature")
    text = f"{timestamp}.".encode() + body
    expected = [_sign(secret.encode(), text).hex().encode() for secret in secrets]
    return timestamp, _any_equal([value for name, _, value in parts if name == "v1"], expected)


def _check_timestamp(text: str, name: str) -> str:
    if not _TIME.fullmatch(text):
        raise WebhookRefused(f"{name} is missing or not a time in Unix seconds")
    return text


def _decode_key(secret: str) -> bytes:
    """Return the key's bytes; refuse an empty secret (an unset variable), with which anyone could sign."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_PREFIX) or not key:
        raise ValueError(f"a webhook secret is {_PREFIX} followed by base64")
    return key


def _sign(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _any_equal(signatures: Sequence[str], expected: Sequence[bytes]) -> bool:
    """Return whether any signature is an expected one. Compares all pairs, so that the duration reveals nothing."""
    pairs = [
        hmac.compare_digest(signature.encode("utf-8", "replace"), candidate)
        for signature in signatures
        for candidate in expected
    ]
    return any(pairs)
