"""Runs the service in several processes that share the listening sockets of their parent (ADR 0027).

The parent starts, watches, replaces and stops the child processes. It opens no database and answers no requests. With
several cells, it has a group of processes for each (ADR 0047).
"""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from heliograph.runtime import metrics
from heliograph.runtime.async_wait import wait_event
from heliograph.runtime.systemd import child_environment, feed_watchdog, notify

log = structlog.get_logger()

# command of a child process; -P prevents imports from the current folder
COMMAND = (sys.executable, "-P", "-m", "heliograph.cli.main")

RESTART_DELAY_S = 0.5  # delay before a dead process is restarted; doubled if it died soon after its start
RESTART_DELAY_MAX_S = 30.0
STABLE_S = 60.0  # if a process dies within this time after its start, the delay before its restart doubles
# An exit code is negative if the process was stopped before it had installed its signal handlers
CLEAN_EXIT_CODES = (0, -signal.SIGTERM, -signal.SIGINT)
DEATHS_MAX = 3  # the service stops if every process has died this many times in a row without becoming ready


class ChildStart(msgspec.Struct, frozen=True, kw_only=True):
    """Start parameters of a child process: its number and the file descriptors inherited from the parent."""

    number: int
    control: int  # pipe on which the child writes one line when ready; it is closed when the parent dies
    sockets: list[tuple[str, int]]  # (purpose, file descriptor) of each listening socket
    offers_first_link: (
        bool  # whether to print a sign-in link if there is no operator; True until a process has been ready
    )


