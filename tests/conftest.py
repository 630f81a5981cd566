"""Fixtures for all tests: both real databases, a store on each, and the whole service as processes."""

import asyncio
import functools
import gc
import itertools
import math
import os
import shutil
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from heliograph.bootstrap import open_store
from heliograph.settings import Settings
from heliograph.storage import leases
from heliograph.storage.engine.migrate import migrate_postgres, migrate_sqlite
from heliograph.storage.store import Store
from tests import event_check, forks, hypothesis_profile, postgres_server  # noqa: F401
from tests.clocks import TestClock
from tests.fast_crypto import cheapen
from tests.postgres_server import PostgresServer
from tests.proof.size import FULL
from tests.service import PATIENCE_S, Service

pytest_plugins = ["tests.side_effects", "tests.skips", "tests.workers"]
DATABASES = ("sqlite", "postgres")
MIGRATED = "migrated"
# Folders whose tests do not depend on the database: run on SQLite only, unless they are
# marked `both_databases`. `make proof PROOFS=postgres` runs them on both.
ONE_DATABASE = {"accept", "accounts", "dashboard", "manage"}
# What only `make test-all` runs
SLOW_FOLDERS = {"clients", "proof"}
SLOW_FILES = {
    *("bench/test_capacity.py", "compat/test_quick_starts.py", "submission/test_slow.py", "tests/test_growth.py"),
    *("api/test_schemathesis.py", "journeys/test_cells.py", "tests/test_pages.py"),
    *("tests/test_alerts.py", "tests/test_deploy.py", "tests/test_dist.py", "tests/test_systemd.py"),  # to install it
    *("tests/test_side_effects.py", "tests/test_skips.py", "tests/test_workers.py"),  # of the tests' own runner
    *("tests/test_docs.py", "tests/test_layers.py"),  # `make check` runs them
}
SLOW_FIXTURES = {"chromium", "mailauth", "node", "node_modules", "package"}  # a browser, or packages that npm installs
SLOW_ON_POSTGRES = {"api", "cli", "journeys", "manage"}  # storage and deliver run their queries there, too
MADE_UP = {"accounts", "deliver", "proof", "storage", "submission"}  # their tests publish made-up events
LONG = ("dashboard", "journeys", "proof", "tests")
USES_MAX = 40  # of a database that is lent
os.environ["HELIOGRAPH_STOP_DELAY_MS"] = "0"  # of whatever a test starts
cheapen()
PHONES = (f"+1500555{line}" for line in range(1001, 1030))  # no test names one of these
_numbers = itertools.count(1)
_lent: list["Lent"] = []  # emptied
_ended = ExitStack()  # closed at the end of the run
MAIN_PROCESS = os.getpid()
CITUS = os.environ.get("TEST_CITUS", "")  # URL of a coordinator: each PostgreSQL test gets a cell there


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Disable garbage collection while tests are collected, and freeze the objects created.

    Meanwhile, another core imports the modules for the process from which the commands of all workers are forked.
    """
    is_shared = session.config.getoption("workers") and not session.config.option.collectonly
    if is_shared:
        forks.parent()
    gc.disable()
    try:
        collected = yield
        if is_shared:  # before the workers are forked: each would do it for itself
            forks.compile_pages()
            if postgres_server.is_installed() and any(map(_needs_postgres, session.items)):
                shared_server()
        return collected
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # `-m` selects afterwards
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in filter(_is_slow, items):
        item.add_marker("slow")
    left = {item for item in items if not FULL and _is_for_proof(item)}
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]
    _take_turns(items)


def _is_slow(item: pytest.Item) -> bool:
    """Return whether a test runs only in `make test-all`."""
    folder, fixtures = item.path.parent.name, getattr(item, "fixturenames", ())
    is_second_database = folder in SLOW_ON_POSTGRES and _needs_postgres(item)
    is_slow_file = folder in SLOW_FOLDERS or f"{folder}/{item.path.name}" in SLOW_FILES
    return is_slow_file or is_second_database or not SLOW_FIXTURES.isdisjoint(fixtures)


def _is_for_proof(item: pytest.Item) -> bool:
    return item.get_closest_marker("in_full") is not None or _is_on_second_database(item)


def _is_on_second_database(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    kinds = {callspec.params.get(name) for name in ("database_url", "empty_database_url", "url")} if callspec else set()
    edge = item.path.parent.name in ONE_DATABASE
    return edge and "postgres" in kinds and not item.get_closest_marker("both_databases")


def _take_turns(items: list[pytest.Item]) -> None:
    """Sort slow folders first, so that all workers end together, and alternate their files.

    Some files need much CPU to render pages; others wait for processes.
    """
    turns: dict[str, dict[Path, int]] = {folder: {} for folder in LONG}

    def turn(item: pytest.Item) -> float:
        files = turns.get(item.path.parent.name)
        return math.inf if files is None else files.setdefault(item.path, len(files))

    items.sort(key=turn)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Yield the URL of the first database of the run's PostgreSQL server."""
    if CITUS:
        yield CITUS
        return
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.MISSING)
    yield shared_server().url()
    while _lent:  # `make proof` has another session after this one
        _lent.pop().close()


