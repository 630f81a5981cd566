"""Pausing and resuming delivery: one audit entry each, whoever does it."""

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.manage.pause import set_paused
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, list_entries

pytestmark = pytest.mark.anyio


async def test_pause_change_writes_one_audit_entry(store: Store) -> None:
    assert await set_paused(store, COMMAND_LINE, True, "restored from a backup")
    assert store.setup.current.platform.paused_reason == "restored from a backup"
    assert await set_paused(store, ADA, False)
    assert not await set_paused(store, ADA, False)  # changes nothing
    assert not store.setup.current.platform.paused
    assert await list_entries(store) == [
        ("usr_ada", "delivery.resume", "platform", ""),
        ("command line", "delivery.pause", "platform", "restored from a backup"),
    ]
