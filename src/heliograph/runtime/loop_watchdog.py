"""Watches the event loop: how late it runs, and what blocked it."""

import asyncio
import faulthandler
import os
import resource
import signal
import sys
import threading
import traceback
from types import FrameType

import structlog

from heliograph.runtime import metrics

log = structlog.get_logger()

TICK_S = 0.1
LOOK_S = 0.05
HELD_S = 0.25  # beyond this the log names what blocked the loop
SPAN_S = 60.0  # the metric is the longest lag of this span and the one before
OURS = "/heliograph/"
STUCK = 70  # the exit code: EX_SOFTWARE
STDERR = 2
THREADS = 2  # whose CPU time is counted together


class LoopWatch:
    """The loop records when it runs; a thread inspects it while it is late, and ends a process whose loop is stuck.

    Where what holds the loop lets no other thread run either, a regular expression for example, the kernel ends it by a
    signal: after as much CPU time, which does not pass while the process or the machine stands still.

    A request costs nothing but the name of its route, which its task carries.
    """

    def __init__(self, stuck_s: float = 0) -> None:
        """Make a watch that ends the process when it is stuck for `stuck_s`; 0 means never."""
        self._stuck_s = stuck_s
        self._due = self._computed = 0.0
        self._held_by: dict[str, str] | None = None
        self._worst = self._worst_before = self._span_end = 0.0

    def lag(self) -> float:
        """Return the longest lag of the last minute or two, in seconds."""
        return max(self._worst, self._worst_before)

    async def run(self) -> None:
        """Run until cancelled."""
        loop, stop = asyncio.get_running_loop(), threading.Event()
        self._due = loop.time() + TICK_S
        if self._stuck_s:
            faulthandler.register(signal.SIGPROF, file=STDERR, chain=True)  # says where, and then ends the process
        looking = (loop, threading.get_ident(), stop)
        threading.Thread(target=self._look, args=looking, name="loop watch", daemon=True).start()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self._note(loop.time())
                self._due, self._computed = loop.time() + TICK_S, _thread_s()
                signal.setitimer(signal.ITIMER_PROF, THREADS * self._stuck_s)
        finally:
            stop.set()
            signal.setitimer(signal.ITIMER_PROF, 0)
            metrics.flush()

    def _note(self, now: float) -> None:
        if now >= self._span_end:
            self._worst_before, self._worst, self._span_end = self._worst, 0.0, now + SPAN_S
        lag = max(0.0, now - self._due)
        self._worst = max(self._worst, lag)
        metrics.LOOP_LAG.set(self.lag())
        metrics.flush()
        if lag > HELD_S:
            # Of the lag: the rest was the machine's, or another thread's.
            computed = round(_thread_s() - self._computed, 3)
            held_by = self._held_by or {"by": "unknown"}
            log.warning("event loop blocked", seconds=round(lag, 3), computed=computed, **held_by)
        self._held_by = None

    def _look(self, loop: asyncio.AbstractEventLoop, thread: int, stop: threading.Event) -> None:
        seen, looks = self._due, 0  # at one and the same delay: none while the whole process stands still
        while not stop.wait(LOOK_S):
            late = loop.time() - self._due
            if self._held_by is None and late > HELD_S:
                name, frame = _name(asyncio.current_task(loop)), sys._current_frames().get(thread)
                self._held_by = {"by": name, "at": _place(frame)}
            seen, looks = self._due, looks + 1 if seen == self._due else 0
            if self._stuck_s and late > self._stuck_s and looks * LOOK_S > self._stuck_s / 2:
                self._end(late, thread)

    def _end(self, late: float, thread: int) -> None:
        stack = traceback.format_stack(sys._current_frames().get(thread))
        stuck = self._held_by or {"by": "unknown"}
        log.error("event loop stuck: ending the process", seconds=round(late, 1), **stuck, stack="".join(stack))
        sys.stderr.flush()
        os._exit(STUCK)  # nothing else can be relied on; all that was answered is durable


def _name(task: "asyncio.Task[object] | None") -> str:
    """Return a request's route or a duty's function; without a task, a connection is being read."""
    if task is None:
        return "connections"
    name = task.get_name()
    return str(task.get_coro().__qualname__) if name.startswith("Task-") else name  # type: ignore[union-attr]


def _thread_s() -> float:
    """Return how long this thread has computed."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime


def _place(frame: FrameType | None) -> str:
    """Return the innermost line of our own code, else the innermost line."""
    first = frame
    while frame is not None and OURS not in frame.f_code.co_filename:
        frame = frame.f_back
    found = frame or first
    return f"{found.f_code.co_filename.rpartition(OURS)[2]}:{found.f_lineno}" if found else "unknown"
