"""CPU time of the service by stage: runs the command line in this process and times the stages of a mail per thread.

The time of an inner stage does not count toward the outer one. SIGUSR1 restarts the count; at the end it is written to
a file.
"""

import functools
import inspect
import json
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from heliograph.carriers.email import mime
from heliograph.carriers.email.connection_pool import ConnectionPool
from heliograph.carriers.email.outgoing import MailPreparer
from heliograph.carriers.email.wire import SmtpClientConnection
from heliograph.cli.main import main
from heliograph.deliver.dispatch import Dispatch
from heliograph.deliver.worker import Worker
from heliograph.domain.mail.dkim import Draft, Signer
from heliograph.storage import accept, outbox, outcomes
from heliograph.storage.engine.sqlite import SqliteDatabase
from heliograph.web.connection import Connection

STAGES: dict[str, list[tuple[Any, str]]] = {
    "accept": [(Connection, "data_received"), (Connection, "_answer"), (accept, "accept")],
    "dispatch": [(outbox, "claim"), (Worker, "_start"), (Dispatch, "deliver")],
    "build": [(mime, "build"), (MailPreparer, "prepare"), (MailPreparer, "_make"), (MailPreparer, "_build")],
    "sign": [(Signer, "draft"), (Draft, "sign")],
    "talk": [(ConnectionPool, "send"), (SmtpClientConnection, "data_received")],
    "record": [(outcomes, "record")],
    "commit": [(SqliteDatabase, "_transact")],
}


class Used:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self._here = threading.local()
        self.start()

    def start(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._from = time.process_time()

    def run(self, stage: str, function: Callable[..., Any], *options: Any, **named: Any) -> Any:
        began, outer = time.thread_time(), getattr(self._here, "inner", 0.0)
        self._here.inner = 0.0
        try:
            return function(*options, **named)
        finally:
            spent = time.thread_time() - began
            self.seconds[stage] += spent - self._here.inner
            self._here.inner = outer + spent

    def write(self, path: Path) -> None:
        whole = time.process_time() - self._from
        path.write_text(json.dumps({**self.seconds, "rest": whole - sum(self.seconds.values())}))


USED = Used()


class Steps:
    """Times a coroutine while it runs, but not while it waits."""

    def __init__(self, stage: str, coroutine: Any) -> None:
        self._stage, self._coroutine = stage, coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        step, options = self._coroutine.send, None
        while True:
            try:
                waits_for = USED.run(self._stage, step, options)
            except StopIteration as done:
                return done.value
            try:
                step, options = self._coroutine.send, (yield waits_for)
            except BaseException as error:
                step, options = self._coroutine.throw, error


def timed(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def in_steps(*options: Any, **named: Any) -> Any:
        return await Steps(stage, function(*options, **named))

    @functools.wraps(function)
    def at_once(*options: Any, **named: Any) -> Any:
        return USED.run(stage, function, *options, **named)

    return in_steps if inspect.iscoroutinefunction(function) else at_once


if __name__ == "__main__":
    for stage, places in STAGES.items():
        for owner, name in places:
            setattr(owner, name, timed(stage, getattr(owner, name)))
    signal.signal(signal.SIGUSR1, lambda *_: USED.start())
    path = Path(sys.argv.pop(1))
    try:
        main()
    finally:
        USED.write(path)
