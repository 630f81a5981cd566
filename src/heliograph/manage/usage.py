"""Usage of a team in a month: what it sent by channel, and what it was charged."""

import re
from datetime import UTC, datetime

import msgspec

from heliograph.domain.limits import SECOND_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import Charge, month_of
from heliograph.domain.setup.records import CHANNELS
from heliograph.domain.text import quoted
from heliograph.manage.teams import get_team
from heliograph.storage.stats import StateCounts
from heliograph.storage.store import Store

_MONTH = re.compile(r"(2[0-9]{3})-(0[1-9]|1[0-2])", re.ASCII)


class MonthlyUsage(msgspec.Struct, frozen=True, kw_only=True):
    month: str  # UTC, such as 2026-11
    counts: dict[str, StateCounts]  # message counts by channel
    charges: dict[str, Charge]  # charges by kind of message
    # emails counted against the monthly quota; None for months before the last one in which the team sent emails
    quota_used: int | None


async def read_usage(store: Store, team: str, month: str | None = None) -> MonthlyUsage:
    """Return a team's usage in a month; by default the current month. Raises InvalidRequest if the month is invalid."""
    ref = get_team(store.setup.current, team).record.ref
    current_month = month_of(store.clock.team_now(ref))
    month = current_month if month is None else month
    since, until = _month_range(month)
    counts = await store.stats.usage(ref, since, until)
    spend = await store.ledger.get_spend(ref, month)
    account = await store.ledger.get_account(ref)
    used = account.used if account.month == month else 0 if month == current_month else None
    return MonthlyUsage(
        month=month,
        counts={channel: counts.get(channel, StateCounts()) for channel in CHANNELS},
        charges={kind: charge for (spend_month, kind), charge in sorted(spend.charges.items()) if spend_month == month},
        quota_used=used,
    )


def _month_range(month: str) -> tuple[int, int]:
    """Return the start of the month and the start of the next month, in ms."""
    match = _MONTH.fullmatch(month)
    if not match:
        raise InvalidRequest(f"month must be a month such as 2026-11, not {quoted(month)}.", param="month")
    number = int(match[1]) * 12 + int(match[2]) - 1
    starts = (datetime(index // 12, index % 12 + 1, 1, tzinfo=UTC) for index in (number, number + 1))
    since, until = (int(start.timestamp()) * SECOND_MS for start in starts)
    return since, until
