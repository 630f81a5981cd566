"""A team is deleted with all its data after the time for restoring it; concurrent deletions run once."""

import asyncio
from pathlib import Path

import pytest

import heliograph.storage
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.limits import MINUTE_MS
from heliograph.domain.refusals import TeamNotFound
from heliograph.manage import credit, keys, teams
from heliograph.manage.credit import CreditAdjustment
from heliograph.manage.keys import NewKey
from heliograph.manage.teams import DELETION_DELAY_MS
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import message

pytestmark = pytest.mark.anyio

# Columns with a team's number or id. The audit log, the empty account and the team's own row remain.
QUERIES = Path(heliograph.storage.__file__).parent / "queries"
KEPT = {"audit", "account", "setting"}
TABLES_WITH_TEAM = (
    "SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) p WHERE m.type = 'table' AND p.name = 'team'",
    "SELECT table_name FROM information_schema.columns WHERE table_schema = current_schema() AND column_name = 'team'",
)


async def make_team(store: Store) -> int:
    await teams.create(store, COMMAND_LINE, {"id": "team_gone", "credit": "5.00"})
    await keys.create(store, COMMAND_LINE, NewKey(team="team_gone", name="server"))
    await credit.book_once(store, COMMAND_LINE, CreditAdjustment(team="team_gone", amount="1", note="invoice 1"))
    return store.setup.current.teams["team_gone"].record.ref


async def test_due_team_is_deleted_with_its_data(store: Store, other: Store, clock: TestClock, sql: Sql) -> None:
    ref = await make_team(store)
    for address in ("ada@example.com", "bo@example.com"):
        await store.messages.accept(message(clock, address, team=ref))
        await store.messages.accept(message(clock, address, team=1))
    await teams.request_deletion(store, COMMAND_LINE, "team_gone")
    clock.forward(DELETION_DELAY_MS - MINUTE_MS)
    await store.team_deletion.delete_due()
    assert store.setup.current.teams["team_gone"].record.deletes_at > clock.now()
    clock.forward(2 * MINUTE_MS)
    with pytest.raises(TeamNotFound, match="can't be restored any more"):
        await teams.restore(store, COMMAND_LINE, "team_gone")
    await other.setup.refresh()
    await asyncio.gather(store.team_deletion.delete_due(), other.team_deletion.delete_due())

    tables = {row[0] for query in TABLES_WITH_TEAM[:1] for row in await _rows_or_empty(sql, query)} or {
        row[0] for row in await sql(TABLES_WITH_TEAM[1])
    }
    assert {"message", "ledger", "event", "member", "credit_reference"} <= tables
    queries = "".join(path.read_text() for path in QUERIES.glob("*.sql")).split("-- name: ")
    deletions = " ".join(
        query for query in queries if query.startswith(("delete_team_", "delete_deliveries_of_webhooks", "purge_"))
    )
    for table in tables - KEPT:
        assert f"DELETE FROM {table}" in deletions, table
        left = await sql(f"SELECT count(*) FROM {table} WHERE CAST(team AS text) IN ('{ref}', 'team_gone')")
        assert left == [(0,)], table
    assert await sql("SELECT count(*) FROM message WHERE team = 1") == [(2,)]
    assert await sql("SELECT kind, body FROM setting WHERE team = 'team_gone'") == [("team", None)]
    assert await sql(f"SELECT available, held FROM account WHERE team = {ref}") == [(0, 0)]
    assert await sql("SELECT person, subject FROM audit WHERE action = 'team.erase'") == [("service", "team_gone")]
    for setup in (store.setup, other.setup):
        await setup.refresh()
        assert "team_gone" not in setup.current.teams
        assert not any(getattr(record, "team", "") == "team_gone" for record in setup.current.records.values())
    await teams.create(store, COMMAND_LINE, {"id": "team_gone"})
    assert store.setup.current.teams["team_gone"].record.ref > ref


async def _rows_or_empty(sql: Sql, query: str) -> list[tuple[object, ...]]:
    """Return a table's rows; empty on PostgreSQL if it has no such table."""
    try:
        return await sql(query)
    except Exception:
        return []


async def test_concurrent_deletions_and_restores_are_one_change_each(store: Store, other: Store, sql: Sql) -> None:
    await make_team(store)
    await other.setup.refresh()
    deleted = await asyncio.gather(
        *(teams.request_deletion((store, other)[i % 2], COMMAND_LINE, "team_gone") for i in range(6))
    )
    assert len({record.deletes_at for record in deleted}) == 1
    await asyncio.gather(*(teams.restore((store, other)[i % 2], COMMAND_LINE, "team_gone") for i in range(6)))
    entries = await sql("SELECT action FROM audit WHERE action LIKE 'team.%' ORDER BY key")
    assert entries == [("team.create",), ("team.delete",), ("team.restore",)]


async def test_team_suspended_before_its_deletion_stays_suspended_when_restored(store: Store) -> None:
    await make_team(store)
    await teams.set_suspended(store, COMMAND_LINE, "team_gone", True)
    await teams.request_deletion(store, COMMAND_LINE, "team_gone")
    restored = await teams.restore(store, COMMAND_LINE, "team_gone")
    assert (restored.suspended, restored.deletes_at) == (True, 0)
