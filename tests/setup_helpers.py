"""Sets up records for tests: with an audit entry, like every change, or without, for tests that count audit entries."""

from collections.abc import Sequence

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.snapshot import Row
from heliograph.storage import setup
from heliograph.storage.engine.database import Tx
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store

SET_UP = COMMAND_LINE.audit_entry(0, "test.set_up", "a test")


async def set_up(store: Store, rows: Sequence[Row] = (), new_teams: Sequence[NewTeam] = ()) -> None:
    """Write the rows directly into the tables, without the check for an audit entry."""

    async def story(tx: Tx) -> None:
        current = await setup.lock_and_read(tx, store.setup.current)
        await setup.write_setup(tx, current, rows, new_teams, SET_UP.actor, store.clock.now())

    await store.database.write(story)
    await store.setup.refresh()
