"""The claim loop: each lane fills its slots with due messages until stopped."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import structlog

from heliograph.carrier_failover import Handover
from heliograph.deliver.concurrency import Windows
from heliograph.deliver.dispatch import Dispatch
from heliograph.domain.delivery.lanes import SLOTS
from heliograph.domain.limits import HEARTBEAT_MS, SECOND_MS
from heliograph.domain.setup.records import Priority
from heliograph.runtime import metrics
from heliograph.runtime.async_wait import happens, wait_for_all
from heliograph.runtime.clock import Clock
from heliograph.storage.outbox import Claim
from heliograph.storage.store import Store

CLAIM_MOST = 100  # rows per claim: half a queue, so that one batch is claimed while another is recorded
PAUSE_S = 0.01  # pause after a claim that left nothing due, so that new messages are claimed together
AWAY_S = 0.5  # retry delay while the database is unavailable
SUSPECTS_S = 5.0  # delay before the first poll for poison-message candidates, and between polls
ALONE_S = 15.0  # how long the lanes wait for a candidate in isolation, and initially a candidate for the lanes to drain
ALONE_MOST_S = 600.0  # longer than any send takes
STOP_S = 30.0

ALONE = "alone"  # key of isolated poison-message candidates in `_work`; not a lane
Work = dict["asyncio.Task[bool]", Claim]

log = structlog.get_logger()


class Worker:
    """Claims due messages of every lane, delivers them, and renews their leases."""

    def __init__(self, store: Store, handover: Handover, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._windows = Windows(lambda lane: store.hints.bells[lane].ring())
        self._dispatch = Dispatch(store, handover, clock, self._windows.waited)
        self._work: dict[str, Work] = {lane: {} for lane in (*SLOTS, ALONE)}
        self._looked = dict.fromkeys(SLOTS, clock.now())  # lane → time of its last claim loop
        self._suspects_first = False  # lanes pause while poison-message candidates are retried in isolation
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Claim and deliver messages until `stop` is called."""
        self._ended.clear()
        self._dispatch.renewed_at = asyncio.get_running_loop().time()
        leases = asyncio.create_task(self._keep_leases())
        try:
            await asyncio.gather(self._try_suspects(), *(self._serve(lane) for lane in SLOTS))
            await self._finish()
        finally:
            leases.cancel()
            for task in self._in_flight():
                task.cancel()
            self._ended.set()

    async def stop(self) -> None:
        """Stop claiming, wait for the sends in flight and record their outcomes."""
        self._stopping.set()
        self._store.hints.hear()
        await self._ended.wait()

    async def _serve(self, lane: str) -> None:
        work = self._work[lane]
        while not self._stopping.is_set():
            self._looked[lane] = self._clock.now()
            metrics.PROGRESS.set(min(self._looked.values()) / SECOND_MS)
            room = self._windows.room(lane)
            claims = await self._claim(lane, room) if any(room.values()) and self._may_claim() else []
            for claim in claims:
                self._windows.enter(claim.queue)
                self._start(claim, work)
            taken = Counter([claim.priority for claim in claims])
            # Priorities with possibly more due messages
            filled = [priority for priority, count in taken.items() if count == room[priority]]
            now = self._windows.room(lane)
            if len(claims) == CLAIM_MOST or any(now[priority] for priority in filled):
                continue
            if any(room.values()) and not filled:
                await asyncio.sleep(PAUSE_S)
            await self._store.hints.bells[lane].wait(self._store.hints.poll_s)

    def _may_claim(self) -> bool:
        # A message whose outcome cannot be recorded must not be sent: claim nothing while an outcome is unrecorded.
        return not (self._suspects_first or self._dispatch.unrecorded or self._resting())

    def _resting(self) -> bool:
        return self._store.setup.current.platform.paused or bool(self._clock.off())

    async def _claim(self, lane: str, room: Mapping[Priority, int]) -> list[Claim]:
        try:
            claims = await self._store.outbox.claim(lane, CLAIM_MOST, room)
            if self._may_claim() and not self._stopping.is_set():
                return claims
            await self._store.outbox.release(claims)
        except Exception as error:
            log.warning("cannot claim", lane=lane, error=type(error).__name__)
            await asyncio.sleep(AWAY_S)
        return []

    def _start(self, claim: Claim, work: Work) -> "asyncio.Task[bool]":
        task = asyncio.create_task(self._dispatch.deliver(claim))
        work[task] = claim
        task.add_done_callback(partial(self._leave, work))
        return task

    def _leave(self, work: Work, task: "asyncio.Task[bool]") -> None:
        claim = work.pop(task)
        self._dispatch.lost.discard(claim.key)
        if not claim.alone:
            self._windows.leave(claim.queue)

    async def _try_suspects(self) -> None:
        """Retry in isolation the messages whose workers died, so that no other message is affected (P14).

        Starts only after this process has run for a while: in a crash loop, each crash would count against them (P22).
        """
        rest_s, patience_s = SUSPECTS_S, ALONE_S
        while not await happens(self._stopping, rest_s):
            try:
                empty = self._resting() or not await self._store.outbox.suspects()
                if empty or await self._stand_still(patience_s):
                    rest_s, patience_s = SUSPECTS_S, ALONE_S
                else:  # slow sends: the lanes run for as long as they paused, then pause longer
                    rest_s, patience_s = patience_s, min(2 * patience_s, ALONE_MOST_S)
            except Exception as error:
                log.warning("cannot look for suspects", error=type(error).__name__)

    async def _stand_still(self, patience_s: float) -> bool:
        """Drain the lanes and retry candidates one by one; return False if the lanes did not drain in time."""
        self._suspects_first = True
        try:
            if not await self._end(self._in_flight(), patience_s):
                return False
            while not self._stopping.is_set() and (claims := await self._store.outbox.claim_suspect()):
                if not await self._end([self._start(claim, self._work[ALONE]) for claim in claims], ALONE_S):
                    # The lanes resume; a shutdown does not count as a worker death
                    await self._store.outbox.join(claims)
                    break
            return True
        finally:
            self._suspects_first = False
            self._store.hints.hear()

    async def _end(self, tasks: "Collection[asyncio.Task[Any]]", within_s: float) -> bool:
        """Wait for `tasks`; return True if all finished before the timeout and before shutdown."""
        ending, stop = asyncio.create_task(wait_for_all(tasks)), asyncio.create_task(self._stopping.wait())
        await asyncio.wait([ending, stop], timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        ended = ending.done()
        ending.cancel()
        stop.cancel()
        return ended

    async def _keep_leases(self) -> None:
        wait_s, time = HEARTBEAT_MS / SECOND_MS, asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(wait_s)
            began, claims = time(), [claim for work in self._work.values() for claim in work.values()]
            try:
                kept = await self._store.outbox.heartbeat(claims)
                working = {claim.key for work in self._work.values() for claim in work.values()}
                self._dispatch.lost |= {claim.key for claim in claims} & working - kept
                self._dispatch.renewed_at = began
                wait_s = HEARTBEAT_MS / SECOND_MS
            except Exception as error:
                log.warning("cannot keep the leases", error=type(error).__name__)
                wait_s = AWAY_S

    async def _finish(self) -> None:
        unfinished = await wait_for_all(self._in_flight(), STOP_S)
        if unfinished:
            # Keep their leases: whether they were sent is unknown, and the next start claims them again.
            log.warning("stopped with hand-overs in flight", count=len(unfinished))

    def _in_flight(self) -> list["asyncio.Task[bool]"]:
        return [task for work in self._work.values() for task in work]