class Child:
    def __init__(
        self,
        process: asyncio.subprocess.Process,
        environment: Mapping[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._environment = environment
        self._writer = writer  # open as long as the parent lives
        # the ready line; empty if the process ended before it was ready
        self.greeting = asyncio.create_task(reader.readline())
        self.ended = asyncio.create_task(self._wait_for_end())

    def stop(self, stop_signal: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(stop_signal)

    async def _wait_for_end(self) -> int:
        code = await self._process.wait()
        metrics.mark_ended(self._process.pid, self._environment)
        self._writer.close()
        return code


class ProcessGroup:
    """Processes that share sockets. When all are ready, the group calls `greet` with the ready line of the first one.

    `environment`: variables that the processes have in addition to ours. `gives_up`: stop if no process becomes ready,
    instead of restarting processes forever.
    """

    def __init__(
        self,
        count: int,
        sockets: Sequence[tuple[str, socket.socket]],
        greet: Callable[[str], None],
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        gives_up: bool = True,
        cell: str = "",
    ) -> None:
        self._environment = environment or {}
        self._gives_up = gives_up
        self._log = log.bind(cell=cell) if cell else log
        self._numbers = range(1, count + 1)
        self._sockets = sockets
        self._greet = greet
        self._command = command
        self._children: dict[int, Child] = {}
        self._running: set[Child] = set()  # all live processes, including replacements that are not ready yet
        self._ready_lines: dict[int, str] = {}  # process number → its first ready line
        self._failures = dict.fromkeys(self._numbers, 0)  # number of deaths in a row before the process was ready
        self._stopping = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._replacing = self._replace_again = False
        self._exit_code = 0

    async def run(self) -> int:
        """Run until `stop` is called, or until no process can be started; return the exit code."""
        async with self._tasks:
            self._tasks.create_task(self._keep_running(1))
        self._log.info("all processes stopped")
        return self._exit_code

    async def _keep_running(self, number: int) -> None:
        """Start process `number` and restart it whenever it dies."""
        loop, delay_s = asyncio.get_running_loop(), RESTART_DELAY_S
        while not self._stopping.is_set():
            started_at = loop.time()
            if number not in self._children or self._children[number].ended.done():  # not replaced in the meantime
                self._children[number] = await self._start(number)
            if greeting := await self._children[number].greeting:
                self._failures[number] = 0
                self._mark_ready(number, greeting.decode().strip())
            else:
                self._failures[number] += 1
            code = await self._wait_until_ended(number)
            if self._stopping.is_set():
                self._exit_code = self._exit_code or int(code not in CLEAN_EXIT_CODES)
            elif self._gives_up and (not self._ready_lines or min(self._failures.values()) >= DEATHS_MAX):
                self._log.error("no process becomes ready: stopping", process=number, code=code)
                self._exit_code = 1
                self.stop()
            else:
                delay_s = (
                    RESTART_DELAY_S if loop.time() - started_at > STABLE_S else min(2 * delay_s, RESTART_DELAY_MAX_S)
                )
                self._log.error("process died: restarting", process=number, code=code, in_s=delay_s)
                await wait_event(self._stopping, delay_s)

    def _mark_ready(self, number: int, greeting: str) -> None:
        if number in self._ready_lines:
            return
        self._ready_lines[number] = greeting
        if number == 1:  # the first process migrates the database; if it becomes ready, the settings are valid too
            for other_number in self._numbers[1:]:
                self._tasks.create_task(self._keep_running(other_number))
        if len(self._ready_lines) == len(self._numbers):
            self._greet(self._ready_lines[1])
            notify("READY=1")

    async def _start(self, number: int) -> Child:
        parent_socket, child_socket = socket.socketpair()
        with child_socket:
            child_start = ChildStart(
                number=number,
                control=child_socket.fileno(),
                sockets=[(purpose, listener.fileno()) for purpose, listener in self._sockets],
                offers_first_link=not self._ready_lines,
            )
            descriptors = [child_start.control, *(descriptor for _, descriptor in child_start.sockets)]
            start_json = msgspec.json.encode(child_start).decode()
            environment = {**child_environment(), **self._environment}
            process = await asyncio.create_subprocess_exec(
                *self._command, "--among", start_json, pass_fds=descriptors, env=environment
            )
        child = Child(process, environment, *await asyncio.open_unix_connection(sock=parent_socket))
        self._running.add(child)
        child.ended.add_done_callback(lambda _: self._running.discard(child))
        if self._stopping.is_set():
            child.stop(signal.SIGINT)
        return child

    async def _wait_until_ended(self, number: int) -> int:
        """Wait until process `number` ends for another reason than a replacement; return its exit code."""
        while True:
            child = self._children[number]
            code = await child.ended
            if self._children[number] is child:
                return code

    def stop(self, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        notify("STOPPING=1")
        self._stopping.set()
        for _, listener in self._sockets:
            listener.close()  # the children close the socket too, so that new connections are refused
        for child in self._running:
            child.stop(stop_signal)

    def reload(self) -> None:
        """Replace all processes, so that they read their settings again."""
        self._replace_again = True  # processes replaced a moment ago are included: they may have older settings
        if not self._replacing:
            self._replacing = True
            self._tasks.create_task(self._replace())

    async def _replace(self) -> None:
        while self._replace_again and not self._stopping.is_set():
            self._replace_again = False
            if await self._replace_all():
                self._log.info("all processes replaced")
        self._replacing = False

    async def _replace_all(self) -> bool:
        """Replace the processes one by one; each stops when its replacement is ready. Return whether all succeeded."""
        for number in self._numbers:
            old = self._children.get(number)
            if old is None or not await old.greeting or old.ended.done():
                continue  # not running: its next start uses the new program anyway
            if self._stopping.is_set():
                return False
            new = await self._start(number)
            if not await new.greeting:
                code = await new.ended
                if not self._stopping.is_set():
                    self._log.error("not replaced: the new process is not ready", process=number, code=code)
                return False
            old, self._children[number] = self._children[number], new
            old.stop(signal.SIGINT)  # stops accepting at once: the other processes accept on the same sockets
            await old.ended
        return True


async def run_groups(groups: Sequence[ProcessGroup]) -> int:
    """Run the groups until SIGTERM or SIGINT, or until all of them stop; return the highest exit code."""
    loop = asyncio.get_running_loop()

    def stop(stop_signal: signal.Signals) -> None:
        for group in groups:
            group.stop(stop_signal)

    def reload() -> None:
        for group in groups:
            group.reload()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop, signal_number)
    loop.add_signal_handler(signal.SIGHUP, reload)
    watchdog_task = asyncio.create_task(feed_watchdog())
    codes = await asyncio.gather(*(group.run() for group in groups))
    watchdog_task.cancel()
    return max(codes)
