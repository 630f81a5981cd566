"""Delayed emails: when `email.delayed` is published, and its data (contract 17)."""

from typing import Annotated

import msgspec

from heliograph.domain.delivery.retry import SCHEDULE_BY_CHANNEL
from heliograph.domain.field_docs import TIME, describe
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import MINUTE_MS

DELAY_EVENT_AFTER_MS = 5 * MINUTE_MS  # `email.delayed` is published this long after the first deferral


class DelayData(msgspec.Struct, frozen=True, kw_only=True):
    since: Annotated[str, describe("When the first attempt was deferred.", **TIME)]
    next_attempt_at: Annotated[
        str | None, describe("When the next attempt is made; null if a provider does not say.", **TIME)
    ] = None
    gives_up_at: Annotated[
        str | None, describe("When the email fails if it is not delivered before; null if unknown.", **TIME)
    ] = None


def delay_data(
    since: int, next_at: int | None = None, first_at: int | None = None, expires_at: int | None = None
) -> DelayData:
    """Return the data of `email.delayed`; `next_at` and `first_at` are None if a provider retries at unknown times."""
    if next_at is None or first_at is None:
        return DelayData(since=timestamp(since))
    deadline = first_at + SCHEDULE_BY_CHANNEL["email"].window
    return DelayData(
        since=timestamp(since),
        next_attempt_at=timestamp(next_at),
        gives_up_at=timestamp(min(deadline, expires_at or deadline)),
    )
