"""P33: a claim takes at most the requested rows, whatever statistics PostgreSQL has about its tables."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heliograph.bootstrap import open_store
from heliograph.domain.delivery.lanes import PRIORITIES
from heliograph.domain.limits import CRASHES_MAX
from heliograph.domain.setup.records import Priority
from heliograph.settings import Settings
from heliograph.storage.engine import postgres as engine
from heliograph.storage.engine.query import Statement, load_queries
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.conftest import fresh_database
from tests.storage.conftest import Sql, asking
from tests.storage.samples import message

pytestmark = pytest.mark.anyio

NOW, WAITING, LIMIT = 1_000_000, 40, 8  # as many rows as one page of the table holds
OUTBOX = """INSERT INTO outbox
(lane, team, message, position, due_at, first_at, attempt, deferrals, claims, epoch, held_at)
SELECT 'email', 1, n, 0, DUE_AT, 0, 0, '', CLAIMS, 0, HELD_AT FROM generate_series(1, COUNT) AS n"""
VERIFICATION = """INSERT INTO verification
(id, team, key_id, phone, prefix, magic, sandbox, status, wrong, salt, digest, price, charge,
 created_at, expires_at, next_at)
SELECT 'ver_' || gen_random_uuid(), 1, 'key', '+1', '+1', 0, 0, 'pending', 0, '', '', 0, '', 0, 0, 0
FROM generate_series(1, COUNT) AS n"""
DOMAIN = """INSERT INTO domain_check (domain, next_at, since)
SELECT gen_random_uuid()::text, 0, 0 FROM generate_series(1, COUNT) AS n"""


class Claiming:
    """A claiming query: how to fill its table, its parameters, and which rows count as taken."""

    def __init__(self, query: str, insert: str, taken: str, params: dict[str, Any], most: int = LIMIT) -> None:
        self.query, self.taken, self.params, self.most = query, taken, params, most
        self.table = insert.split()[2]
        self._insert = insert

    def fill(self, count: int) -> str:
        return self._insert.replace("COUNT", str(count))


def _outbox(due_at: int, claims: int, held_at: str) -> str:
    return OUTBOX.replace("DUE_AT", str(due_at)).replace("CLAIMS", str(claims)).replace("HELD_AT", held_at)


OWNER = {"owner": "seat/0", "lease_until": NOW}
TAKEN = "owner IS NOT NULL"
MOVED = {"now": NOW, "moved": []}
CLAIMING = [
    Claiming(
        "claim",
        _outbox(due_at=0, claims=0, held_at="NULL"),
        TAKEN,
        OWNER | {"lane": "email", "teams": [(1, NOW)], "share": LIMIT, "claims": 2},
    ),
    Claiming(
        "claim_poison_candidate",
        _outbox(due_at=0, claims=2, held_at="NULL"),
        TAKEN,
        OWNER | MOVED | {"deaths": CRASHES_MAX, "again": 1},
        most=1,
    ),
    Claiming(
        "wake_held",
        _outbox(due_at=2 * NOW, claims=0, held_at="0"),
        "due_at = 0",
        {"lanes": [("email",), ("email:critical",)], "now": NOW, "most": LIMIT},
    ),
    Claiming("claim_codes", VERIFICATION, TAKEN, OWNER | MOVED | {"limit": LIMIT}),
    Claiming("claim_domain_checks", DOMAIN, "next_at > 0", {"until": 2 * NOW, "now": NOW, "most": LIMIT}),
]


async def _never(sql: Sql, claiming: Claiming) -> None:
    """Leave the table without statistics, as in a new database."""


async def _empty(sql: Sql, claiming: Claiming) -> None:
    await sql(f"VACUUM ANALYZE {claiming.table}")


async def _one_row(sql: Sql, claiming: Claiming) -> None:
    """Fill the table with one row and analyse it, as autovacuum does when a long queue is nearly empty."""
    await sql(claiming.fill(1))
    await sql(f"VACUUM ANALYZE {claiming.table}")


async def _stale(sql: Sql, claiming: Claiming) -> None:
    await sql(claiming.fill(5000))
    await sql(f"VACUUM ANALYZE {claiming.table}")
    await sql(f"DELETE FROM {claiming.table}")


@pytest.fixture
def open_planned(
    postgres: str, tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Any]:
    """Return a function that opens a store on a database without statistics; its sessions have one plan mode."""
    settings = Settings(database=fresh_database(postgres), data=tmp_path / "data")

    @asynccontextmanager
    async def opened(mode: str) -> AsyncIterator[tuple[Store, Sql]]:
        monkeypatch.setitem(engine.SESSION_SETTINGS, "plan_cache_mode", mode)
        async with open_store(settings, clock, "seat/0") as store, asking(settings) as sql:
            yield store, sql

    return opened


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("analyse", [_never, _empty, _one_row, _stale], ids=lambda step: step.__name__.strip("_"))
@pytest.mark.parametrize("claiming", CLAIMING, ids=lambda one: one.query)
async def test_claim_with_any_statistics_takes_what_it_returns(
    open_planned: Callable[[str], Any], claiming: Claiming, analyse: Callable[[Sql, Claiming], Any], mode: str
) -> None:
    async with open_planned(mode) as (store, sql):
        await analyse(sql, claiming)
        await sql(claiming.fill(WAITING))
        for claims in range(1, 4):  # dead rows of the first claim must not affect the next
            rows = await store.database.write(lambda tx: tx.run(claiming.query, **claiming.params))
            ((taken,),) = await sql(f"SELECT count(*) FROM {claiming.table} WHERE {claiming.taken}")
            assert (len(rows), taken) == (claiming.most, claims * claiming.most)


@pytest.fixture
def exceeding(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the claiming queries, so that they take five rows too many."""
    queries: dict[str, Statement] = dict(store.database._queries)  # type: ignore[attr-defined]
    for name in ("claim", "claim_poison_candidate", "claim_codes"):
        sql = re.sub(r"LIMIT (\S+)", r"LIMIT \1 + 5", queries[name].sql)
        queries[name] = msgspec.structs.replace(queries[name], sql=sql)
    monkeypatch.setattr(store.database, "_queries", queries)


