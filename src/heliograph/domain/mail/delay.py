"""An email that was put off: when that is told, and what (contract 17)."""

from heliograph.domain.delivery.retry import SCHEDULES
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import MINUTE_MS

TOLD_MS = 5 * MINUTE_MS  # after it was put off first


def told_delay(
    since: int, next_at: int | None = None, first_at: int | None = None, expires_at: int | None = None
) -> dict[str, str | None]:
    """Describe a delay; `next_at` and `first_at` are of our
    own tries; None: a provider tries, who does not say when.
    """
    if next_at is None or first_at is None:
        return {"since": timestamp(since), "next_attempt_at": None, "gives_up_at": None}
    ends = first_at + SCHEDULES["email"].window
    return {
        "since": timestamp(since),
        "next_attempt_at": timestamp(next_at),
        "gives_up_at": timestamp(min(ends, expires_at or ends)),
    }
