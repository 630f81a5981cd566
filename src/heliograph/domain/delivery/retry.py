"""Retry schedule of deferred messages, and when a message fails permanently."""

import msgspec

from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.setup.records import Channel

JITTER = 0.1
# A domain counts as nonexistent when a second report, from any source, follows after this time (contract 6).
ABSENT_CONFIRMATION_MS = 15 * MINUTE_MS
ABSENT_RETENTION_MS = 5 * DAY_MS  # an older report is discarded, so that the next report counts as the first


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[int, ...]  # ms to wait after the 1st, 2nd, … attempt; the last step repeats
    window: int  # ms from the first attempt until the message fails permanently


_PHONE_SCHEDULE = Schedule(
    steps=(2 * SECOND_MS, 10 * SECOND_MS, 30 * SECOND_MS, 2 * MINUTE_MS, 10 * MINUTE_MS),
    window=15 * MINUTE_MS,
)

SCHEDULE_BY_CHANNEL: dict[Channel, Schedule] = {
    "email": Schedule(
        steps=(
            1 * MINUTE_MS,
            5 * MINUTE_MS,
            15 * MINUTE_MS,
            30 * MINUTE_MS,
            1 * HOUR_MS,
            2 * HOUR_MS,
            4 * HOUR_MS,
        ),
        window=5 * DAY_MS,
    ),
    "sms": _PHONE_SCHEDULE,
    "whatsapp": _PHONE_SCHEDULE,
}


def absent_confirmation_wait(first_at: int | None, now: int) -> int:
    """Return the ms until a second report can confirm that a domain does not exist; 0 if a report now confirms it."""
    return ABSENT_CONFIRMATION_MS if first_at is None else max(0, first_at + ABSENT_CONFIRMATION_MS - now)


def hold_until(channel: Channel, first_at: int, now: int, retry_at: int) -> int | None:
    """Return until when a message waits that no carrier could take: `retry_at` at most; None if it fails permanently.

    Holding is not an attempt, but the retry window starts at the first attempt or the first hold.
    """
    deadline = first_at + SCHEDULE_BY_CHANNEL[channel].window
    return min(retry_at, deadline) if now < deadline else None


def next_attempt(
    channel: Channel,
    attempt: int,
    first_at: int,
    now: int,
    jitter: float,
    retry_after_ms: int | None = None,
) -> int | None:
    """Return the time of the next attempt; None if the message fails permanently.

    `attempt`: number of the last attempt, from 1. The carrier's Retry-After replaces the scheduled wait. A Retry-After
    past the end of the retry window is shortened to the end of the window instead of failing the message, because
    another carrier may serve the last attempt.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    schedule = SCHEDULE_BY_CHANNEL[channel]
    deadline = first_at + schedule.window
    if retry_after_ms is not None:
        return min(now + max(0, retry_after_ms), deadline) if now < deadline else None
    step = schedule.steps[min(attempt, len(schedule.steps)) - 1]
    next_at = now + round(step * (1 + JITTER * jitter))
    return next_at if next_at <= deadline else None
