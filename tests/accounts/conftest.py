"""A house with two teams, on both databases."""

import pytest
from argon2 import PasswordHasher

from heliograph.dashboard import passwords
from heliograph.storage.store import Store
from tests.accounts.house import House
from tests.clocks import TestClock


@pytest.fixture
async def house(store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> House:
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    hash_ = cheap.hash("nobody has this password")
    monkeypatch.setattr(passwords, "_hasher", cheap)
    monkeypatch.setattr(passwords, "_any", lambda: hash_)
    made = House(store, clock)
    await made.set_up()
    return made
