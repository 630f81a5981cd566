"""The periodic jobs: what a round does and logs, and that a failed round does not end the job."""

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
from heliograph.bootstrap import wal_fault
from heliograph.carriers.contract import Carrier, Carriers, OutboundMessage
from heliograph.deliver.jobs import (
    audit_chain,
    clock_check,
    rate_sync,
    reclaim,
    refresh,
    reputation,
    sqlite_wal,
)
from heliograph.deliver.jobs.periodic import Job, every, run_periodically
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.circuit import open_circuit
from heliograph.domain.delivery.outcome import Accepted, CarrierReport, Outcome, Report
from heliograph.domain.limits import CONTACT_PAUSE_MAX_MS, LEASE_MS
from heliograph.domain.mail.reputation import Reputation
from heliograph.domain.setup.records import CarrierRecord, Platform
from heliograph.domain.setup.snapshot import PLATFORM_ID, to_row
from heliograph.inbound import report_service as reports
from heliograph.settings import Settings
from heliograph.storage.requests import ProcessUsage, RequestLog, Requests
from heliograph.storage.store import Store, StoreUnavailable
from tests.clocks import TestClock
from tests.deliver.conftest import ReadTimeline, Send
from tests.setup_helpers import set_up
from tests.storage.samples import let_leases_end
from tests.storage.test_money import outcome
from tests.storage.test_requests import refused

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for job, name in (
        (clock_check, "INTERVAL_S"),
        (refresh, "REFRESH_INTERVAL_S"),
        (rate_sync, "SYNC_INTERVAL_S"),
    ):
        monkeypatch.setattr(job, name, 0.001)


def repeating(work: Job, *, finish: bool = False) -> AbstractAsyncContextManager[None]:
    return doing(every(0.001, work, run_at_exit=finish)())


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


async def wait_until(condition: Callable[[], Awaitable[object] | object]) -> None:
    async with asyncio.timeout(60):
        while True:
            result = condition()
            if await result if isinstance(result, Awaitable) else result:
                return
            await asyncio.sleep(0.002)


def having(**parts: Any) -> Any:
    """Return a store with only these parts."""
    return SimpleNamespace(**parts)


async def test_failed_job_round_is_logged_and_the_next_runs() -> None:
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        raise RuntimeError("secret words")

    with capture_logs() as logs:
        async with doing(run_periodically(0.001, work)):
            await wait_until(lambda: rounds > 1)
    assert {(line["event"], line["job"], line["error"]) for line in logs} == {
        ("background job failed", "the duty", "RuntimeError")
    }
    assert "secret words" not in repr(logs)


async def test_dead_claims_are_released_after_a_failed_round(
    store: Store, clock: TestClock, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send("email", "anyone@example.com")
    await store.outbox.claim("email", 1)
    await let_leases_end(store, clock, LEASE_MS - CONTACT_PAUSE_MAX_MS)
    clock.forward(CONTACT_PAUSE_MAX_MS)
    free, errors = store.outbox.reclaim_abandoned, [StoreUnavailable()]

    async def free_at_last() -> int:
        if errors:
            raise errors.pop()
        return await free()

    monkeypatch.setattr(store.outbox, "reclaim_abandoned", free_at_last)
    async with repeating(partial(reclaim.reclaim_dead_claims, store)):
        await wait_until(lambda: store.outbox.claim("email", 1))


async def test_quarantined_messages_are_logged() -> None:
    async def put_aside() -> int:
        return 2

    with capture_logs() as logs:
        async with repeating(partial(reclaim.reclaim_dead_claims, having(outbox=having(reclaim_abandoned=put_aside)))):
            await wait_until(lambda: logs)
    assert (logs[0]["log_level"], logs[0]["count"]) == ("error", 2)


async def test_early_report_is_applied_after_the_send_is_recorded(
    store: Store, clock: TestClock, send: Send, timeline: ReadTimeline
) -> None:
    id_ = await send("sms", "+447700900123")
    (claim,) = await store.outbox.claim("phone", 1)
    await store.reports.store_by_carrier("sim", [CarrierReport(f"{id_}/0", Report(status="delivered"))])
    async with repeating(partial(reports.apply_early_reports, store)):
        await store.outbox.record(outcome(claim, clock.now(), "sent"))

        async def is_delivered() -> bool:
            return (await timeline(id_))[-1:] == ["delivered"]

        await wait_until(is_delivered)


async def test_shared_state_of_other_processes_is_refreshed(store: Store, other: Store) -> None:
    async with doing(refresh.refresh_shared_state(other)):
        platform = Platform(brand="New")
        await set_up(store, rows=[to_row("platform", PLATFORM_ID, platform, None)])
        await wait_until(lambda: other.setup.current.platform.brand == "New")
        await store.circuits.replace("a", None, open_circuit(None, "a", "no answer", 1))
        await wait_until(lambda: "a" in other.circuits.current)


async def test_carriers_are_opened_and_closed_with_the_setup(store: Store) -> None:
    class TrackedCarrier(Carrier):
        is_open = False

        def open(self) -> None:
            self.is_open = True

        async def send_message(self, message: OutboundMessage) -> Outcome:
            return Accepted()

        async def close(self) -> None:
            self.is_open = False

    line, record = TrackedCarrier(), CarrierRecord(id="a", channel="sms", kind="test")
    carriers = Carriers(lambda _: line)
    async with repeating(lambda: carriers.sync(store.setup.current.carriers)):
        await set_up(store, rows=[to_row("carrier", "a", record, None)])
        await wait_until(lambda: line.is_open)
        await set_up(store, rows=[to_row("carrier", "a", None, None)])
        await wait_until(lambda: not line.is_open)


async def test_audit_chain_head_is_logged_once(store: Store) -> None:
    tell = audit_chain.chain_head_logger(store)
    with capture_logs() as logs:
        for subject in ("one", "", "two"):
            if subject:
                await store.audit.add(COMMAND_LINE.audit_entry(1, "test.act", subject))
            await tell()
    ends = [(line["position"], line["hash"]) for line in logs if line["event"] == "end of the audit log"]
    last = await store.audit.head()
    assert last
    assert (len(ends), ends[-1]) == (2, (last.position, last.link))


async def test_reputation_change_is_logged() -> None:
    judged = [Reputation(team="team_acme", state="paused", since=1, sends=100, bounces=20)]

    async def judge() -> list[Reputation]:
        return judged

    with capture_logs() as logs:
        async with repeating(partial(reputation.update_reputations, having(reputations=having(update_all=judge)))):
            await wait_until(lambda: logs)
    assert (logs[0]["event"], logs[0]["team"], logs[0]["state"]) == ("team reputation changed", "team_acme", "paused")


@pytest.mark.parametrize(
    ("checkpoint", "mb", "says"), [("external", 300, True), ("external", 200, False), ("own", 300, False)]
)
async def test_large_wal_without_checkpoints_is_logged(tmp_path: Path, checkpoint: Any, mb: int, says: bool) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path / 'h.db'}", checkpoint=checkpoint)
    with open(tmp_path / "h.db-wal", "wb") as file:
        file.truncate(mb << 20)
    with capture_logs() as logs:
        await sqlite_wal.warn_if_wal_grows(partial(wal_fault, settings), "fix")
    assert [line["wal"] for line in logs] == [f"{tmp_path / 'h.db-wal'} has {mb} MB"] * says


