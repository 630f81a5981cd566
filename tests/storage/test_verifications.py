"""A code works once, has five guesses and ten minutes; limits of starts hold across processes."""

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import pytest

from heliograph.domain.limits import DAY_MS, HOUR_MS, IDEMPOTENCY_LEASE_MS, VERIFICATION_MS
from heliograph.domain.refusals import InsufficientCredit, VerificationNotFound, VerifyRateLimited
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.storage.verifications import Start, VelocityWindow
from tests.clocks import TestClock
from tests.lock_waits import LOCK_WAITS
from tests.storage.conftest import CREDIT, Sql
from tests.storage.samples import PHONE, RIGHT, WRONG, check, finish, let_leases_end, start

pytestmark = pytest.mark.anyio


async def begin(store: Store, clock: TestClock, **more: Any) -> Start:
    started = start(clock, **more)
    assert await store.verifications.start(started) is None
    await store.verifications.finish(finish(started, clock))
    return started


async def test_hundred_concurrent_wrong_codes_count_five(store: Store, other: Store, clock: TestClock) -> None:
    started = await begin(store, clock)
    tries = [check(started, WRONG, clock.now()) for _ in range(100)]
    results = await asyncio.gather(*((store, other)[i % 2].verifications.check(t) for i, t in enumerate(tries)))
    assert Counter(r.status for r in results) == {"pending": 4, "exhausted": 96}
    stored = await store.verifications.get(1, started.id)
    assert stored
    assert (stored.status, stored.wrong) == ("exhausted", 5)
    assert not (await store.verifications.check(check(started, RIGHT, clock.now()))).verified


async def test_fifty_concurrent_right_codes_verify_once(store: Store, other: Store, clock: TestClock, sql: Sql) -> None:
    started = await begin(store, clock)
    tries = [check(started, RIGHT, clock.now()) for _ in range(50)]
    results = await asyncio.gather(*((store, other)[i % 2].verifications.check(t) for i, t in enumerate(tries)))
    assert Counter((r.verified, r.status) for r in results) == {(True, "verified"): 1, (False, "verified"): 49}
    assert await sql("SELECT type, count(*) FROM event GROUP BY type") == [("verification.verified", 1)]


@pytest.mark.parametrize(
    ("after_ms", "expected"), [(VERIFICATION_MS - 1, (True, "verified")), (VERIFICATION_MS, (False, "expired"))]
)
async def test_code_expires_after_ten_minutes(
    store: Store, clock: TestClock, after_ms: int, expected: tuple[bool, str]
) -> None:
    started = await begin(store, clock)
    result = await store.verifications.check(check(started, RIGHT, started.created_at + after_ms))
    assert (result.verified, result.status) == expected


async def test_four_wrong_codes_leave_one_attempt(store: Store, clock: TestClock) -> None:
    started = await begin(store, clock)
    for _ in range(4):
        await store.verifications.check(check(started, WRONG, clock.now()))
    assert (await store.verifications.check(check(started, RIGHT, clock.now()))).verified


async def test_verification_of_another_team_is_not_found(store: Store, clock: TestClock) -> None:
    started = await begin(store, clock)
    with pytest.raises(VerificationNotFound):
        await store.verifications.check(check(start(clock, id=started.id, team=2), RIGHT, clock.now()))


async def test_unknown_verification_id_in_a_group_fails_alone(store: Store, clock: TestClock) -> None:
    started = await begin(store, clock)
    unknown = check(start(clock), RIGHT, clock.now())
    results = await asyncio.gather(
        store.verifications.check(unknown),
        store.verifications.check(check(started, RIGHT, clock.now())),
        return_exceptions=True,
    )
    assert isinstance(results[0], VerificationNotFound)
    assert not isinstance(results[1], BaseException)
    assert results[1].verified


# -- limits -----------------------------------------------------------------------------------------------------


def at_most(count: int) -> Any:
    def look(recent: VelocityWindow) -> None:
        if len(recent.phone_starts) >= count:
            raise VerifyRateLimited(retry_after=1)

    return look