@pytest.mark.usefixtures("exceeding")
@pytest.mark.parametrize("room", [None, dict.fromkeys(PRIORITIES, 3)])
async def test_claim_beyond_its_limit_releases_the_surplus(
    store: Store, sql: Sql, clock: TestClock, room: dict[Priority, int] | None
) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock, team=team)) for team in (1, 2) for _ in range(20)))
    claims = await store.outbox.claim("email", 8, room)
    assert len(claims) == (3 if room else 8)
    owned = await sql("SELECT key FROM outbox WHERE owner IS NOT NULL")
    assert {key for (key,) in owned} == {claim.key for claim in claims}
    assert await sql("SELECT count(*) FROM outbox WHERE owner IS NULL AND claims > 0") == [(0,)]


@pytest.mark.usefixtures("exceeding")
async def test_claim_suspect_beyond_its_limit_releases_the_surplus(store: Store, sql: Sql, clock: TestClock) -> None:
    await asyncio.gather(*(store.messages.accept(message(clock)) for _ in range(10)))
    await sql("UPDATE outbox SET claims = 2")
    (claim,) = await store.outbox.claim_poison_candidate()
    assert await sql("SELECT key FROM outbox WHERE owner IS NOT NULL") == [(claim.key,)]
    assert await sql("SELECT key FROM outbox WHERE alone > 0") == [(claim.key,)]


@pytest.mark.usefixtures("exceeding")
async def test_claim_codes_beyond_its_limit_releases_the_surplus(store: Store, sql: Sql) -> None:
    for number in range(20):
        await sql(VERIFICATION.replace("gen_random_uuid()", str(number)).partition("FROM generate_series")[0])
    claimed = await store.verifications.claim_codes("seat/0", 8)
    assert len(claimed) == 8
    assert {id_ for (id_,) in await sql("SELECT id FROM verification WHERE owner IS NOT NULL")} == {
        item.id for item in claimed
    }


NESTED = re.compile(r"(\w+)?\s*\((?=\s*SELECT\b)", re.I)


def _nested(sql: str) -> Sequence[tuple[str, str]]:
    """Return the subqueries of a statement, each with the word before its bracket."""
    result = list[tuple[str, str]]()
    for start in NESTED.finditer(sql):
        depth = 1
        for end in range(start.end(), len(sql)):
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            if not depth:
                result.append((start[1] or "", sql[start.end() : end]))
                break
    return result


def test_every_query_that_locks_in_a_subquery_materialises_it() -> None:
    """PostgreSQL may run other subqueries once per row; SKIP LOCKED then finds other rows each time."""
    queries = {name: query.sql for name, query in load_queries("postgres").items()}
    changing = {name: sql for name, sql in queries.items() if re.search(r"^\s*(UPDATE|DELETE|WITH)\b", sql, re.M)}
    locking = {
        name: [word for word, inner in _nested(sql) if re.search(r"\bFOR (NO KEY )?UPDATE\b", inner)]
        for name, sql in changing.items()
    }
    locking = {name: words for name, words in locking.items() if words}
    assert {*locking} >= {"claim", "claim_poison_candidate", "wake_held", "claim_codes"}
    assert {name for name, words in locking.items() if words[0] != "MATERIALIZED"} == set()
