"""Fails messages that reach `expires_at` while waiting in a long queue or because delivery is paused."""

from heliograph.domain.delivery.outcome import own
from heliograph.runtime.clock import Clock
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import Change, HeldClaim

BATCH = 100  # maximum messages failed in one transaction
TOO_LATE = "it was not handed over before its expires_at"


class Expiry:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher

    async def fail_expired(self) -> None:
        """Fail expired messages in batches, by each team's clock. Does nothing while the clocks disagree."""
        if self._clock.off():
            return
        for team, first_at in await self._database.read(lambda tx: tx.run("expiring_teams")):
            while self._clock.of(team) >= first_at and await self._fail_batch(team) == BATCH:
                pass

    async def _fail_batch(self, team: int) -> int:
        now, publisher = self._clock.of(team), self._publisher

        async def fail(tx: Tx) -> int:
            rows = await tx.run("expired_rows", team=team, now=now, limit=BATCH)
            changes = [
                Change(
                    at=now,
                    message=message,
                    position=position,
                    wanted="failed",
                    detail=own("expired", TOO_LATE),
                    claim=HeldClaim(key, epoch),
                )
                for key, epoch, message, position in rows
            ]
            if changes:
                await outcomes.record(tx, changes, owner=None, publisher=publisher)
            return len(rows)

        return await self._database.write(fail)
