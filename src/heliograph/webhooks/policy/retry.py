"""Retry policy of webhook deliveries: responses, the retry schedule, and when to disable an endpoint (contract 10)."""

from typing import Literal

from heliograph.domain.ids import parse_date_header
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

RETRY_DELAYS_MS = (  # delay in ms after the 1st, 2nd, … attempt; ten attempts in total
    *(5 * SECOND_MS, 5 * MINUTE_MS, 30 * MINUTE_MS),
    *(2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 14 * HOUR_MS, 20 * HOUR_MS, 24 * HOUR_MS),
)
JITTER = 0.2
# minimum time from the first attempt to permanent failure, for endpoints that request short delays with Retry-After
RETRY_PERIOD_MIN_MS = 60 * HOUR_MS
RETRY_AFTER_MAX_MS = RETRY_DELAYS_MS[-1]
FAILING_DAYS = 5

# why a request has no response
NoResponseReason = Literal[
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
    "no_secret",  # there is no secret to sign the event with
    "own_fault",
]
# reasons with which the endpoint may have received the request
MAYBE_ARRIVED: tuple[NoResponseReason, ...] = ("too_slow", "broke_off", "not_http")

# `gone`: the endpoint must be disabled
Verdict = Literal["delivered", "failed", "gone"]


def classify_response(status: int | None) -> Verdict:
    """Classify a response by its status; None if there was no response."""
    if status is None:
        return "failed"
    if 200 <= status <= 299:
        return "delivered"
    return "gone" if status == 410 else "failed"


def retry_after_s(status: int, retry_after: str | None, date: str | None) -> int | None:
    """Return the delay in seconds that the endpoint requests; None if it requests none.

    A date in Retry-After is compared with the response's Date header.
    """
    if status not in (429, 503) or not retry_after:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        return int(retry_after[:9])
    until, now = parse_date_header(retry_after), parse_date_header(date or "")
    return None if until is None or now is None else max(0, until - now) // SECOND_MS


def next_attempt(attempt: int, first_at: int, now: int, jitter: float, retry_after_s: int | None = None) -> int | None:
    """Return when to try again after attempt number `attempt` (from 1); None if the delivery has failed permanently.

    Retry-After replaces the delay of the schedule, so the ten attempts may take only minutes. Until
    RETRY_PERIOD_MIN_MS, the last delay is then repeated, and Retry-After can only lengthen it.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    is_past_schedule = attempt > len(RETRY_DELAYS_MS)
    if is_past_schedule and now - first_at >= RETRY_PERIOD_MIN_MS:
        return None
    delay_ms = round(RETRY_DELAYS_MS[min(attempt, len(RETRY_DELAYS_MS)) - 1] * (1 + JITTER * jitter))
    if retry_after_s is None:
        return now + delay_ms
    requested_ms = min(retry_after_s * SECOND_MS, RETRY_AFTER_MAX_MS)
    return now + (max(requested_ms, delay_ms) if is_past_schedule else requested_ms)


def has_failed_too_long(failing_since: int, now: int) -> bool:
    """Return whether all attempts to the endpoint have failed for FAILING_DAYS, so that it must be disabled."""
    return now - failing_since >= FAILING_DAYS * DAY_MS
