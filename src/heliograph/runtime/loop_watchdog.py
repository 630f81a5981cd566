"""Event loop watchdog: measures the loop's lag and reports what blocked it."""

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
SPAN_S = 60.0  # the metric is the longest lag of the current and the previous period of this length
OURS = "/heliograph/"
STUCK = 70  # exit code EX_SOFTWARE
STDERR = 2
THREADS = 2  # ITIMER_PROF sums the CPU time of all threads; assume that up to this many compute at once


class LoopWatch:
    """Watchdog of the event loop. A thread inspects a late loop, and ends the process if the loop is stuck.

    If the blocking code also blocks all other threads, such as a regular expression that holds the GIL, the kernel ends
    the process with a signal. This signal is based on CPU time, which does not pass while the process or the machine is
    suspended.

    The only cost per request is setting the task name to the route.
    """

    def __init__(self, stuck_s: float = 0) -> None:
        """End the process if the loop is stuck for `stuck_s` seconds; 0 means never."""
        self._stuck_s = stuck_s
        self._due = self._computed = 0.0
        self._held_by: dict[str, str] | None = None
        self._worst = self._worst_before = self._span_end = 0.0

    def lag(self) -> float:
        """Return the longest lag of the last one to two minutes, in seconds."""
        return max(self._worst, self._worst_before)

    async def run(self) -> None:
        """Measure the lag until cancelled."""
        loop, stop = asyncio.get_running_loop(), threading.Event()
        self._due = loop.time() + TICK_S
        if self._stuck_s:
            faulthandler.register(signal.SIGPROF, file=STDERR, chain=True)  # prints the stack, then ends the process
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
            # CPU time of this thread during the lag; the rest was spent by other threads or by the machine.
            computed = round(_thread_s() - self._computed, 3)
            held_by = self._held_by or {"by": "unknown"}
            log.warning("event loop blocked", seconds=round(lag, 3), computed=computed, **held_by)
        self._held_by = None

    def _look(self, loop: asyncio.AbstractEventLoop, thread: int, stop: threading.Event) -> None:
        seen, looks = self._due, 0  # checks during the same delay; none happen while the whole process is suspended
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
        os._exit(STUCK)  # a clean shutdown is not possible; all acknowledged data is durable


def _name(task: "asyncio.Task[object] | None") -> str:
    """Return the route of a request or the function of a background job; "connections" if no task is running."""
    if task is None:
        return "connections"
    name = task.get_name()
    return str(task.get_coro().__qualname__) if name.startswith("Task-") else name  # type: ignore[union-attr]


def _thread_s() -> float:
    """Return the CPU time of this thread in seconds."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime


def _place(frame: FrameType | None) -> str:
    """Return file and line of the innermost frame in our own code, else of the innermost frame."""
    first = frame
    while frame is not None and OURS not in frame.f_code.co_filename:
        frame = frame.f_back
    found = frame or first
    return f"{found.f_code.co_filename.rpartition(OURS)[2]}:{found.f_lineno}" if found else "unknown"
