"""Changes that lock a shared row: they wait for a slot before they take a connection, and teams take turns."""

import ast
import asyncio
import threading
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.runtime.fair_limiter import WAITERS_MAX
from heliograph.settings import Settings
from heliograph.storage.engine.database import CONCURRENT_SERIALIZED_MAX, TooManyChanges, Tx
from heliograph.storage.engine.postgres import POOL_MAX
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store
from tests.lock_waits import LOCK_WAITS
from tests.service import PATIENCE_S
from tests.storage.conftest import Sql

pytestmark = pytest.mark.anyio

STORAGE = Path(__file__).parents[2] / "src" / "heliograph" / "storage"
FILES = sorted(path.name for path in STORAGE.glob("*.py"))
LOCKING = {"audit.write", "audit.rewrite", "setup.change", "setup.locked", "setup.observe"}
# Runs in a group commit, of which a process has one at a time.
GROUPED = {("accepts.py", "accept")}


def locking_functions(tree: ast.Module, own: set[str]) -> set[str]:
    """Return the names of functions in a module that lock a shared row, directly or through each other."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
    names, before = set[str](), -1
    while len(names) != before:
        before = len(names)
        for function in functions:
            takes_tx = any(arg.arg == "tx" for arg in function.args.args)
            called = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
            if takes_tx and called & (LOCKING | own | names | {f"self.{name}" for name in names}):
                names.add(function.name)
    return names


def unserialized_writes(file: str) -> list[str]:
    """Return the `database.write(…)` calls of a module whose transaction function locks a shared row."""
    tree = ast.parse((STORAGE / file).read_text("utf-8"))
    own = {name.partition(".")[2] for name in LOCKING if name.startswith(file.removesuffix(".py") + ".")}
    wrong = []
    for method in (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)):
        inner = ast.Module(body=method.body, type_ignores=[])
        shared = locking_functions(tree, own) - {"story"}
        names = shared | locking_functions(inner, own | shared | {f"self.{name}" for name in shared})
        for call in (node for node in ast.walk(inner) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) in ("self._database.write", "database.write"):
                mentioned = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
                mentioned |= {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)} - {"write"}
                inside = {ast.unparse(node.func) for node in ast.walk(call) if isinstance(node, ast.Call)}
                if (mentioned & names or inside & (LOCKING | own)) and (file, method.name) not in GROUPED:
                    wrong.append(f"{file}:{call.lineno} {method.name}")
    return wrong


@pytest.mark.slow
def test_change_that_locks_a_shared_row_waits_for_a_slot_first() -> None:
    assert [item for file in FILES for item in unserialized_writes(file)] == []


# -- at work ---------------------------------------------------------------------------------------------------


def decide_nothing(*_: object) -> SetupChange:
    return SetupChange()


async def change_setup(store: Store, number: int) -> None:
    await store.setup.change(decide_nothing, "flooding")


async def add_audit_entry(store: Store, number: int) -> None:
    await store.audit.add(COMMAND_LINE.audit_entry(0, "test.entry", str(number), team="flooding"))


CHANGES = {"setting": change_setup, "audit_head": add_audit_entry}
LOCKS = {
    "setting": "UPDATE counter SET next = next WHERE name = 'setting'",
    "audit_head": "UPDATE audit_head SET place = place",
}
WAITING = f"SELECT count(*) FROM {LOCK_WAITS}"


@pytest.mark.parametrize("row", LOCKS)
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_changes_waiting_for_a_shared_row_use_two_connections_and_others_write(
    store: Store, settings: Settings, sql: Sql, row: str
) -> None:
    holder: Any = await asyncpg.connect(settings.database)
    try:
        async with holder.transaction():
            await holder.execute(LOCKS[row])
            changes = [asyncio.create_task(CHANGES[row](store, number)) for number in range(40)]
            while (await sql(WAITING))[0][0] < CONCURRENT_SERIALIZED_MAX:
                await asyncio.sleep(0.01)
            for _ in range(POOL_MAX):
                await asyncio.gather(*(store.ledger.update_spend(2) for _ in range(3)))
                assert await sql(WAITING) == [(CONCURRENT_SERIALIZED_MAX,)]
        await asyncio.gather(*changes)
    finally:
        await holder.close()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_changes_waiting_for_the_writer_thread_let_others_write_between_them(store: Store) -> None:
    first_begun, go_on = asyncio.Event(), threading.Event()
    loop, order = asyncio.get_running_loop(), list[str]()

    def decide(*_: object) -> SetupChange:
        order.append("change")
        loop.call_soon_threadsafe(first_begun.set)
        go_on.wait(PATIENCE_S)
        return SetupChange()

    async def write(tx: Tx) -> None:
        order.append("write")

    changes = [asyncio.create_task(store.setup.change(decide, "flooding")) for _ in range(40)]
    await first_begun.wait()
    other = asyncio.create_task(store.database.write(write))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(other, *changes)
    assert order.index("write") <= CONCURRENT_SERIALIZED_MAX


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # its writer thread keeps the order
async def test_changes_of_two_teams_alternate(store: Store) -> None:
    order = list[str]()

    async def change(team: str) -> None:
        await store.setup.change(lambda *_: order.append(team) or SetupChange(), team)  # type: ignore[func-returns-value]

    await asyncio.gather(*(change("a") for _ in range(20)), *(change("b") for _ in range(3)))
    assert order == [*"aaabababa", *"a" * 14]


async def test_changes_beyond_the_queue_limit_are_refused_with_a_retry_time(store: Store) -> None:
    results = await asyncio.gather(*(change_setup(store, n) for n in range(WAITERS_MAX + 10)), return_exceptions=True)
    refused = [error for error in results if error is not None]
    assert len(refused) == 10 - CONCURRENT_SERIALIZED_MAX
    assert all(isinstance(error, TooManyChanges) and error.retry_after >= 1 for error in refused)
