"""A database URL with several hosts: the writable one is used, and no other host causes a long delay."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from heliograph.bootstrap import make_database
from heliograph.cli.options import without_password
from heliograph.settings import Settings
from heliograph.storage.engine import postgres
from heliograph.storage.engine.database import StoreUnavailable
from heliograph.storage.engine.migrate import migrate_postgres
from heliograph.storage.engine.postgres import Hosts, PostgresDatabase, connect
from tests.conftest import fresh_database
from tests.storage.hanging import Network
from tests.storage.test_outage import bump, until_written

pytestmark = pytest.mark.anyio


def together(first: str, second: str) -> str:
    """Return one URL that names the hosts of both."""
    host = urlsplit(second).netloc.rpartition("@")[2]
    return urlunsplit((parts := urlsplit(first))._replace(netloc=f"{parts.netloc},{host}"))


@pytest.fixture
def url(postgres: str) -> str:
    return fresh_database(postgres)


@pytest.mark.parametrize("turned", [False, True], ids=["first", "second"])
async def test_database_host_that_drops_packets_is_skipped(url: str, turned: bool) -> None:
    """A start waits for this host only for its share of the time."""
    dead, live = Network(url), Network(url)
    dead.hang()
    async with dead.open() as nowhere, live.open() as there:
        address = together(there, nowhere) if turned else together(nowhere, there)
        await migrate_postgres(address)
        database = PostgresDatabase(address)
        assert await database.write(bump) == 1
        requested = dead.connections
        live.drop()
        assert await until_written(database) == 2
        assert dead.connections == requested  # the host that responded last is tried first
        await database.close()


async def test_connection_error_names_the_answer_of_each_host() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1: .+; 127\.0\.0\.2:2: .+") as failed:
        await connect(Hosts("postgresql://u:hush@127.0.0.1:1,127.0.0.2:2/x"))
    assert "hush" not in str(failed.value)


async def test_silent_hosts_are_tried_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is promoted meanwhile is used, although the others never respond."""
    requested, ended = list[str](), list[str]()
    accepted = cast(Any, SimpleNamespace(_transport=SimpleNamespace(get_extra_info=lambda _: None)))

    async def answer(url: str, **_: Any) -> Any:
        requested.append(url)
        try:
            await asyncio.sleep(0 if "h3" in url else 3600)
        finally:
            ended.append(url)
        return accepted

    monkeypatch.setattr(asyncpg, "connect", answer)
    monkeypatch.setattr(postgres, "NEXT_HOST_S", 0.01)
    hosts = Hosts("postgresql://u@h1,h2,h3/x", connect_s=60)
    assert await connect(hosts) is accepted
    await asyncio.sleep(0)
    assert len(requested) == len(ended) == 3
    assert await connect(hosts) is accepted
    assert "h3" in requested[3]
    assert len(requested) == 4


def test_connect_timeout_setting_is_used() -> None:
    assert make_database(Settings(database="postgresql://u@h1/x", database_connect_s=7))._hosts.connect_s == 7  # type: ignore[attr-defined]


def test_connection_error_of_several_hosts_hides_the_password() -> None:
    assert without_password("postgresql://u:hush@h1:1,h2:2/x?target_session_attrs=any") == "postgresql://u@h1:1,h2:2/x"


async def test_read_only_host_is_skipped(url: str) -> None:
    """Like two standbys, one of which is promoted."""
    await migrate_postgres(url)
    first, second = Network(url), Network(url)
    admin: Any = await asyncpg.connect(url)
    name = await admin.fetchval("SELECT current_database()")
    await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with first.open() as item, second.open() as other:
        database = PostgresDatabase(together(item, other))
        with pytest.raises(StoreUnavailable, match="read-write.*read-write"):
            await database.write(bump)
        assert first.connections == second.connections == 1
        await admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        assert await database.write(bump) == 1
        await database.close()
    await admin.close()
