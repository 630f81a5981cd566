"""Fails messages that reach `expires_at` while they wait in a long queue or because delivery is paused."""

from heliograph.domain.delivery.outcome import local_failure
from heliograph.runtime.clock import Clock
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import ClaimToken, RecipientUpdate

BATCH = 100  # maximum number of messages that one transaction marks as failed
EXPIRED_TEXT = "it was not sent before its expires_at"


class Expiry:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher

    async def fail_expired(self) -> None:
        """Fail expired messages in batches, by each team's clock; none if this process's clock is wrong."""
        if self._clock.clock_error():
            return
        for team, first_expiry in await self._database.read(lambda tx: tx.run("expiring_teams")):
            while self._clock.team_now(team) >= first_expiry and await self._fail_batch(team) == BATCH:
                pass

    async def _fail_batch(self, team: int) -> int:
        team_now, publisher = self._clock.team_now(team), self._publisher

        async def fail_messages(tx: Tx) -> int:
            rows = await tx.run("expired_rows", team=team, now=team_now, limit=BATCH)
            updates = [
                RecipientUpdate(
                    at=team_now,
                    message=message,
                    position=position,
                    target_status="failed",
                    detail=local_failure("expired", EXPIRED_TEXT),
                    claim=ClaimToken(key, epoch),
                )
                for key, epoch, message, position in rows
            ]
            if updates:
                await outcomes.record_updates(tx, updates, owner=None, publisher=publisher)
            return len(rows)

        return await self._database.write(fail_messages)
