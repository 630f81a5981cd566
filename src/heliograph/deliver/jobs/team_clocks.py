"""Advances teams' test clocks to their target time, from one due time to the next."""

import asyncio
from typing import Never

from heliograph.deliver.jobs.periodic import attempt
from heliograph.storage.store import Store

IDLE_S = 0.1  # poll interval while no clock is moving
STEP_S = 0.005  # poll interval while a clock is moving


async def move_clocks(store: Store) -> Never:
    async def step() -> None:
        for team in store.setup.current.moving:
            if not await store.team_clocks.step(team):
                await store.delays.tell_due()

    while True:
        await asyncio.sleep(STEP_S if store.setup.current.moving else IDLE_S)
        await attempt(step)
