"""The claim loop: each lane fills its own slots with due work until it is stopped."""

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

CLAIM_MOST = 100  # rows in one claim: half a queue, so that one batch is claimed while another is recorded
PAUSE_S = 0.01  # after a claim that left nothing due: what comes meanwhile becomes one claim
AWAY_S = 0.5  # after the store could not be reached
SUSPECTS_S = 5.0  # from the start to the first look for suspects, and between two looks
ALONE_S = 15.0  # how long the lanes wait for a suspect, and at first a suspect for them
ALONE_MOST_S = 600.0  # longer than a hand-over takes
STOP_S = 30.0

ALONE = "alone"  # not a lane: where suspects are in work
Work = dict["asyncio.Task[bool]", Claim]

log = structlog.get_logger()


class Worker:
    def __init__(self, store: Store, handover: Handover, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._windows = Windows(lambda lane: store.hints.bells[lane].ring())
        self._dispatch = Dispatch(store, handover, clock, self._windows.waited)
        self._work: dict[str, Work] = {lane: {} for lane in (*SLOTS, ALONE)}
        self._looked = dict.fromkeys(SLOTS, clock.now())  # when each lane last did
        self._suspects_first = False  # the lanes pause while suspects are tried
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Deliver until `stop`."""
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
        """Stop claiming, wait for the hand-overs in flight and record them."""
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
            filled = [priority for priority, count in taken.items() if count == room[priority]]  # more may wait
            now = self._windows.room(lane)
            if len(claims) == CLAIM_MOST or any(now[priority] for priority in filled):
                continue
            if any(room.values()) and not filled:
                await asyncio.sleep(PAUSE_S)
            await self._store.hints.bells[lane].wait(self._store.hints.poll_s)

    def _may_claim(self) -> bool:
        # What cannot be recorded must not be sent: while an outcome waits for the store, nothing new begins.
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
        """Try alone the messages whose workers died with them, so that they take no other with them (P14).

        Not before this process has lived for a while: in a crash loop they would be what each kill meets (P22).
        """
        rest_s, patience_s = SUSPECTS_S, ALONE_S
        while not await happens(self._stopping, rest_s):
            try:
                empty = self._resting() or not await self._store.outbox.suspects()
                if empty or await self._stand_still(patience_s):
                    rest_s, patience_s = SUSPECTS_S, ALONE_S
                else:  # slow hand-overs: the lanes run for as long as they paused, then pause longer
                    rest_s, patience_s = patience_s, min(2 * patience_s, ALONE_MOST_S)
            except Exception as error:
                log.warning("cannot look for suspects", error=type(error).__name__)

    async def _stand_still(self, patience_s: float) -> bool:
        """Let the lanes run dry and try suspects one by one; return False when they did not run dry."""
        self._suspects_first = True
        try:
            if not await self._end(self._in_flight(), patience_s):
                return False
            while not self._stopping.is_set() and (claims := await self._store.outbox.claim_suspect()):
                if not await self._end([self._start(claim, self._work[ALONE]) for claim in claims], ALONE_S):
                    await self._store.outbox.join(claims)  # the lanes resume; and a stop is no death
                    break
            return True
        finally:
            self._suspects_first = False
            self._store.hints.hear()

    async def _end(self, tasks: "Collection[asyncio.Task[Any]]", within_s: float) -> bool:
        """Tell whether all tasks end in time, and before a stop."""
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
            # Their leases stay: whether they were sent is not known, and the next start claims them again.
            log.warning("stopped with hand-overs in flight", count=len(unfinished))

    def _in_flight(self) -> list["asyncio.Task[bool]"]:
        return [task for work in self._work.values() for task in work]