@functools.cache
def shared_server() -> PostgresServer:
    """Return the PostgreSQL server of the whole run. With workers, the main process starts it before the fork."""
    assert os.getpid() == MAIN_PROCESS, "PostgreSQL was not started: has the test neither the fixture nor the name?"
    folder = _ended.enter_context(postgres_server.temporary_folder())
    settings = {**postgres_server.UNSAFE, **autovacuum_settings()}
    server = PostgresServer(folder / "data", **settings, max_connections="500")
    _ended.callback(server.stop)
    _on_server(server.url(), f"CREATE DATABASE {MIGRATED}")
    asyncio.run(migrate_postgres(server.url(MIGRATED)))
    _emptying(server.url())
    # A database with open connections cannot be copied.
    _on_server(server.url(), f"ALTER DATABASE {MIGRATED} ALLOW_CONNECTIONS false")
    return server


def autovacuum_settings() -> dict[str, str]:
    """Return settings that run autovacuum each second if TEST_AUTOVACUUM=1; otherwise autovacuum is off."""
    if os.environ.get("TEST_AUTOVACUUM") != "1":
        return {"autovacuum": "off"}
    once = ("naptime", "vacuum_threshold", "analyze_threshold")
    never = ("vacuum_scale_factor", "analyze_scale_factor", "vacuum_cost_delay")
    values = {**dict.fromkeys(once, "1"), **dict.fromkeys(never, "0")}
    return {"autovacuum": "on", **{f"autovacuum_{name}": value for name, value in values.items()}}


def _needs_postgres(item: pytest.Item) -> bool:
    return "postgres" in item.nodeid or "postgres" in getattr(item, "fixturenames", ())


def pytest_sessionfinish() -> None:
    """Close shared resources in the main process; workers end without them."""
    _ended.close()
    shared_server.cache_clear()
    _emptying.cache_clear()


def fresh_database(postgres: str, template: str = MIGRATED) -> str:
    """Return the URL of a new database on the server: migrated and empty, unless another template is named."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    if CITUS:
        return _fresh_cell(name, is_migrated=template == MIGRATED)
    _on_server(postgres, f"CREATE DATABASE {name} TEMPLATE {template}")
    return _named(postgres, name)


def _fresh_cell(name: str, *, is_migrated: bool) -> str:
    _on_server(CITUS, f"CREATE SCHEMA {name}")
    url = f"{CITUS}&search_path={name}"
    if is_migrated:
        asyncio.run(migrate_postgres(url))
    return url


@contextmanager
def lent_database(postgres: str, *, checks_events: bool = True) -> Iterator[str]:
    """Yield the URL of a reused database, which is emptied for the next test.

    Emptying it takes a twentieth of the time of a copy.
    """
    lent = _lent.pop() if _lent else Lent(postgres)
    yield lent.url
    rows = lent.published_events()
    if lent.uses < USES_MAX:  # what was deleted stays in its files
        lent.empty()
        _lent.append(lent)
    else:
        lent.close()
    if checks_events:
        event_check.check_rows(rows)


class Lent:
    """A reusable database, and a connection that empties it with a database function, whose plans are cached."""

    def __init__(self, postgres: str) -> None:
        self.url = fresh_database(postgres)
        self.uses = 1
        self._loop = asyncio.new_event_loop()
        self._session: Any = self._loop.run_until_complete(asyncpg.connect(self.url))
        if not CITUS:
            self._execute(_emptying(postgres))

    def empty(self) -> None:
        self.uses += 1
        for statement in _emptying_cell() if CITUS else ["SELECT pg_temp.empty()"]:
            self._execute(statement)

    def published_events(self) -> list[Any]:
        return list(self._loop.run_until_complete(self._session.fetch(event_check.PUBLISHED)))

    def close(self) -> None:
        self._loop.run_until_complete(self._session.close())
        self._loop.close()

    def _execute(self, statement: str) -> None:
        self._loop.run_until_complete(self._session.execute(statement))


@functools.cache
def _emptying(postgres: str) -> str:
    """Return SQL that creates a function which restores the state after the migration, even if connections are open."""

    steps = [
        f"PERFORM pg_terminate_backend(pid, {PATIENCE_S * 1000:.0f}) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        *asyncio.run(_restoring(_named(postgres, MIGRATED), "PERFORM")),
    ]
    body = "".join(f"{step};" for step in steps)
    return f"CREATE FUNCTION pg_temp.empty() RETURNS void LANGUAGE plpgsql AS $empty$ BEGIN {body} END $empty$"


@functools.cache
def _initial_cell() -> list[str]:
    return asyncio.run(_restoring(fresh_database(CITUS), "SELECT"))


def _emptying_cell() -> list[str]:
    """Return statements that restore a cell of Citus; connections of others in the same database stay open."""
    return [
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'heliograph' AND datname = current_database()",
        *_initial_cell(),
    ]


async def _restoring(url: str, call: str) -> list[str]:
    """Return statements that restore the tables and sequences of a migrated database to their state now."""
    connection: Any = await asyncpg.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        inserts = (
            f"SELECT format('INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, %L)', "
            f"json_agg(t)) FROM {table} t HAVING count(*) > 0"
            for (table,) in tables
        )
        resets = (
            f"SELECT format('{call} setval(%L, 1, false)', sequencename) FROM pg_sequences "
            "WHERE schemaname = current_schema()"
        )
        rows = [row for query in (*inserts, resets) for row in await connection.fetch(query)]
        return [*(f"DELETE FROM {table}" for (table,) in tables), *(row[0] for row in rows)]
    finally:
        await connection.close()


def _named(postgres: str, database: str) -> str:
    return postgres.replace("/postgres?", f"/{database}?")


def _on_server(postgres: str, *statements: str) -> None:
    async def execute() -> None:
        connection: Any = await asyncpg.connect(postgres)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(execute())


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "heliograph.db"
    migrate_sqlite(path)
    return path


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a migrated, empty database, of each kind on which the tests of this folder run."""
    with migrated_database(request.param, request, tmp_path) as url:
        yield url


