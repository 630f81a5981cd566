"""Moves teams' test clocks to where they are to be, from one due time to the next."""

import asyncio
from typing import Never

from heliograph.deliver.jobs.periodic import attempt
from heliograph.storage.store import Store

IDLE_S = 0.1  # from one look for a clock that is to move to the next
STEP_S = 0.005  # between two looks at what one waits for


async def move_clocks(store: Store) -> Never:
    async def step() -> None:
        for team in store.setup.current.moving:
            if not await store.team_clocks.step(team):
                await store.delays.tell_due()

    while True:
        await asyncio.sleep(STEP_S if store.setup.current.moving else IDLE_S)
        await attempt(step)
