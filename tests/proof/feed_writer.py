"""A process that publishes events, with delays between their ids and their commits: see test_feed.py."""

import asyncio
import random
import sys
import time
from pathlib import Path

from heliograph.bootstrap import open_store
from heliograph.domain.ids import PREFIXES
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from heliograph.storage.engine.database import StoreUnavailable, Tx
from heliograph.storage.engine.postgres import PostgresDatabase
from heliograph.storage.events import Event
from heliograph.storage.store import Store

AT_ONCE = 8  # transactions
MESSAGE = 6  # transactions for each message, of one to three events
DELAYED = 0.02  # of the transactions


async def main(database: str, data: str, seat: str, count: int, delay_s: float) -> None:
    clock = Clock()
    async with open_store(Settings(database=database, data=Path(data)), clock, seat) as store:
        rounds = count // (2 * MESSAGE * AT_ONCE) or 1
        await asyncio.gather(*(_publish_all(store, seat, number, rounds, delay_s) for number in range(AT_ONCE)))


async def _publish_all(store: Store, seat: str, number: int, rounds: int, delay_s: float) -> None:
    for round_ in range(rounds):
        sequence = 0
        for _ in range(MESSAGE):
            size = random.randint(1, 3)
            try:
                await _publish(
                    store, f"eml_{seat}_{number}_{round_}", range(sequence + 1, sequence + size + 1), delay_s
                )
            except StoreUnavailable:  # it may have been committed: the message ends here
                await asyncio.sleep(0.2)
                break
            sequence += size


async def _publish(store: Store, subject: str, sequences: range, delay_s: float) -> None:
    publisher, now = store.setup.publisher, store.clock.now()
    events = [
        Event(
            id=publisher.new_id(PREFIXES["event"]),
            team=1,
            subject=subject,
            sequence=sequence,
            type="email.sent",
            created_at=now,
        )
        for sequence in sequences
    ]
    delay = random.uniform(0, delay_s) if random.random() < DELAYED else 0

    async def write(tx: Tx) -> None:
        await publisher.publish(tx, events)
        if isinstance(store.database, PostgresDatabase):
            await asyncio.sleep(delay)
        else:
            time.sleep(delay)

    await store.database.write(write)


if __name__ == "__main__":
    database, data, seat, count, delay = sys.argv[1:]
    asyncio.run(main(database, data, seat, int(count), float(delay)))
