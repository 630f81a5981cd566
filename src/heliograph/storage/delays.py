"""Deferred emails: publishes `email.delayed` once, five minutes after the first deferral (contract 17)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from heliograph.domain.delivery.message_states import is_final
from heliograph.domain.events import DELAYED
from heliograph.domain.mail.delay import told_delay
from heliograph.runtime.clock import Clock
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import Change

PORTION = 100


class Delays:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher

    async def tell_due(self) -> None:
        clock, publisher = self._clock, self._publisher
        while await self._database.read(partial(_any, now=clock.now())):
            if await self._database.write(lambda tx: _tell(tx, clock, publisher)) < PORTION:
                break
        for team in clock.moved:
            if await self._database.read(partial(_any, now=clock.of(team))):
                await self._database.write(partial(_tell, clock=clock, publisher=publisher, team=team))


async def _any(tx: Tx, now: int) -> bool:
    return bool(await tx.run("any_due_delay", now=now))


async def _tell(tx: Tx, clock: Clock, publisher: Publisher, team: int | None = None) -> int:
    """Publish a batch of due delays and return its size.

    `team`: only this team, by its test clock; None: all teams, by the real clock.
    """
    if team is None:
        rows = await tx.run("due_delays", now=clock.now(), limit=PORTION)
    else:
        rows = await tx.run("due_delays_of", team=team, now=clock.of(team), limit=PORTION)
    changes = [change for row in rows if (change := _change(row, clock.of(row[-1])))]
    late = {(change.message, change.position) for change in changes}
    settled = [(message, position, int((message, position) in late)) for message, position, *_ in rows]
    if changes:
        await outcomes.record(tx, changes, owner=None, publisher=publisher)
    if settled:
        await tx.run("settle_delays", delays=settled)
    return len(rows)


def _change(row: Sequence[Any], now: int) -> Change | None:
    """Return the change that publishes a delay; None if the recipient is final or a carrier accepted the email."""
    message, position, since, relayed, gives_up_at, status, detail, due_at, first_at, expires_at, _ = row
    waits = due_at is not None
    if is_final(status) or not (waits or relayed):
        return None
    if waits:
        delay = told_delay(since, due_at, first_at, expires_at)
    else:
        delay = told_delay(since) | {"gives_up_at": gives_up_at}
    words = msgspec.json.decode(detail) if detail else {}
    return Change(at=now, message=message, position=position, wanted=None, note=DELAYED, detail=words, delay=delay)
