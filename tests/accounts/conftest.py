"""A house with two teams, on both databases."""

import pytest

from heliograph.storage.store import Store
from tests.accounts.house import House
from tests.clocks import TestClock


@pytest.fixture
async def house(store: Store, clock: TestClock) -> House:
    made = House(store, clock)
    await made.set_up()
    return made
