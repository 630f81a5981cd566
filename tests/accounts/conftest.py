"""An instance with two teams, on SQLite and PostgreSQL."""

import pytest

from heliograph.storage.store import Store
from tests.accounts.house import Instance
from tests.clocks import TestClock


@pytest.fixture
async def house(store: Store, clock: TestClock) -> Instance:
    made = Instance(store, clock)
    await made.set_up()
    return made
