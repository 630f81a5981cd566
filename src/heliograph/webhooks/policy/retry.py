"""Retry policy of webhook deliveries: meaning of a response, retry schedule, and when to stop (contract 10)."""

from typing import Literal

from heliograph.domain.ids import parse_date_header
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

STEPS = (  # ms to wait after the 1st, 2nd, … attempt: ten attempts in total
    *(5 * SECOND_MS, 5 * MINUTE_MS, 30 * MINUTE_MS),
    *(2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 14 * HOUR_MS, 20 * HOUR_MS, 24 * HOUR_MS),
)
JITTER = 0.2
LEAST_MS = 60 * HOUR_MS  # below the sum of the shortest steps: only Retry-After reaches ten attempts sooner
WISH_MAX_MS = STEPS[-1]
FAILING_DAYS = 5

# Why a request got no response.
Silence = Literal[
    "bad_url",
    "private_address",
    "no_address",
    "dns_silent",
    "no_connection",
    "certificate_expired",
    "tls_failed",
    "too_slow",
    "broke_off",
    "not_http",
    "not_kept",  # the event is no longer stored
    "no_secret",  # no secret to sign the event with
    "own_fault",
]
MAYBE_ARRIVED: tuple[Silence, ...] = ("too_slow", "broke_off", "not_http")

# gone: the endpoint must be disabled.
Verdict = Literal["delivered", "failed", "gone"]


def verdict(status: int | None) -> Verdict:
    """Classify a response status; None means no response."""
    if status is None:
        return "failed"
    if 200 <= status <= 299:
        return "delivered"
    return "gone" if status == 410 else "failed"


def retry_after_s(status: int, retry_after: str | None, date: str | None) -> int | None:
    """Return the wait in seconds that the endpoint requests.

    A Retry-After date is relative to the response's Date header.
    """
    if status not in (429, 503) or not retry_after:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        return int(retry_after[:9])
    until, now = parse_date_header(retry_after), parse_date_header(date or "")
    return None if until is None or now is None else max(0, until - now) // SECOND_MS


def next_attempt(attempt: int, first_at: int, now: int, jitter: float, retry_after_s: int | None = None) -> int | None:
    """Return the time of the attempt after attempt number `attempt` (from 1); None when the delivery fails permanently.

    Retry-After replaces a step, so ten attempts can finish within minutes. In that case the last step repeats until
    LEAST_MS has passed, and Retry-After can only lengthen it.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    used_up = attempt > len(STEPS)
    if used_up and now - first_at >= LEAST_MS:
        return None
    step = round(STEPS[min(attempt, len(STEPS)) - 1] * (1 + JITTER * jitter))
    if retry_after_s is None:
        return now + step
    wish = min(retry_after_s * SECOND_MS, WISH_MAX_MS)
    return now + (max(wish, step) if used_up else wish)


def is_dead(failing_since: int, now: int) -> bool:
    """Return whether the endpoint has only failed for FAILING_DAYS and must be disabled."""
    return now - failing_since >= FAILING_DAYS * DAY_MS
