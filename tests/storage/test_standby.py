"""Lists, search, statistics and exports on a real streaming standby: stopped, delayed and replaced."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

import heliograph
from heliograph.bootstrap import open_store
from heliograph.cli.checks import store as checks
from heliograph.cli.checks.findings import Site
from heliograph.cli.options import without_password
from heliograph.domain.operations.erasure import AddressVariants
from heliograph.inbound.store import opt_outs
from heliograph.runtime.resolver import Resolver
from heliograph.settings import BadSetting, Settings, read_settings
from heliograph.storage import unsubscribes
from heliograph.storage.audit import AuditFilter
from heliograph.storage.engine import standby
from heliograph.storage.engine.standby import ReplicatedPostgres
from heliograph.storage.erase import ErasureTarget
from heliograph.storage.inbox import InboxSearch
from heliograph.storage.search.message_search import Search
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.postgres_server import UNSAFE, PostgresServer, temporary_folder
from tests.setup_helpers import set_up
from tests.storage.samples import message

pytestmark = pytest.mark.anyio

SEARCH, TARGET = (
    Search(limit=10),
    ErasureTarget(
        ref=1,
        team="team_shop",
        variants=AddressVariants("ada@example.com", frozenset({"ada@example.com"})),
        address_hash="",
        webhooks=("wh_1",),
        keys=("key",),
        templates=("tpl_1",),
    ),
)


async def reserve_nothing(_: int) -> None:
    pass


# Every method of the store that reads on the standby: file and name.
READS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "messages.search": lambda store: store.messages.search(1, SEARCH),
    "messages.count": lambda store: store.messages.count(1, SEARCH),
    "messages.count_by_state": lambda store: store.messages.count_by_state(1, SEARCH),
    "messages.count_recipients_by_state": lambda store: store.messages.count_recipients_by_state([1]),
    "verifications.search": lambda store: store.verifications.search(1, SEARCH),
    "stats.overview": lambda store: store.stats.overview(1, 0, 1000, ["wh_1"]),
    "stats.usage": lambda store: store.stats.usage(1, 0, 1),
    "stats.instance_totals": lambda store: store.stats.instance_totals(0),
    "stats.team_totals": lambda store: store.stats.team_totals([1], 0),
    "stats.sent_by_hour": lambda store: store.stats.sent_by_hour([1], 0),
    "events.newest": lambda store: store.events.newest(1, ["sent"], "evt_~", 10),
    "events.list_types": lambda store: store.events.list_types(1),
    "requests.list_page": lambda store: store.requests.list_page(1),
    "requests.list_filter_values": lambda store: store.requests.list_filter_values(1),
    "requests.list_compat_calls": lambda store: store.requests.list_compat_calls(1, "key", 10),
    "ledger.list_page": lambda store: store.ledger.list_page(1, None, 10),
    "ledger.get_spend": lambda store: store.ledger.get_spend(1, "2026-01"),
    "export._read": lambda store: store.exports._read("find_unsubscribes", team=1, address="ada"),
    "export._export_message": lambda store: store.exports._export_message(TARGET, "eml_1"),
    "export._read_all": lambda store: store.exports._read_all("scan_marketing", team=1, address="ada"),
    "erase.scan_table": lambda store: store.exports.export(TARGET, 0, lambda *_: None),
    "erase.scan_messages": lambda store: store.exports.export(TARGET, 0, lambda *_: None),
    "inbox.list_messages": lambda store: store.inbox.list_messages(1, ["email"], ["sandbox"], InboxSearch()),
    "inbox.list_codes": lambda store: store.inbox.list_codes(1, InboxSearch()),
    "audit.list_rows": lambda store: store.audit.list_rows("team_shop"),
    "audit.list_actions": lambda store: store.audit.list_actions(None),
    "audit.list_page": lambda store: store.audit.list_page(None, AuditFilter()),
    "suppressions.list_page": lambda store: store.suppressions.list_page(1, None, 10),
    "suppressions.search": lambda store: store.suppressions.search(1, "ada"),
    "unsubscribes.list_page": lambda store: store.unsubscribes.list_page(1, unsubscribes.FIRST_PAGE, 10),
    "opt_outs.list_page": lambda store: store.opt_outs.list_page(1, opt_outs.FIRST_PAGE, 10),
    "inbound_mail.list_newest": lambda store: store.inbound_mail.list_newest(1, "rcv_~", 10),
    "inbound_mail.get_records": lambda store: store.inbound_mail.list_page(1, "rcv_~", 10, reserve_nothing),
    "aggregate_reports.dmarc_totals": lambda store: store.aggregate_reports.dmarc_totals("dom_1", 0, 1),
    "aggregate_reports.tls_sessions": lambda store: store.aggregate_reports.tls_sessions("dom_1", 0, 1),
    "store.list_page": lambda store: store.deliveries.list_page("wh_1", None, 10),
}


@pytest.fixture(scope="module")
def folder(postgres: str) -> Iterator[Path]:
    with temporary_folder() as made:
        yield made


@pytest.fixture(scope="module")
def primary(folder: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(folder / "primary", **UNSAFE)
    asyncio.run(prepare(server, folder / "data"))
    yield server
    server.stop()


async def prepare(server: PostgresServer, data: Path) -> None:
    async with open_store(Settings(database=server.url(), data=data)) as store:
        await set_up(store, new_teams=[NewTeam(1, 0)])


@pytest.fixture(scope="module")
def second(primary: PostgresServer, folder: Path) -> Iterator[PostgresServer]:
    """Run a streaming standby of the primary."""
    primary.run("pg_basebackup", "-d", primary.url(), "-D", f"{folder}/second", "-c", "fast", "-R")
    (folder / "second" / ".s.PGSQL.5432.lock").unlink()  # the lock file of the primary, copied with its data folder
    server = PostgresServer(folder / "second", **UNSAFE)
    yield server
    server.stop()


@pytest.fixture
async def store(
    primary: PostgresServer, second: PostgresServer, tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    monkeypatch.setattr(standby, "REPLAY_WAIT_S", 10.0)
    monkeypatch.setattr(standby, "RESPONSE_S", 10.0)
    monkeypatch.setattr(standby, "RETRY_S", 0.0)
    settings = Settings(database=primary.url(), database_read=second.url(), data=tmp_path / "data")
    async with open_store(settings, clock, "seat/0") as store:
        yield store


def database_of(store: Store) -> ReplicatedPostgres:
    return cast(ReplicatedPostgres, store.database)


async def standby_answers(store: Store) -> bool:
    """Return whether the standby answers a read, and not the primary."""
    ((is_standby,),) = await store.database.read_standby(lambda tx: tx._fetch("SELECT pg_is_in_recovery()"))  # type: ignore[attr-defined]
    return bool(is_standby)


async def ids(store: Store) -> set[str]:
    return {row.id for row in (await store.messages.search(1, SEARCH)).rows}


def test_every_read_of_the_standby_is_listed_here() -> None:
    methods = {
        f"{file.stem}.{method.partition('(')[0]}"
        for file in Path(heliograph.__file__).parent.rglob("*.py")
        for method in re.split(r"\n(?:    )?async def (?=\w+\()", file.read_text())[1:]
        if "database.read_standby(" in method
    }
    assert methods == set(READS)


@pytest.mark.parametrize("name", READS)
async def test_standby_can_run_each_of_its_reads(store: Store, name: str) -> None:
    await READS[name](store)
    assert (await standby_answers(store), database_of(store)._fault) == (True, "")


async def test_list_on_the_standby_has_what_was_just_written(store: Store, clock: TestClock) -> None:
    """Written by any process: only the database knows the position."""
    for _ in range(50):
        item = message(clock)
        await store.messages.accept(item)
        clock.forward(1)
        assert item.id in await ids(store)
        assert await standby_answers(store)


async def test_primary_answers_while_the_standby_is_behind(
    store: Store, second: PostgresServer, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await standby_answers(store)
    await execute(second, "SELECT pg_wal_replay_pause()")
    monkeypatch.setattr(standby, "REPLAY_WAIT_S", 0.01)
    try:
        item = message(clock)
        await store.messages.accept(item)
        assert item.id in await ids(store)
        assert database_of(store)._fault == "behind"
        assert not await standby_answers(store)
    finally:
        await execute(second, "SELECT pg_wal_replay_resume()")
    monkeypatch.setattr(standby, "REPLAY_WAIT_S", 10.0)
    assert await standby_answers(store)
    assert item.id in await ids(store)


async def test_primary_answers_while_the_standby_is_down(
    store: Store, second: PostgresServer, clock: TestClock
) -> None:
    assert await standby_answers(store)
    second.stop(signal.SIGINT)
    try:
        item = message(clock)
        await store.messages.accept(item)
        assert item.id in await ids(store)
        assert database_of(store)._fault == "unavailable"
    finally:
        second.start()
    async with asyncio.timeout(60):
        while not await standby_answers(store):
            await asyncio.sleep(0.05)
    assert item.id in await ids(store)


async def test_faulty_standby_is_not_used_for_a_few_seconds(
    store: Store, second: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "RETRY_S", 1000.0)
    database_of(store)._set_fault("behind")
    database_of(store)._retry_at = asyncio.get_running_loop().time() + 1000
    assert not await standby_answers(store)
    database_of(store)._retry_at = 0
    assert await standby_answers(store)


@pytest.mark.parametrize("other", ["primary", "foreign"])
async def test_server_that_is_no_standby_of_the_primary_is_not_read(
    primary: PostgresServer,
    postgres: str,
    tmp_path: Path,
    clock: TestClock,
    other: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standby, "REPLAY_WAIT_S", 0.01)
    url = primary.url() if other == "primary" else postgres
    settings = Settings(database=primary.url(), database_read=url, data=tmp_path / "data")
    async with open_store(settings, clock, "seat/0") as store:
        await store.messages.search(1, SEARCH)
        assert database_of(store)._fault == "behind"


async def test_doctor_reports_the_standby(
    store: Store, primary: PostgresServer, second: PostgresServer, tmp_path: Path
) -> None:
    def site(url: str) -> Site:
        return Site(Settings(database=primary.url(), database_read=url, data=tmp_path), Resolver(None, 1))

    assert await checks.check_standby(site("")) == []
    (finding,) = await checks.check_standby(site(second.url()))
    assert (finding.level, re.sub(r"[0-9.]+ MB", "N MB", finding.message)) == (
        "ok",
        f"{without_password(second.url())} is a standby, N MB behind",
    )
    (finding,) = await checks.check_standby(site(primary.url()))
    assert (finding.level, "is not a standby of" in finding.message) == ("warn", True)
    (finding,) = await checks.check_standby(site("postgresql://127.0.0.1:1/none"))
    assert finding.level == "warn"


def test_standby_of_sqlite_is_refused() -> None:
    with pytest.raises(BadSetting, match="database_read needs PostgreSQL"):
        read_settings({}, {"HELIOGRAPH_DATABASE_READ": "postgresql://standby/x"})
    with pytest.raises(BadSetting, match="expected postgresql://user@standby/name"):
        read_settings({}, {"HELIOGRAPH_DATABASE_READ": "sqlite:///x.db"})


async def execute(server: PostgresServer, statement: str) -> None:
    connection: Any = await asyncpg.connect(server.url())
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
