"""The duties: what each does in a round, what it says, and that a round that breaks does not end it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from heliograph.accept.rate import RateLimits
from heliograph.bootstrap import log_fault
from heliograph.carriers.contract import Carrier, Carriers, Parcel
from heliograph.deliver.jobs import (
    audit_chain,
    clock_check,
    rate_sync,
    reclaim,
    refresh,
    reputation,
    sqlite_wal,
)
from heliograph.deliver.jobs.periodic import Round, every, repeat
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.circuit import opened
from heliograph.domain.delivery.outcome import Accepted, CarrierReport, Outcome, Report
from heliograph.domain.limits import CONTACT_MS, LEASE_MS
from heliograph.domain.mail.reputation import Reputation
from heliograph.domain.setup.records import CarrierRecord, Platform
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.inbound import report_service as reports
from heliograph.settings import Settings
from heliograph.storage.requests import RequestLog, Requests, Spent
from heliograph.storage.store import Store, StoreUnavailable
from tests.clocks import TestClock
from tests.deliver.conftest import Send, Story
from tests.setup_helpers import set_up
from tests.storage.samples import let_leases_end
from tests.storage.test_money import outcome
from tests.storage.test_requests import refused

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for duty in (clock_check, refresh, rate_sync):
        monkeypatch.setattr(duty, "EVERY_S", 0.001)


def repeating(work: Round, *, finish: bool = False) -> AbstractAsyncContextManager[None]:
    return doing(every(0.001, work, finish=finish)())


@asynccontextmanager
async def doing(duty: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(duty)
    if isinstance(task, asyncio.Task):
        task.set_name("the duty")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], Awaitable[object] | object]) -> None:
    async with asyncio.timeout(60):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.002)


def having(**parts: Any) -> Any:
    """A store of these parts alone."""
    return SimpleNamespace(**parts)


async def test_a_round_that_breaks_is_named_and_another_one_follows() -> None:
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        raise RuntimeError("secret words")

    with capture_logs() as logs:
        async with doing(repeat(0.001, work)):
            await until(lambda: rounds > 1)
    assert {(line["event"], line["duty"], line["error"]) for line in logs} == {
        ("duty failed", "the duty", "RuntimeError")
    }
    assert "secret words" not in repr(logs)


async def test_dead_claims_are_freed_also_after_a_failure(
    store: Store, clock: TestClock, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send("email", "anyone@example.com")
    await store.outbox.claim("email", 1)
    await let_leases_end(store, clock, LEASE_MS - CONTACT_MS)
    clock.forward(CONTACT_MS)
    free, errors = store.outbox.reclaim, [StoreUnavailable()]

    async def free_at_last() -> int:
        if errors:
            raise errors.pop()
        return await free()

    monkeypatch.setattr(store.outbox, "reclaim", free_at_last)
    async with repeating(partial(reclaim.reclaim_dead, store)):
        await until(lambda: store.outbox.claim("email", 1))


async def test_poison_that_was_put_aside_is_said() -> None:
    async def put_aside() -> int:
        return 2

    with capture_logs() as logs:
        async with repeating(partial(reclaim.reclaim_dead, having(outbox=having(reclaim=put_aside)))):
            await until(lambda: logs)
    assert (logs[0]["log_level"], logs[0]["count"]) == ("error", 2)


async def test_a_report_waits_for_the_record_of_its_hand_over(
    store: Store, clock: TestClock, send: Send, story: Story
) -> None:
    id_ = await send("sms", "+447700900123")
    (claim,) = await store.outbox.claim("phone", 1)
    await store.reports.by_carrier("sim", [CarrierReport(f"{id_}/0", Report(status="delivered"))])
    async with repeating(partial(reports.apply_early, store)):
        await store.outbox.record(outcome(claim, clock.now(), "sent"))

        async def is_delivered() -> bool:
            return (await story(id_))[-1:] == ["delivered"]

        await until(is_delivered)


async def test_a_process_follows_the_others(store: Store, other: Store) -> None:
    async with doing(refresh.follow_others(other)):
        platform = Platform(brand="New")
        await set_up(store, rows=[to_row("platform", PLATFORM_ID, platform, None)])
        await until(lambda: other.setup.current.platform.brand == "New")
        await store.circuits.change("a", None, opened(None, "a", "no answer", 1))
        await until(lambda: "a" in other.circuits.current)


async def test_carriers_are_open_while_they_are_set_up(store: Store) -> None:
    class Line(Carrier):
        is_open = False

        def open(self) -> None:
            self.is_open = True

        async def hand_over(self, parcel: Parcel) -> Outcome:
            return Accepted()

        async def close(self) -> None:
            self.is_open = False

    line, record = Line(), CarrierRecord(id="a", channel="sms", kind="test")
    carriers = Carriers(lambda _: line)
    async with repeating(lambda: carriers.keep(store.setup.current.carriers)):
        await set_up(store, rows=[to_row("carrier", "a", record, None)])
        await until(lambda: line.is_open)
        await set_up(store, rows=[to_row("carrier", "a", None, None)])
        await until(lambda: not line.is_open)


async def test_the_end_of_the_audit_log_is_told_once(store: Store) -> None:
    tell = audit_chain.telling(store)
    with capture_logs() as logs:
        for subject in ("one", "", "two"):
            if subject:
                await store.audit.add(COMMAND_LINE.did(1, "test.act", subject))
            await tell()
    ends = [(line["place"], line["link"]) for line in logs if line["event"] == "end of the audit log"]
    last = await store.audit.end()
    assert last
    assert (len(ends), ends[-1]) == (2, (last.place, last.link))


async def test_a_judgement_is_said() -> None:
    judged = [Reputation(team="team_acme", state="paused", since=1, sends=100, bounces=20)]

    async def judge() -> list[Reputation]:
        return judged

    with capture_logs() as logs:
        async with repeating(partial(reputation.judge_teams, having(reputation=having(judge=judge)))):
            await until(lambda: logs)
    assert (logs[0]["event"], logs[0]["team"], logs[0]["state"]) == ("reputation judged", "team_acme", "paused")


@pytest.mark.parametrize(
    ("checkpoint", "mb", "says"), [("external", 300, True), ("external", 200, False), ("own", 300, False)]
)
async def test_a_log_that_only_grows_is_said(tmp_path: Path, checkpoint: Any, mb: int, says: bool) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path / 'h.db'}", checkpoint=checkpoint)
    with open(tmp_path / "h.db-wal", "wb") as file:
        file.truncate(mb << 20)
    with capture_logs() as logs:
        await sqlite_wal.watch_log(partial(log_fault, settings), "mend")
    assert [line["log"] for line in logs] == [f"{tmp_path / 'h.db-wal'} has {mb} MB"] * says


async def test_a_wrong_clock_is_said_once_and_a_right_one_again() -> None:
    off, rounds = 600_000, 0

    async def check() -> None:
        nonlocal rounds
        rounds += 1

    async def more() -> None:
        seen = rounds
        await until(lambda: rounds > seen + 1)

    machine: Any = SimpleNamespace(off=lambda: off)
    with capture_logs() as logs:
        async with doing(clock_check.watch_clock(having(upkeep=having(check_clock=check)), machine)):
            await more()
            off = 0
            await more()
    assert [line["event"] for line in logs] == [
        "this machine's clock is wrong: nothing is claimed",
        "this machine's clock is right again: claiming goes on",
    ]
    assert logs[0]["clock"] == "600.0 s ahead of the database's clock"


class Away:
    """A database that is away until it is told otherwise."""

    def __init__(self, store: Store) -> None:
        self.store, self.is_away, self.tried = store, True, asyncio.Event()

    async def write(self, work: Any) -> Any:
        self.tried.set()
        if self.is_away:
            raise StoreUnavailable
        return await self.store.database.write(work)


async def test_key_uses_are_kept_while_the_database_is_away_and_written_at_the_end(
    store: Store, clock: TestClock
) -> None:
    database, used = Away(store), {"a": 1}
    requests = Requests(database, clock, "")  # type: ignore[arg-type]
    async with repeating(partial(requests.write_key_uses, used), finish=True):
        await database.tried.wait()
        assert used == {"a": 1}
        database.is_away = False
    assert used == {}
    assert await store.requests.key_uses(["a"]) == {"a": 1}


async def test_requests_are_kept_while_the_database_is_away_and_written_at_the_end(
    store: Store, clock: TestClock
) -> None:
    database, log, one = Away(store), RequestLog(), refused(clock)
    log.waiting.append(one)
    requests = Requests(database, clock, "")  # type: ignore[arg-type]
    async with repeating(partial(log.write_in_time, requests), finish=True):
        await database.tried.wait()
        assert [*log.waiting] == [one]
        database.is_away = False
    assert not log.waiting
    assert await store.requests.page(1) == [one]


async def test_processes_hear_of_each_others_requests(store: Store, other: Store, clock: TestClock) -> None:
    found: set[tuple[str, str]] = set()

    class Listening(RateLimits):
        def hear(
            self,
            heard: Sequence[Spent],
            rate_of: Callable[[str], int],
            now: int,
            told: Mapping[str, int] | None = None,
        ) -> None:
            found.update((one.process, one.key) for one in heard)

    here, there = Listening(), RateLimits()
    async with doing(rate_sync.share_rates(store, clock, here)), doing(rate_sync.share_rates(other, clock, there)):
        there.take("key", 10, clock.now())
        await until(lambda: (other.owner, "key") in found)