async def test_verification_limits_hold_over_two_processes(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    starts = [start(clock, check=at_most(5), owner=f"seat/{i % 2}") for i in range(40)]
    results = await asyncio.gather(
        *((store, other)[i % 2].verifications.start(item) for i, item in enumerate(starts)), return_exceptions=True
    )
    assert Counter(type(r) for r in results) == {type(None): 5, VerifyRateLimited: 35}
    assert await sql("SELECT count(*) FROM verification") == [(5,)]


async def test_verification_limit_counts_the_matching_starts(store: Store, clock: TestClock) -> None:
    seen: list[tuple[int, int, int]] = []

    def look(recent: VelocityWindow) -> None:
        seen.append((len(recent.phone_starts), len(recent.prefix_starts), recent.wrong_today))

    clock.forward(DAY_MS - clock.now() % DAY_MS)  # midnight: all that follows is the same day
    first = await begin(store, clock)
    for _ in range(3):
        await store.verifications.check(check(first, WRONG, clock.now()))
    await begin(store, clock, phone=PHONE[:-4] + "9999")  # another phone with the same prefix
    await begin(store, clock, team=2)  # another team's phone
    await begin(store, clock, check=look)
    clock.forward(VERIFICATION_MS)
    await begin(store, clock, check=look)
    await begin(store, clock, check=look, is_magic=True)  # simulator numbers have no limits
    assert seen == [(1, 2, 3), (2, 0, 3)]


async def test_wrong_codes_are_counted_per_utc_day(store: Store, clock: TestClock) -> None:
    seen: list[tuple[int, int]] = []

    def look(recent: VelocityWindow) -> None:
        seen.append((len(recent.phone_starts), recent.wrong_today))

    clock.forward(DAY_MS - clock.now() % DAY_MS + DAY_MS - 60_000)  # a minute before midnight
    first = await begin(store, clock)
    await store.verifications.check(check(first, WRONG, clock.now()))
    await begin(store, clock, check=look)
    clock.forward(60_000)
    await begin(store, clock, check=look)
    assert seen == [(1, 1), (2, 0)]


# -- what the conversion guard counts -----------------------------------------------------------------------------

PLACES = ["*", "US", "+14155"]  # of PHONE


async def counts_by_area(sql: Sql, team: int = 1) -> dict[str, tuple[int, int]]:
    """Return starts and verified starts by area, over all hours."""
    rows = await sql(f"SELECT place, starts, verified FROM conversion WHERE team = {team} ORDER BY hour")
    sums: dict[str, tuple[int, int]] = {}
    for place, starts, verified in rows:
        before = sums.get(place, (0, 0))
        sums[place] = (before[0] + starts, before[1] + verified)
    return sums


async def test_starts_and_the_first_right_code_are_counted_per_range(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    first, second = await begin(store, clock), await begin(other, clock)
    await begin(store, clock, team=2)
    await store.verifications.check(check(first, WRONG, clock.now()))
    for process in (store, other):
        await process.verifications.check(check(second, RIGHT, clock.now()))
    assert await counts_by_area(sql) == dict.fromkeys(PLACES, (2, 1))
    assert await counts_by_area(sql, team=2) == dict.fromkeys(PLACES, (1, 0))


async def test_start_that_no_carrier_accepted_is_not_counted(store: Store, clock: TestClock, sql: Sql) -> None:
    refused = start(clock)
    await store.verifications.start(refused)
    assert await counts_by_area(sql) == dict.fromkeys(PLACES, (1, 0))
    clock.forward(HOUR_MS)
    await store.verifications.finish(finish(refused, clock, "failed"))
    assert await sql("SELECT DISTINCT starts, verified FROM conversion") == [(0, 0)]


async def test_starts_of_magic_numbers_are_not_counted(store: Store, clock: TestClock, sql: Sql) -> None:
    started = await begin(store, clock, phone="+15005550006", is_magic=True)
    await store.verifications.check(check(started, RIGHT, clock.now()))
    assert await counts_by_area(sql) == {}


async def test_conversion_check_gets_the_counters_of_the_last_day(store: Store, clock: TestClock) -> None:
    seen: list[tuple[list[list[int]], bool]] = []

    def look(recent: VelocityWindow) -> None:
        sums = [[sum(column) for column in zip(*tally.values(), strict=True)] for tally in recent.area_tallies]
        seen.append((sums, recent.is_known_phone))

    clock.forward(DAY_MS - clock.now() % DAY_MS)
    first = await begin(store, clock, check=look)
    await begin(store, clock, phone="+14155990000", check=look)  # of the same range
    await begin(store, clock, phone="+12125550100", check=look)  # of the same country
    await begin(store, clock, team=2, check=look)
    await store.verifications.check(check(first, RIGHT, clock.now()))
    await begin(store, clock, check=look)
    clock.forward(DAY_MS + HOUR_MS - 60_000)
    await begin(store, clock, check=look)
    clock.forward(60_000)
    await begin(store, clock, check=look)
    clock.forward(30 * DAY_MS)
    await begin(store, clock, check=look)
    assert seen == [
        ([[], [], []], False),
        ([[1, 0], [1, 0], [1, 0]], False),
        ([[2, 0], [2, 0], []], False),
        ([[], [], []], False),
        ([[3, 1], [3, 1], [2, 1]], True),
        ([[4, 1], [4, 1], [3, 1]], True),  # an hour counts for a day after its end
        ([[1, 0], [1, 0], [1, 0]], True),
        ([[], [], []], False),
    ]


async def test_starts_of_one_batch_count_against_each_other(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    def look(recent: VelocityWindow) -> None:
        if sum(starts for starts, _ in recent.area_tallies[0].values()) >= 10:
            raise VerifyRateLimited(retry_after=1)

    phones = [f"+1{area}5550100" for area in range(200, 264)]  # only the team is the same
    results = await asyncio.gather(
        *(
            (store, other)[i % 2].verifications.start(start(clock, phone=phone, prefix=phone[:-4], check=look))
            for i, phone in enumerate(phones)
        ),
        return_exceptions=True,
    )
    assert Counter(type(r) for r in results) == {type(None): 10, VerifyRateLimited: 54}
    assert (await counts_by_area(sql))["*"] == (10, 0)


async def test_verification_dry_run_decides_and_writes_nothing(store: Store, clock: TestClock, sql: Sql) -> None:
    await store.verifications.dry_run(start(clock, price=50, check=at_most(1)))
    await begin(store, clock)
    with pytest.raises(VerifyRateLimited):
        await store.verifications.dry_run(start(clock, check=at_most(1)))
    with pytest.raises(InsufficientCredit):
        await store.verifications.dry_run(start(clock, price=CREDIT + 1))
    assert (await sql("SELECT count(*) FROM verification"), await counts_by_area(sql)) == (
        [(1,)],
        dict.fromkeys(PLACES, (1, 0)),
    )


async def test_old_verification_counts_are_deleted(store: Store, clock: TestClock, sql: Sql) -> None:
    await begin(store, clock)
    clock.forward(7 * DAY_MS)
    await store.maintenance.purge()
    assert await counts_by_area(sql) == dict.fromkeys(PLACES, (1, 0))
    clock.forward(2 * DAY_MS)
    await store.maintenance.purge()
    assert await counts_by_area(sql) == {}


# -- money and the dead -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "available"), [("pending", CREDIT - 50), ("failed", CREDIT)])
async def test_start_is_charged_when_the_carrier_accepted_it(
    store: Store, clock: TestClock, status: str, available: int
) -> None:
    started = start(clock, price=50)
    await store.verifications.start(started)
    assert (await store.ledger.get_account(1)).held == 50
    await store.verifications.finish(finish(started, clock, status))
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (available, 0)


async def test_concurrent_starts_never_exceed_the_credit(store: Store, other: Store, clock: TestClock) -> None:
    starts = [start(clock, price=CREDIT // 10, owner=f"seat/{i % 2}") for i in range(64)]
    results = await asyncio.gather(
        *((store, other)[i % 2].verifications.start(item) for i, item in enumerate(starts)), return_exceptions=True
    )
    assert results.count(None) == 10
    assert (await store.ledger.get_account(1)).available == 0


@pytest.mark.parametrize("how", ["its process starts again", "its lease runs out"])
async def test_abandoned_start_fails_and_its_hold_is_released(
    store: Store, other: Store, clock: TestClock, sql: Sql, how: str
) -> None:
    started = start(clock, price=50)
    await store.verifications.start(started)
    await other.outbox.reclaim_abandoned()  # too early: the process may still be running
    assert (await store.ledger.get_account(1)).held == 50
    if how == "its process starts again":
        await store.outbox.release_own()
    else:
        await let_leases_end(other, clock, IDEMPOTENCY_LEASE_MS)
    stored = await store.verifications.get(1, started.id)
    assert stored
    assert (stored.status, stored.error_message) == ("failed", "interrupted")
    assert (await store.ledger.get_account(1)).available == CREDIT
    await store.verifications.finish(finish(started, clock))  # the process was only frozen
    assert (await store.ledger.get_account(1)).available == CREDIT
    assert await sql("SELECT kind FROM ledger WHERE subject IS NOT NULL ORDER BY key") == [("hold",), ("release",)]


async def test_maintenance_records_expired_verifications(store: Store, clock: TestClock, sql: Sql) -> None:
    await begin(store, clock)
    clock.forward(VERIFICATION_MS)
    await store.outbox.reclaim_abandoned()
    assert await sql("SELECT status FROM verification") == [("expired",)]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)  # SQLite has one writer at a time
async def test_maintenance_keeps_the_result_of_a_concurrent_check(
    store: Store, settings: Settings, clock: TestClock, sql: Sql
) -> None:
    """A check in the last millisecond and the expiry in the next: a verified verification stays verified."""
    started = await begin(store, clock)
    clock.forward(VERIFICATION_MS)
    checking: Any = await asyncpg.connect(settings.database)
    transaction = checking.transaction()
    await transaction.start()
    await checking.execute(f"UPDATE verification SET status = 'verified' WHERE id = '{started.id}'")
    expiring = asyncio.create_task(store.outbox.reclaim_abandoned())
    waiting = f"SELECT 1 FROM {LOCK_WAITS}"
    while not await sql(waiting):
        await asyncio.sleep(0.01)
    await transaction.commit()
    await expiring
    await checking.close()
    assert await sql("SELECT status FROM verification") == [("verified",)]


async def test_finish_of_a_deleted_verification_changes_nothing(store: Store, clock: TestClock, sql: Sql) -> None:
    started = start(clock)
    await store.verifications.start(started)
    await sql(f"DELETE FROM verification WHERE id = '{started.id}'")
    await store.verifications.finish(finish(started, clock))
    assert await store.verifications.get(started.team, started.id) is None


async def test_verification_with_a_code_in_progress_outlives_the_test_clock(store: Store, clock: TestClock) -> None:
    started = start(clock)
    await store.verifications.start(started)
    await store.database.write(lambda tx: tx.run("delete_verifications", team=started.team))
    await store.verifications.finish(finish(started, clock))
    assert await store.verifications.get(started.team, started.id)
