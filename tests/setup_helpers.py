"""What a test sets up: with an audit entry as every change has, or without one, where the test counts entries."""

from collections.abc import Sequence

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.snapshot import Row
from heliograph.storage import setup
from heliograph.storage.engine.database import Tx
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store

SET_UP = COMMAND_LINE.audit_entry(0, "test.set_up", "a test")


async def set_up(store: Store, rows: Sequence[Row] = (), new_teams: Sequence[NewTeam] = ()) -> None:
    """Straight into the tables, past the guard."""

    async def story(tx: Tx) -> None:
        current = await setup.lock_and_read(tx, store.setup.current)
        await setup.write_setup(tx, current, rows, new_teams, SET_UP.actor, store.clock.now())

    await store.database.write(story)
    await store.setup.refresh()
