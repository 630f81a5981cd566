"""The claim loop: each lane claims due messages while it sends fewer than its concurrency limit."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import structlog

from heliograph.carrier_failover import CarrierFailover
from heliograph.deliver.concurrency import ConcurrencyLimiter
from heliograph.deliver.dispatch import Dispatch
from heliograph.domain.delivery.lanes import CONCURRENCY_MAX_BY_LANE
from heliograph.domain.limits import HEARTBEAT_MS, SECOND_MS
from heliograph.domain.setup.records import Priority
from heliograph.runtime import metrics
from heliograph.runtime.async_wait import wait_event, wait_for_all
from heliograph.runtime.clock import Clock
from heliograph.storage.outbox import Claim
from heliograph.storage.store import Store

CLAIM_BATCH_MAX = 100  # maximum rows per claim: half a queue, so that a batch can be claimed while another is recorded
EMPTY_PAUSE_S = 0.01  # pause after a claim that took all due messages, so that new ones are claimed together
DATABASE_RETRY_S = 0.5  # retry delay while the database is unavailable
CANDIDATE_POLL_S = 5.0  # delay before the first poll for poison-message candidates, and between polls
# how long the lanes pause while one candidate is retried; also how long they first wait for their running sends
ISOLATION_WAIT_S = 15.0
DRAIN_TIMEOUT_MAX_S = 600.0  # longest wait for the lanes' running sends to finish; no send takes longer
STOP_TIMEOUT_S = 30.0

ISOLATED = "alone"  # key of `_tasks` for poison-message candidates retried in isolation; not a lane
DeliveryTasks = dict["asyncio.Task[bool]", Claim]

log = structlog.get_logger()


class Worker:
    """Claims due messages of every lane, delivers them, and renews their leases."""

    def __init__(self, store: Store, failover: CarrierFailover, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._limiter = ConcurrencyLimiter(lambda lane: store.wakeups.by_kind[lane].set())
        self._dispatch = Dispatch(store, failover, clock, self._limiter.adapt)
        self._tasks: dict[str, DeliveryTasks] = {lane: {} for lane in (*CONCURRENCY_MAX_BY_LANE, ISOLATED)}
        self._polled_at = dict.fromkeys(CONCURRENCY_MAX_BY_LANE, clock.now())  # lane → time of its last claim
        self._is_isolating = False  # whether the lanes pause while poison-message candidates are retried in isolation
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stopped.set()

    async def run(self) -> None:
        """Claim and deliver messages until `stop` is called."""
        self._stopped.clear()
        self._dispatch.renewed_at = asyncio.get_running_loop().time()
        leases = asyncio.create_task(self._renew_leases())
        try:
            await asyncio.gather(self._retry_candidates(), *(self._run_lane(lane) for lane in CONCURRENCY_MAX_BY_LANE))
            if unfinished := await wait_for_all(self._in_flight(), STOP_TIMEOUT_S):
                # keep their leases: whether they were sent is unknown, and the next start claims them again
                log.warning("stopped with sends in flight", count=len(unfinished))
        finally:
            leases.cancel()
            for task in self._in_flight():
                task.cancel()
            self._stopped.set()

    async def stop(self) -> None:
        """Stop claiming, wait for the sends in flight and record their outcomes."""
        self._stopping.set()
        self._store.wakeups.receive()
        await self._stopped.wait()

    async def _run_lane(self, lane: str) -> None:
        tasks = self._tasks[lane]
        while not self._stopping.is_set():
            self._polled_at[lane] = self._clock.now()
            metrics.WORKER_PROGRESS.set(min(self._polled_at.values()) / SECOND_MS)
            free_capacity = self._limiter.free_capacity(lane)
            claims = await self._claim(lane, free_capacity) if any(free_capacity.values()) and self._may_claim() else []
            for claim in claims:
                self._limiter.count_started(claim.queue)
                self._start_delivery(claim, tasks)
            claimed = Counter([claim.priority for claim in claims])
            # priorities that used all their free capacity, so that more of their messages may be due
            full_priorities = [priority for priority, count in claimed.items() if count == free_capacity[priority]]
            free_now = self._limiter.free_capacity(lane)
            if len(claims) == CLAIM_BATCH_MAX or any(free_now[priority] for priority in full_priorities):
                continue
            if any(free_capacity.values()) and not full_priorities:
                await asyncio.sleep(EMPTY_PAUSE_S)
            await self._store.wakeups.by_kind[lane].wait(self._store.wakeups.poll_s)

    def _may_claim(self) -> bool:
        # sending would risk duplicates while outcomes cannot be recorded
        return not (self._is_isolating or self._dispatch.unrecorded_keys or self._is_paused())

    def _is_paused(self) -> bool:
        return self._store.setup.current.platform.paused or bool(self._clock.clock_error())

    async def _claim(self, lane: str, free_capacity: Mapping[Priority, int]) -> list[Claim]:
        try:
            claims = await self._store.outbox.claim(lane, CLAIM_BATCH_MAX, free_capacity)
            if self._may_claim() and not self._stopping.is_set():
                return claims
            await self._store.outbox.release(claims)
        except Exception as error:
            log.warning("cannot claim", lane=lane, error=type(error).__name__)
            await asyncio.sleep(DATABASE_RETRY_S)
        return []

    def _start_delivery(self, claim: Claim, tasks: DeliveryTasks) -> "asyncio.Task[bool]":
        task = asyncio.create_task(self._dispatch.deliver(claim))
        tasks[task] = claim
        task.add_done_callback(partial(self._on_delivered, tasks))
        return task

    def _on_delivered(self, tasks: DeliveryTasks, task: "asyncio.Task[bool]") -> None:
        claim = tasks.pop(task)
        self._dispatch.lost_keys.discard(claim.key)
        if not claim.is_isolated:
            self._limiter.count_finished(claim.queue)

    async def _retry_candidates(self) -> None:
        """Retry the messages during which a worker died, each in isolation, so that others stay unaffected (P14).

        The first retry waits until this process has run for CANDIDATE_POLL_S: in a crash loop with another cause, each
        crash would count against these messages (P22).
        """
        poll_s, drain_timeout_s = CANDIDATE_POLL_S, ISOLATION_WAIT_S
        while not await wait_event(self._stopping, poll_s):
            try:
                nothing_to_do = self._is_paused() or not await self._store.outbox.count_poison_candidates()
                if nothing_to_do or await self._drain_and_isolate(drain_timeout_s):
                    poll_s, drain_timeout_s = CANDIDATE_POLL_S, ISOLATION_WAIT_S
                else:  # sends were still in flight: resume the lanes for as long, then wait longer
                    poll_s, drain_timeout_s = drain_timeout_s, min(2 * drain_timeout_s, DRAIN_TIMEOUT_MAX_S)
            except Exception as error:
                log.warning("cannot check for poison-message candidates", error=type(error).__name__)

    async def _drain_and_isolate(self, drain_timeout_s: float) -> bool:
        """Retry poison-message candidates one by one while nothing else is sent.

        Returns False if running deliveries did not finish in time.
        """
        self._is_isolating = True
        try:
            if not await self._wait_for_tasks(self._in_flight(), drain_timeout_s):
                return False
            while not self._stopping.is_set() and (claims := await self._store.outbox.claim_poison_candidate()):
                if not await self._wait_for_tasks(
                    [self._start_delivery(claim, self._tasks[ISOLATED]) for claim in claims], ISOLATION_WAIT_S
                ):
                    # The lanes resume while this message is still being sent: a later crash must not count against it.
                    await self._store.outbox.leave_isolation(claims)
                    break
            return True
        finally:
            self._is_isolating = False
            self._store.wakeups.receive()

    async def _wait_for_tasks(self, tasks: "Collection[asyncio.Task[Any]]", timeout_s: float) -> bool:
        """Wait for `tasks`; return True if all finished before the timeout and before shutdown."""
        all_done, stopping = asyncio.create_task(wait_for_all(tasks)), asyncio.create_task(self._stopping.wait())
        await asyncio.wait([all_done, stopping], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finished = all_done.done()
        all_done.cancel()
        stopping.cancel()
        return finished

    async def _renew_leases(self) -> None:
        interval_s, loop_time = HEARTBEAT_MS / SECOND_MS, asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(interval_s)
            started_at, claims = loop_time(), [claim for tasks in self._tasks.values() for claim in tasks.values()]
            try:
                renewed = await self._store.outbox.renew(claims)
                in_flight = {claim.key for tasks in self._tasks.values() for claim in tasks.values()}
                self._dispatch.lost_keys |= {claim.key for claim in claims} & in_flight - renewed
                self._dispatch.renewed_at = started_at
                interval_s = HEARTBEAT_MS / SECOND_MS
            except Exception as error:
                log.warning("cannot renew the leases", error=type(error).__name__)
                interval_s = DATABASE_RETRY_S

    def _in_flight(self) -> list["asyncio.Task[bool]"]:
        return [task for tasks in self._tasks.values() for task in tasks]