@contextmanager
def migrated_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if kind == "postgres":
        with lent_database(request.getfixturevalue("postgres"), checks_events=not _is_made_up(request)) as url:
            yield url
    else:
        path = folder / "heliograph.db"
        shutil.copy(request.getfixturevalue("migrated_file"), path)
        yield f"sqlite:///{path}"
        if not _is_made_up(request):
            event_check.check_file(path)


def _is_made_up(request: pytest.FixtureRequest) -> bool:
    modules = {getattr(value, "__module__", "") for value in vars(request.module).values()}
    return request.path.parent.name in MADE_UP or "tests.storage.samples" in modules


@pytest.fixture(params=DATABASES)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database without tables, of each kind."""
    if request.param == "postgres":
        return fresh_database(request.getfixturevalue("postgres"), "template1")
    return f"sqlite:///{tmp_path / 'heliograph.db'}"


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    # The timeout is longer than a busy machine pauses, so that no test sees an outage that it did not cause.
    return Settings(database=database_url, data=tmp_path / "data", simulator_step_ms=1, database_timeout_s=60)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TestClock:
    """Return a test clock, which also sets the clock of PostgreSQL."""
    clock, told = TestClock(), leases.Leases._shared_time
    monkeypatch.setattr(
        leases.Leases, "_shared_time", lambda self, row: told(self, row) + _is_server(row) * clock.forwarded_ms
    )
    return clock


def _is_server(row: leases.ClockRow | None) -> bool:
    return row is not None and row[0] is None


@pytest.fixture
async def store(settings: Settings, clock: TestClock) -> AsyncIterator[Store]:
    """Return a migrated, empty store; tests that use it run on both databases."""
    async with open_store(settings, clock, "seat/0") as store:
        yield store


@pytest.fixture
async def other(store: Store, settings: Settings, clock: TestClock) -> AsyncIterator[Store]:
    """Return the store of another process on the same database."""
    async with open_store(settings, clock, "seat/1") as other:
        yield other


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    """Return the service in one process, set up from tests/setup.toml; tests that use it run on both databases."""
    with Service(database_url, tmp_path / "data") as running:
        running.apply()
        running.start()
        yield running


@pytest.fixture
def phone() -> str:
    """Return a simulated phone number that no other test of this process uses."""
    return next(PHONES)


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return one service on SQLite, for all tests that only read or use their own records."""
    folder = tmp_path_factory.mktemp("shared")
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data") as running:
        running.apply()
        running.start()
        yield running
