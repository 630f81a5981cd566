"""Retention: bodies for 7 days after the end, the rest for 90, or as each team says; files while they are needed."""

import re
from typing import Any

import pytest

from heliograph.rules.limits import DAY_MS
from heliograph.rules.setup import to_row
from heliograph.rules.team import TeamRecord
from heliograph.storage.query import bound, load_queries
from heliograph.storage.sqlite import SqliteDatabase
from heliograph.storage.store import Change, SetupChange, Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import finish, message, once, start

pytestmark = pytest.mark.anyio

TABLES = ("message", "recipient", "event", "content", "blob", "ledger", "idempotency", "marketing")


async def end(store: Store, clock: TestClock, status: str = "delivered") -> None:
    """Hand over whatever is due."""
    for lane in ("email", "phone"):
        for claim in await store.claim(lane, 100):
            change = Change(
                at=clock.now(),
                message=claim.message,
                position=claim.position,
                claim=(claim.key, claim.epoch),
                wanted=status,
                accepted=True,
            )
            await store.record(change)


async def put_away(store: Store) -> None:
    await store.purge()
    await store.sweep_blobs()


async def counts(sql: Sql) -> dict[str, int]:
    return {table: (await sql(f"SELECT count(*) FROM {table}"))[0][0] for table in TABLES}


async def test_bodies_go_after_seven_days_and_the_rest_after_ninety(store: Store, clock: TestClock, sql: Sql) -> None:
    file = store.blobs.put(b"attachment")
    await store.accept(message(clock, price=5, blobs=[file], once=once("k"), marketing_to="a@example.com"))
    await end(store, clock)
    whole = await counts(sql)
    assert whole["event"] == 2
    clock.forward(7 * DAY_MS - 1000)
    await store.purge()
    assert await counts(sql) == whole | {"idempotency": 0, "marketing": 0}
    await store.sweep_blobs()
    assert store.blobs.get(file) == b"attachment"
    clock.forward(1000)
    await put_away(store)
    assert await counts(sql) == whole | {"idempotency": 0, "marketing": 0, "content": 0, "blob": 0}
    with pytest.raises(FileNotFoundError):
        store.blobs.get(file)
    clock.forward(83 * DAY_MS - 1000)
    await store.purge()
    assert (await counts(sql))["message"] == 1
    clock.forward(1000)
    await store.purge()
    assert await counts(sql) == dict.fromkeys(TABLES, 0) | {"ledger": whole["ledger"]}  # the ledger stays


async def set_days(store: Store, team: int, content: int, messages: int) -> None:
    record = TeamRecord(ref=team, id="team_a", name="A", keep_content_days=content, keep_messages_days=messages)
    await store.change_setup(lambda _, __: SetupChange(rows=[to_row("team", "team_a", record, "team_a")]))


@pytest.mark.parametrize(
    ("days", "gone_first"), [((1, 2), 2), ((90, 3650), 1)], ids=["sooner than others", "later than others"]
)
async def test_each_team_keeps_things_as_long_as_it_says(
    store: Store, clock: TestClock, sql: Sql, days: tuple[int, int], gone_first: int
) -> None:
    """Team 2 has times of its own, team 1 the defaults."""
    own, default = dict(zip(("content", "messages"), days, strict=True)), {"content": 7, "messages": 90}
    await set_days(store, 2, *days)
    for team in (1, 2):
        await store.accept(message(clock, team=team))
        begun = start(clock, team=team)
        await store.start_verification(begun)
        await store.finish_verification(finish(begun, clock))
    await end(store, clock)
    began = clock.now()

    async def left(table: str) -> set[int]:
        return {team for (team,) in await sql(f"SELECT team FROM {table}")}

    contents = "content c JOIN message m ON m.key = c.message"
    for table, kind in ((contents, "content"), ("message", "messages"), ("verification", "messages")):
        for moment in sorted({(own[kind], 2), (default[kind], 1)}):
            clock.forward(began + moment[0] * DAY_MS - 1 - clock.now())
            await store.purge()
            if clock.now() < began + moment[0] * DAY_MS:
                assert moment[1] in await left(table), "not a moment too soon"
            clock.forward(1)
            await store.purge()
            assert moment[1] not in await left(table)


