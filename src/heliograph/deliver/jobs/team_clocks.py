"""Advances teams' test clocks to their target time, in steps that end when the next work is due."""

import asyncio
from typing import Never

from heliograph.deliver.jobs.periodic import run_and_log_failure
from heliograph.storage.store import Store

IDLE_POLL_S = 0.1  # poll interval while no clock is moving
MOVING_POLL_S = 0.005  # poll interval while a clock is moving


async def advance_test_clocks(store: Store) -> Never:
    async def advance() -> None:
        for team in store.setup.current.advancing_teams:
            if not await store.team_clocks.advance(team):
                await store.delays.publish_due()

    while True:
        await asyncio.sleep(MOVING_POLL_S if store.setup.current.advancing_teams else IDLE_POLL_S)
        await run_and_log_failure(advance)