async def test_wrong_clock_is_logged_once_and_its_recovery_too() -> None:
    off, rounds = 600_000, 0

    async def check() -> None:
        nonlocal rounds
        rounds += 1

    async def later_rounds() -> None:
        observed = rounds
        await wait_until(lambda: rounds > observed + 1)

    machine: Any = SimpleNamespace(clock_error=lambda: off)
    with capture_logs() as logs:
        async with doing(clock_check.watch_clock(having(maintenance=having(check_clock=check)), machine)):
            await later_rounds()
            off = 0
            await later_rounds()
    assert [line["event"] for line in logs] == [
        "this machine's clock is wrong: nothing is claimed",
        "this machine's clock is right again: claiming resumes",
    ]
    assert logs[0]["clock"] == "600.0 s ahead of the database's clock"


class Away:
    """A database that is unavailable until it is enabled."""

    def __init__(self, store: Store) -> None:
        self.store, self.is_away, self.tried = store, True, asyncio.Event()

    async def write(self, work: Any) -> Any:
        self.tried.set()
        if self.is_away:
            raise StoreUnavailable
        return await self.store.database.write(work)


async def test_key_uses_during_an_outage_are_kept_and_written_at_exit(store: Store, clock: TestClock) -> None:
    database, used = Away(store), {"a": 1}
    requests = Requests(database, clock, "")  # type: ignore[arg-type]
    async with repeating(partial(requests.write_key_uses, used), finish=True):
        await database.tried.wait()
        assert used == {"a": 1}
        database.is_away = False
    assert used == {}
    assert await store.requests.read_key_uses(["a"]) == {"a": 1}


async def test_logged_requests_during_an_outage_are_kept_and_written_at_exit(store: Store, clock: TestClock) -> None:
    database, log, request = Away(store), RequestLog(), refused(clock)
    log.buffer.append(request)
    requests = Requests(database, clock, "")  # type: ignore[arg-type]
    async with repeating(partial(log.write_periodically, requests), finish=True):
        await database.tried.wait()
        assert [*log.buffer] == [request]
        database.is_away = False
    assert not log.buffer
    assert await store.requests.list_page(1) == [request]


async def test_rate_limits_are_synced_between_processes(store: Store, other: Store, clock: TestClock) -> None:
    peers: set[tuple[str, str]] = set()

    class Listening(RateLimits):
        def merge_usage(
            self,
            usages: Sequence[ProcessUsage],
            rate_of: Callable[[str], int],
            now: int,
            reported: Mapping[str, int] | None = None,
        ) -> None:
            peers.update((request.process, request.key) for request in usages)

    here, remote = Listening(), RateLimits()
    async with (
        doing(rate_sync.sync_rate_limits(store, clock, here)),
        doing(rate_sync.sync_rate_limits(other, clock, remote)),
    ):
        remote.take("key", 10, clock.now())
        await wait_until(lambda: (other.owner, "key") in peers)
