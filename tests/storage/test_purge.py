"""Retention: contents for 7 days after the end, messages for 90, or as each team sets; files while in use."""

from functools import partial

import pytest
from msgspec.structs import replace

from heliograph.domain.delivery.outcome import DueReport, Report
from heliograph.domain.limits import DAY_MS, HOUR_MS
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import TeamClock, TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage import retention
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.purge import MESSAGE_QUERIES, purge_final
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.setup_helpers import SET_UP, set_up
from tests.storage.conftest import Sql
from tests.storage.samples import finish, message, retry_key, start

pytestmark = pytest.mark.anyio

TABLES = ("message", "recipient", "event", "content", "blob", "ledger", "idempotency", "marketing", "tag")


async def end(store: Store, clock: TestClock, status: str = "delivered") -> None:
    """Deliver the due messages."""
    for lane in ("email", "phone"):
        for claim in await store.outbox.claim(lane, 100):
            change = RecipientUpdate(
                at=clock.now(),
                message=claim.message,
                position=claim.position,
                claim=claim.token,
                target_status=status,
                accepted=True,
            )
            await store.outbox.record(change)


async def put_away(store: Store) -> None:
    await store.maintenance.purge()
    await store.attachments.delete_unused()


async def counts(sql: Sql) -> dict[str, int]:
    return {table: (await sql(f"SELECT count(*) FROM {table}"))[0][0] for table in TABLES}


