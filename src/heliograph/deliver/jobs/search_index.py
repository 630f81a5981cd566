"""Adds messages to the trigram search index, one block at a time and with pauses."""

import asyncio

from heliograph.deliver.jobs.periodic import run_and_log_failure
from heliograph.storage.store import Store

POLL_INTERVAL_S = 5.0  # filling a block takes minutes, except at peak load
PAUSE_FACTOR = 4  # pause after a block, as a multiple of the time that the block took


async def build_search_index(store: Store) -> None:
    """Build the search index until cancelled."""
    loop, has_more = asyncio.get_running_loop(), False

    async def build_block() -> None:
        nonlocal has_more
        has_more = await store.search_index.build_next()

    while True:
        started_at, has_more = loop.time(), False
        await run_and_log_failure(build_block)
        await asyncio.sleep(PAUSE_FACTOR * (loop.time() - started_at) if has_more else POLL_INTERVAL_S)
