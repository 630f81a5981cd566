"""Adds messages to the trigram search index, one block at a time with low load."""

import asyncio

from heliograph.deliver.jobs.periodic import attempt
from heliograph.storage.store import Store

EVERY_S = 5.0  # poll interval; a block takes minutes to fill, except at a peak
REST = 4  # rest for this multiple of the time that a block took


async def build_grams(store: Store) -> None:
    """Build the search index until cancelled."""
    loop, more = asyncio.get_running_loop(), False

    async def build() -> None:
        nonlocal more
        more = await store.grams.build_next()

    while True:
        began, more = loop.time(), False
        await attempt(build)
        await asyncio.sleep(REST * (loop.time() - began) if more else EVERY_S)
