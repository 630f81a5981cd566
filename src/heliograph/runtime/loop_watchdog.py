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

TICK_S = 0.1  # interval at which the loop's lag is measured
CHECK_S = 0.05  # interval at which the thread checks the loop
LOGGED_LAG_S = 0.25  # longer lags are logged with the code that blocked the loop
PERIOD_S = 60.0  # the metric shows the longest lag in the current and the previous period
OUR_PATH = "/heliograph/"
STUCK_EXIT_CODE = 70  # exit code EX_SOFTWARE
STDERR_FD = 2
BUSY_THREADS_MAX = 2  # maximum threads assumed to compute at once; ITIMER_PROF counts the CPU time of all threads


class LoopWatch:
    """Watchdog of the event loop: a thread logs what blocks a late loop, and ends the process if the loop is stuck.

    If this thread is blocked too, such as by a regular expression that holds the GIL, the kernel ends the process with
    a signal. The signal is sent after some CPU time, which does not pass while the process or machine is suspended.

    The only cost per request is that the task is named after the route.
    """

    def __init__(self, stuck_s: float = 0) -> None:
        """Create the watchdog. The process ends if the loop is stuck for `stuck_s` seconds; 0: never."""
        self._stuck_s = stuck_s
        self._due = self._cpu_at_due_s = 0.0
        self._blocked_by: dict[str, str] | None = None
        self._max_lag = self._previous_max_lag = self._period_end = 0.0

    def lag(self) -> float:
        """Return the longest lag of the last one to two minutes, in seconds."""
        return max(self._max_lag, self._previous_max_lag)

    async def run(self) -> None:
        """Measure the lag until cancelled."""
        loop, stop = asyncio.get_running_loop(), threading.Event()
        self._due = loop.time() + TICK_S
        if self._stuck_s:
            faulthandler.register(signal.SIGPROF, file=STDERR_FD, chain=True)  # prints the stack, then ends the process
        arguments = (loop, threading.get_ident(), stop)
        threading.Thread(target=self._inspect, args=arguments, name="loop watch", daemon=True).start()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self._record_lag(loop.time())
                self._due, self._cpu_at_due_s = loop.time() + TICK_S, _thread_cpu_s()
                signal.setitimer(signal.ITIMER_PROF, BUSY_THREADS_MAX * self._stuck_s)
        finally:
            stop.set()
            signal.setitimer(signal.ITIMER_PROF, 0)
            metrics.flush()

    def _record_lag(self, now: float) -> None:
        if now >= self._period_end:
            self._previous_max_lag, self._max_lag, self._period_end = self._max_lag, 0.0, now + PERIOD_S
        lag = max(0.0, now - self._due)
        self._max_lag = max(self._max_lag, lag)
        metrics.LOOP_LAG.set(self.lag())
        metrics.flush()
        if lag > LOGGED_LAG_S:
            # CPU time of the loop's thread during the lag; the rest was used by other threads or other processes
            cpu_s = round(_thread_cpu_s() - self._cpu_at_due_s, 3)
            blocked_by = self._blocked_by or {"by": "unknown"}
            log.warning("event loop blocked", seconds=round(lag, 3), computed=cpu_s, **blocked_by)
        self._blocked_by = None

    def _inspect(self, loop: asyncio.AbstractEventLoop, thread: int, stop: threading.Event) -> None:
        # number of checks during the current lag; none happen while the process is suspended
        last_due, checks = self._due, 0
        while not stop.wait(CHECK_S):
            lag = loop.time() - self._due
            if self._blocked_by is None and lag > LOGGED_LAG_S:
                name, frame = _task_label(asyncio.current_task(loop)), sys._current_frames().get(thread)
                self._blocked_by = {"by": name, "at": _code_location(frame)}
            last_due, checks = self._due, checks + 1 if last_due == self._due else 0
            if self._stuck_s and lag > self._stuck_s and checks * CHECK_S > self._stuck_s / 2:
                self._end_process(lag, thread)

    def _end_process(self, lag: float, thread: int) -> None:
        stack = traceback.format_stack(sys._current_frames().get(thread))
        blocked_by = self._blocked_by or {"by": "unknown"}
        log.error("event loop stuck: ending the process", seconds=round(lag, 1), **blocked_by, stack="".join(stack))
        sys.stderr.flush()
        os._exit(STUCK_EXIT_CODE)  # a clean shutdown is impossible; everything that was acknowledged is durable


def _task_label(task: "asyncio.Task[object] | None") -> str:
    """Return the route of a request, or the function of a background job; "connections" if no task is running."""
    if task is None:
        return "connections"
    name = task.get_name()
    return str(task.get_coro().__qualname__) if name.startswith("Task-") else name  # type: ignore[union-attr]


def _thread_cpu_s() -> float:
    """Return the CPU time of this thread in seconds."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_utime + usage.ru_stime


def _code_location(frame: FrameType | None) -> str:
    """Return file and line of the innermost frame in our code; if there is none, of the innermost frame."""
    innermost = frame
    while frame is not None and OUR_PATH not in frame.f_code.co_filename:
        frame = frame.f_back
    shown_frame = frame or innermost
    return (
        f"{shown_frame.f_code.co_filename.rpartition(OUR_PATH)[2]}:{shown_frame.f_lineno}" if shown_frame else "unknown"
    )
