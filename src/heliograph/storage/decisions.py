"""Decisions of operators, stored until the requester has seen them."""

import msgspec

from heliograph.domain.limits import DAY_MS
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx

KEPT_MS = 30 * DAY_MS
SHOWN = 5  # decisions per page, oldest first; the next page shows the rest


class ToldDecision(msgspec.Struct, frozen=True):
    text: str
    place: str


class Decisions:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def tell(self, person: str, text: str, place: str) -> None:
        now = self._clock.now()

        async def story(tx: Tx) -> None:
            await tx.run("forget_decisions", person=person, until=now - KEPT_MS)
            await tx.run("insert_decision", person=person, at=now, text=text, place=place)

        await self._database.write(story)

    async def take(self, person: str) -> list[ToldDecision]:
        """Return up to SHOWN decisions that the person has not seen, and delete these decisions."""
        rows = await self._database.read(lambda tx: tx.run("decisions_of", person=person, most=SHOWN))
        if rows:  # most page views need no write
            until = max(at for at, _, _ in rows)
            await self._database.write(lambda tx: tx.run("forget_decisions", person=person, until=until))
        return [ToldDecision(text, place) for _, text, place in rows]
