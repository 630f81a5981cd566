"""Decisions of operators, stored until the person who made the request has seen them."""

import msgspec

from heliograph.domain.limits import DAY_MS
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx

RETENTION_MS = 30 * DAY_MS  # retention of decisions that their requester has not seen
SHOWN_MAX = 5  # decisions shown on the next page that the person opens, oldest first; later pages show the rest


class StoredDecision(msgspec.Struct, frozen=True):
    text: str
    link: str


class Decisions:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, person: str, text: str, link: str) -> None:
        now = self._clock.now()

        async def insert(tx: Tx) -> None:
            await tx.run("delete_decisions_until", person=person, until=now - RETENTION_MS)
            await tx.run("insert_decision", person=person, at=now, text=text, place=link)

        await self._database.write(insert)

    async def take_unseen(self, person: str) -> list[StoredDecision]:
        """Return up to SHOWN_MAX decisions that the person has not seen, and delete these decisions."""
        rows = await self._database.read(lambda tx: tx.run("decisions_of", person=person, most=SHOWN_MAX))
        if rows:  # most page views need no write
            until = max(created_at for created_at, _, _ in rows)
            await self._database.write(lambda tx: tx.run("delete_decisions_until", person=person, until=until))
        return [StoredDecision(text, link) for _, text, link in rows]