async def test_a_team_that_keeps_long_does_not_hide_what_others_no_longer_keep(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    await set_days(store, 1, 90, 3650)
    for _ in range(3):
        await store.accept(message(clock))
    await end(store, clock)
    await store.accept(message(clock, team=2))
    await end(store, clock)
    clock.forward(90 * DAY_MS)
    await store.purge()
    assert await sql("SELECT DISTINCT team FROM message") == [(1,)]


PURGES = ("ended_messages", "ended_with_body", "old_verifications", "old_lone_events", "old_inbox_codes")


async def test_no_purge_reads_a_whole_table(store: Store, sql: Sql) -> None:
    """With 20,000 messages, verifications and events that are kept, each is looked for along its index."""
    await fill(store, sql)
    for name in PURGES:
        steps = await scans(store, sql, name, {"own": [(2, 5)], "before": 1, "limit": 500})
        assert all(step.startswith(("SCAN a", "SCAN r", "Seq Scan on account")) for step in steps), f"{name}: {steps}"


async def scans(store: Store, sql: Sql, name: str, given: dict[str, Any]) -> list[str]:
    """The steps of a query's plan that read a whole table; those that read parameters aside."""
    is_sqlite = isinstance(store.database, SqliteDatabase)
    query = load_queries("sqlite" if is_sqlite else "postgres")[name]
    values = bound(query, dict(given))
    text = query.sql
    for number, param in reversed(list(enumerate(query.params, 1))):
        value = values[param] if isinstance(values[param], int) else f"'{values[param]}'"
        text = re.sub(rf":{param}\b" if is_sqlite else rf"\${number}(?![0-9])", str(value), text)
    plan = await sql(("EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN ") + text)
    steps = [str(row[-1]).lstrip(" ->") for row in plan]
    return [step for step in steps if step.startswith(("SCAN ", "Seq Scan")) and "jsonb_each" not in step]


async def fill(store: Store, sql: Sql) -> None:
    """20,000 rows of each, of both teams."""
    if isinstance(store.database, SqliteDatabase):
        numbers = "(WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 20000) SELECT x FROM n)"
    else:
        numbers = "(SELECT generate_series(1, 20000) AS x)"
    await sql(
        "INSERT INTO message (id, team, channel, status, sandbox, key_id, price, charge, sequence, created_at,"
        " ended_at, has_body, record)"
        f" SELECT 'eml_' || x, 1 + x % 2, 'email', 'delivered', 0, 'k', 0, 'none', 1, x + 9, x + 9, 1, '{{}}'"
        f" FROM {numbers} AS n"
    )
    await sql(
        "INSERT INTO verification (id, team, key_id, phone, prefix, magic, sandbox, status, wrong, salt, digest, price,"
        " charge, created_at, expires_at)"
        " SELECT 'vrf_' || x, 1 + x % 2, 'k', '+1', '+1', 0, 0, 'expired', 0, '', '', 0, 'none', x + 9, x + 9"
        f" FROM {numbers} AS n"
    )
    await sql(
        "INSERT INTO event (id, team, subject, message, type, created_at)"
        f" SELECT 'evt_' || x, 1 + x % 2, 's', CASE WHEN x % 3 > 0 THEN x END, 't', x + 9 FROM {numbers} AS n"
    )
    await sql(
        "INSERT INTO inbox_code (team, verification, sealed, created_at)"
        f" SELECT 1 + x % 2, 'vrf_' || x, '', x + 9 FROM {numbers} AS n"
    )
    await sql(
        "INSERT INTO recipient (message, position, address, given, kind, status, updated_at, late)"
        f" SELECT x, 0, 'a', 'a', 'to', 'delivered', 1, 0 FROM {numbers} AS n"
    )
    await sql(f"INSERT INTO content (message, body) SELECT x, '' FROM {numbers} AS n")
    await sql("ANALYZE")


async def test_nothing_unfinished_is_ever_purged(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.accept(message(clock))
    await store.accept(message(clock, "a@example.com", "b@example.com"))
    one, *_ = await store.claim("email", 1)
    await store.record(Change(at=clock.now(), message=one.message, position=0, wanted="sent", claim=(one.key, 1)))
    whole = await counts(sql)
    clock.forward(1000 * DAY_MS)
    await store.purge()
    assert await counts(sql) == whole


async def test_a_file_stays_while_another_message_needs_it(store: Store, clock: TestClock, sql: Sql) -> None:
    file = store.blobs.put(b"attachment")
    await store.accept(message(clock, blobs=[file]))
    await end(store, clock)
    clock.forward(6 * DAY_MS)
    await store.accept(message(clock, blobs=[file]))
    await end(store, clock)
    clock.forward(DAY_MS)
    await put_away(store)
    assert (await counts(sql))["blob"] == 1
    assert store.blobs.get(file) == b"attachment"
    clock.forward(6 * DAY_MS)
    await put_away(store)
    with pytest.raises(FileNotFoundError):
        store.blobs.get(file)


async def test_a_file_that_was_just_put_again_stays(store: Store, clock: TestClock) -> None:
    """Its new message is not written yet, so the database cannot know."""
    file = store.blobs.put(b"attachment")
    assert store.blobs.old(clock.now()) == []
    store.blobs.drop(file, clock.now())
    assert store.blobs.get(file) == b"attachment"


async def test_a_file_whose_message_never_came_goes(store: Store, clock: TestClock) -> None:
    file = store.blobs.put(b"attachment")
    clock.forward(DAY_MS)
    await store.sweep_blobs()
    with pytest.raises(FileNotFoundError):
        store.blobs.get(file)
