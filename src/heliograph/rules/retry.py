"""When a deferred message is tried again, and when it is given up (reliability, choices)."""

import msgspec

from heliograph.rules.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.rules.setup.records import Channel

JITTER = 0.1
ABSENT_MS = 15 * MINUTE_MS  # a domain that does not exist is asked for again after this, before it counts


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[int, ...]  # ms to wait after the 1st, 2nd, … attempt; the last one repeats
    window: int  # ms from the first attempt until the message is given up


_PHONE = Schedule(
    steps=(2 * SECOND_MS, 10 * SECOND_MS, 30 * SECOND_MS, 2 * MINUTE_MS, 10 * MINUTE_MS),
    window=15 * MINUTE_MS,
)

SCHEDULES: dict[Channel, Schedule] = {
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
    "sms": _PHONE,
    "whatsapp": _PHONE,
}


def next_attempt(
    channel: Channel,
    attempt: int,
    first_at: int,
    now: int,
    jitter: float,
    retry_after_ms: int | None = None,
) -> int | None:
    """The time of the next attempt after attempt number `attempt` (from 1); None when it is given up.

    A carrier's own wish replaces the step. It is cut to the end of the window rather than taken as the end,
    because another carrier may serve the last attempt.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    schedule = SCHEDULES[channel]
    deadline = first_at + schedule.window
    if retry_after_ms is not None:
        return min(now + max(0, retry_after_ms), deadline) if now < deadline else None
    step = schedule.steps[min(attempt, len(schedule.steps)) - 1]
    at = now + round(step * (1 + JITTER * jitter))
    return at if at <= deadline else None
