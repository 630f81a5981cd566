"""Counts emails sent and complaints by team, source and mailbox provider."""

import msgspec

from heliograph.domain.limits import DAY_MS
from heliograph.domain.mail.mailbox_provider import OTHER
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database


class ComplaintRate(msgspec.Struct, frozen=True):
    """Emails sent and complaints of one team, source and mailbox provider."""

    team: int
    source: str  # category, template id, or `direct`
    provider: str
    sends: int
    complaints: int


class ComplaintRates:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def read(self, days: int) -> list[ComplaintRate]:
        """Return the totals for today and the previous `days` days."""
        now = self._clock.now()
        since = now - now % DAY_MS - days * DAY_MS
        rows = await self._database.read(lambda tx: tx.run("complaint_rates", since=since))
        return [ComplaintRate(*row) for row in rows]

    async def count_unattributed(self, team: int, source: str) -> None:
        """Count a complaint that names neither a message nor a recipient."""
        now = self._clock.now()
        row = (team, now - now % DAY_MS, source, OTHER, 0, 1)
        await self._database.write(lambda tx: tx.run("count_complaint_rates", counts=[row]))