async def test_purge_deletes_bodies_after_seven_days_and_messages_after_ninety(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    file = store.local_files.put(b"attachment")
    await store.messages.accept(
        message(
            clock,
            price=5,
            extra_fields=ExtraFields(tags={"a": "b"}),
            blobs=[file],
            idempotency_key=retry_key("k"),
            marketing_to="a@example.com",
        )
    )
    await end(store, clock)
    whole = await counts(sql)
    assert whole["event"] == 2
    clock.forward(7 * DAY_MS - HOUR_MS)
    await store.maintenance.purge()
    assert await counts(sql) == whole | {"idempotency": 0, "marketing": 0}
    await store.attachments.delete_unused()
    assert store.local_files.get(file) == b"attachment"
    clock.forward(HOUR_MS)
    await put_away(store)
    assert await counts(sql) == whole | {"idempotency": 0, "marketing": 0, "content": 0, "blob": 0}
    with pytest.raises(FileNotFoundError):
        store.local_files.get(file)
    clock.forward(83 * DAY_MS - HOUR_MS)
    await store.maintenance.purge()
    assert (await counts(sql))["message"] == 1
    clock.forward(HOUR_MS)
    await store.maintenance.purge()
    assert await counts(sql) == dict.fromkeys(TABLES, 0) | {"ledger": whole["ledger"]}  # the ledger stays


async def set_days(store: Store, team: int, content: int, messages: int) -> None:
    record = TeamRecord(ref=team, id="team_a", name="A", keep_content_days=content, keep_messages_days=messages)
    await set_up(store, rows=[to_row("team", "team_a", record, "team_a")])


@pytest.mark.parametrize(
    ("days", "gone_first"), [((1, 2), 2), ((90, 3650), 1)], ids=["sooner than others", "later than others"]
)
async def test_purge_follows_the_retention_of_each_team(
    store: Store, clock: TestClock, sql: Sql, days: tuple[int, int], gone_first: int
) -> None:
    """Team 2 has its own retention, team 1 the defaults."""
    own, default = dict(zip(("content", "messages"), days, strict=True)), {"content": 7, "messages": 90}
    await set_days(store, 2, *days)
    for team in (1, 2):
        await store.messages.accept(message(clock, team=team))
        started = start(clock, team=team, added=ExtraFields(tags={"a": "b"}))
        await store.verifications.start(started)
        await store.verifications.finish(finish(started, clock))
    await end(store, clock)
    began = clock.now()

    async def left(table: str) -> set[int]:
        return {team for (team,) in await sql(f"SELECT team FROM {table}")}

    contents = "content c JOIN message m ON m.key = c.message"
    for table, kind in (
        (contents, "content"),
        ("message", "messages"),
        ("verification", "messages"),
        ("tag", "messages"),
    ):
        for moment in sorted({(own[kind], 2), (default[kind], 1)}):
            clock.forward(began + moment[0] * DAY_MS - 1 - clock.now())
            await store.maintenance.purge()
            if clock.now() < began + moment[0] * DAY_MS:
                assert moment[1] in await left(table), "not a moment too soon"
            clock.forward(1)
            await store.maintenance.purge()
            assert moment[1] not in await left(table)


async def test_purge_with_a_long_retention_team_still_purges_other_teams(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    await set_days(store, 1, 90, 3650)
    for _ in range(3):
        await store.messages.accept(message(clock))
    await end(store, clock)
    await store.messages.accept(message(clock, team=2))
    await end(store, clock)
    clock.forward(90 * DAY_MS)
    await store.maintenance.purge()
    assert await sql("SELECT DISTINCT team FROM message") == [(1,)]


async def test_purge_keeps_a_message_that_was_retried_meanwhile(store: Store, clock: TestClock, sql: Sql) -> None:
    """The read found it final; it was retried before the write."""
    await store.messages.accept(message(clock))
    await end(store, clock)
    (key,) = (await sql("SELECT key FROM message"))[0]
    reopened = [(key, "none", 1)]
    await store.database.write(lambda tx: tx.run("reopen_messages", messages=reopened))
    await store.database.write(partial(purge_final, rows=[(key,)], queries=MESSAGE_QUERIES))
    assert (await counts(sql))["message"] == 1


@pytest.mark.parametrize("whole", [False, True])
async def test_message_is_purged_early_on_request(store: Store, clock: TestClock, sql: Sql, whole: bool) -> None:
    first, second = message(clock), message(clock, idempotency_key=retry_key("2"))
    for item in (first, second):
        await store.messages.accept(item)
    assert await store.messages.purge_early(1, first.id, SET_UP, whole_message=whole) is False
    await end(store, clock)
    assert await store.messages.purge_early(1, first.id, SET_UP, whole_message=whole)
    assert await store.messages.purge_early(2, second.id, SET_UP, whole_message=whole) is None
    assert await sql("SELECT id, has_body FROM message ORDER BY key") == [
        *([] if whole else [(first.id, 0)]),
        (second.id, 1),
    ]
    assert (await counts(sql))["content"] == 1
    assert await sql("SELECT count(*) FROM audit") == [(1,)]


async def test_late_reports_of_a_deleted_message_change_no_other_message(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    """The deleted message was the newest: on SQLite the next message, of any team, reused its key."""
    gone = message(clock, "+15005550006", channel="whatsapp")
    await store.messages.accept(gone)
    (claim,) = await store.outbox.claim("phone", 10)
    reports = [DueReport(0, Report(status="delivered")), DueReport(200, Report(status="read"))]
    sent = RecipientUpdate(
        at=clock.now(), message=claim.message, position=0, target_status="sent", accepted=True, claim=claim.token
    )
    await store.outbox.record(replace(sent, reports=reports, lane="phone"))
    await store.outbox.claim("phone", 10)
    assert await store.messages.purge_early(1, gone.id, SET_UP, whole_message=True)
    other = message(clock, "+447700900123", team=2, channel="whatsapp", price=500)
    await store.messages.accept(other)
    clock.forward(1000)
    await store.outbox.claim("phone", 10)
    assert await sql("SELECT id, status, charge FROM message") == [(other.id, "sending", "held")]


async def test_purge_of_a_test_clock_deletes_nothing_of_other_teams(store: Store, clock: TestClock, sql: Sql) -> None:
    """At its target time, the team's expired data is purged; other teams keep theirs."""
    moving = TeamRecord(id="team_1", name="One", ref=1, test_clock=True)
    keeping = TeamRecord(id="team_2", name="Two", ref=2, keep_content_days=60)
    ahead = TeamClock(team="team_1", ahead=0, target=1000)
    rows = [to_row("team", team.id, team, team.id) for team in (moving, keeping)]
    await set_up(store, rows=[*rows, to_row("test_clock", "team_1", ahead, "team_1")])
    for team in (1, 2):
        await store.messages.accept(message(clock, team=team))
    await end(store, clock)
    clock.forward(10 * DAY_MS)
    assert await store.team_clocks.advance(store.setup.current.teams["team_1"])
    assert await sql("SELECT team, has_body FROM message ORDER BY team") == [(1, 0), (2, 1)]


async def test_purge_of_many_messages_deletes_all(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    for number in range(5):
        await store.messages.accept(
            message(clock, idempotency_key=retry_key(f"{number}"), marketing_to="a@example.com")
        )
    await end(store, clock)
    clock.forward(90 * DAY_MS)
    await store.maintenance.purge()
    assert await counts(sql) == dict.fromkeys(TABLES, 0) | {"ledger": 2}


async def test_purge_keeps_unfinished_messages(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.messages.accept(message(clock))
    await store.messages.accept(message(clock, "a@example.com", "b@example.com"))
    item, *_ = await store.outbox.claim("email", 1)
    await store.outbox.record(
        RecipientUpdate(at=clock.now(), message=item.message, position=0, target_status="sent", claim=item.token)
    )
    whole = await counts(sql)
    clock.forward(1000 * DAY_MS)
    await store.maintenance.purge()
    assert await counts(sql) == whole


async def test_purge_keeps_a_file_that_another_message_uses(store: Store, clock: TestClock, sql: Sql) -> None:
    file = store.local_files.put(b"attachment")
    await store.messages.accept(message(clock, blobs=[file]))
    await end(store, clock)
    clock.forward(6 * DAY_MS)
    await store.messages.accept(message(clock, blobs=[file]))
    await end(store, clock)
    clock.forward(DAY_MS)
    await put_away(store)
    assert (await counts(sql))["blob"] == 1
    assert store.local_files.get(file) == b"attachment"
    clock.forward(6 * DAY_MS)
    await put_away(store)
    with pytest.raises(FileNotFoundError):
        store.local_files.get(file)


async def test_purge_keeps_a_file_that_was_just_stored_again(store: Store, clock: TestClock) -> None:
    """Its new message is not committed yet, so the database has no reference."""
    file = store.local_files.put(b"attachment")
    assert store.local_files.list_old(clock.now()) == []
    store.local_files.delete(file, clock.now())
    assert store.local_files.get(file) == b"attachment"


async def test_purge_deletes_a_file_that_no_message_ever_used(store: Store, clock: TestClock) -> None:
    file = store.local_files.put(b"attachment")
    clock.forward(DAY_MS)
    await store.attachments.delete_unused()
    with pytest.raises(FileNotFoundError):
        store.local_files.get(file)
