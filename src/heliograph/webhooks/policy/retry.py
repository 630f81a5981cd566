"""What an endpoint's answer means, when an event is told again, and when it is given up (contract 10)."""

from typing import Literal

from heliograph.domain.ids import parse_date_header
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

STEPS = (  # ms to wait after the 1st, 2nd, … attempt: ten attempts in all
    *(5 * SECOND_MS, 5 * MINUTE_MS, 30 * MINUTE_MS),
    *(2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 14 * HOUR_MS, 20 * HOUR_MS, 24 * HOUR_MS),
)
JITTER = 0.2
LEAST_MS = 60 * HOUR_MS  # all steps at their shortest last longer: only Retry-After gets to ten attempts sooner
WISH_MAX_MS = STEPS[-1]
FAILING_DAYS = 5

# Why a request has no answer.
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
    "not_kept",  # the event
    "no_secret",  # that could sign it
    "own_fault",
]
MAYBE_ARRIVED: tuple[Silence, ...] = ("too_slow", "broke_off", "not_http")

# gone: the endpoint is disabled.
Verdict = Literal["delivered", "failed", "gone"]


def verdict(status: int | None) -> Verdict:
    """Judge an answer; `status` is None when there was no answer."""
    if status is None:
        return "failed"
    if 200 <= status <= 299:
        return "delivered"
    return "gone" if status == 410 else "failed"


def retry_after_s(status: int, retry_after: str | None, date: str | None) -> int | None:
    """Return the wait that an endpoint asks for; a time of day is read by the endpoint's own clock, its Date."""
    if status not in (429, 503) or not retry_after:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        return int(retry_after[:9])
    until, now = parse_date_header(retry_after), parse_date_header(date or "")
    return None if until is None or now is None else max(0, until - now) // SECOND_MS


def next_attempt(attempt: int, first_at: int, now: int, jitter: float, retry_after_s: int | None = None) -> int | None:
    """Return the time of the next attempt after attempt number `attempt` (from 1); None when the event is given up.

    Retry-After replaces a step, so that ten attempts can be over in minutes; then the last step is repeated until the
    time is over as well, and Retry-After can only lengthen it.
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
    """Tell whether nothing but failures came since then, and it is time to disable the endpoint."""
    return now - failing_since >= FAILING_DAYS * DAY_MS
