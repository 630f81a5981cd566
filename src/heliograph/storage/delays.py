"""Deferred emails: publishes `email.delayed` once, five minutes after the first deferral (contract 17)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.delivery.message_states import is_final
from heliograph.domain.events import DELAYED
from heliograph.domain.mail.delay import delay_data
from heliograph.runtime.clock import Clock
from heliograph.storage import outcomes
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import RecipientUpdate

BATCH = 100


class Delays:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher

    async def publish_due(self) -> None:
        clock, publisher = self._clock, self._publisher
        while await self._database.read(partial(_any_due, now=clock.now())):
            if await self._database.write(lambda tx: _publish_batch(tx, clock, publisher)) < BATCH:
                break
        for team in clock.offsets:
            if await self._database.read(partial(_any_due, now=clock.team_now(team))):
                await self._database.write(partial(_publish_batch, clock=clock, publisher=publisher, team=team))


async def _any_due(tx: Tx, now: int) -> bool:
    return bool(await tx.run("any_due_delay", now=now))


async def _publish_batch(tx: Tx, clock: Clock, publisher: Publisher, team: int | None = None) -> int:
    """Publish `email.delayed` for a batch of emails that have been deferred long enough; return the batch's size.

    `team`: only this team, by its test clock; None: all teams, by the real clock.
    """
    if team is None:
        rows = await tx.run("due_delays", now=clock.now(), limit=BATCH)
    else:
        rows = await tx.run("due_delays_of", team=team, now=clock.team_now(team), limit=BATCH)
    updates = [update for row in rows if (update := _update_for_delay(row, clock.team_now(row[-1])))]
    published = {(update.message, update.position) for update in updates}
    settled_rows = [(message, position, int((message, position) in published)) for message, position, *_ in rows]
    if updates:
        await outcomes.record_updates(tx, updates, owner=None, publisher=publisher)
    if settled_rows:
        await tx.run("settle_delays", delays=settled_rows)
    return len(rows)


def _update_for_delay(row: Sequence[Any], now: int) -> RecipientUpdate | None:
    """Return the update that publishes a delay; None if the recipient is final or a carrier accepted the email."""
    message, position, deferred_since, is_relayed, gives_up_at, status, detail, due_at, first_at, expires_at, _ = row
    is_queued = due_at is not None
    if is_final(status) or not (is_queued or is_relayed):
        return None
    if is_queued:
        delay = delay_data(deferred_since, due_at, first_at, expires_at)
    else:
        delay = replace(delay_data(deferred_since), gives_up_at=gives_up_at)
    return RecipientUpdate(
        at=now,
        message=message,
        position=position,
        target_status=None,
        timeline_note=DELAYED,
        detail=msgspec.json.decode(detail) if detail else {},
        delay=delay,
    )
