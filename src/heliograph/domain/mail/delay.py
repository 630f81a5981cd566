"""Delayed emails: when `email.delayed` is published, and its data (contract 17)."""

from heliograph.domain.delivery.retry import SCHEDULE_BY_CHANNEL
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import MINUTE_MS

DELAY_EVENT_AFTER_MS = 5 * MINUTE_MS  # `email.delayed` is published this long after the first deferral


def delay_data(
    since: int, next_at: int | None = None, first_at: int | None = None, expires_at: int | None = None
) -> dict[str, str | None]:
    """Return the data of a delay. `next_at` and `first_at` are None if a provider retries on an unknown schedule."""
    if next_at is None or first_at is None:
        return {"since": timestamp(since), "next_attempt_at": None, "gives_up_at": None}
    deadline = first_at + SCHEDULE_BY_CHANNEL["email"].window
    return {
        "since": timestamp(since),
        "next_attempt_at": timestamp(next_at),
        "gives_up_at": timestamp(min(deadline, expires_at or deadline)),
    }
