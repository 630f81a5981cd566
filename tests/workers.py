"""`--workers N`: tests are collected once and run by N forks, file by file, or one by one if marked `apart`.

A fork has everything imported already. If each worker collected the tests itself, each would take ten seconds longer,
and twenty without compiled bytecode.
"""

import os
import random
import signal
import traceback
from itertools import pairwise
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn
from warnings import WarningMessage

import pytest

# Started first and in this order, so that no worker runs one of them after the others have ended.
LONGEST = (
    "tests/test_dist.py::test_a_later_commit_is_an_upgrade",
    *("tests/test_pages.py", "tests/manage/test_every_change.py", "tests/dashboard/test_access.py"),
    *("tests/proof/test_reads.py", "tests/proof/test_wrong_clocks.py", "tests/bench/test_capacity.py"),
    *("tests/clients/", "tests/deliver/test_webhooks.py", "tests/submission/test_slow.py", "tests/cli/test_demo.py"),
    *("tests/api/test_reading.py", "tests/storage/test_plans.py", "tests/test_growth.py"),
)
HUNG_S = 600.0  # the run fails without any report for this long
PLACE = 2  # bytes of a position in the order; all positions fit into a pipe


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="Run the tests in so many processes, file by file.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("workers")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    shares = _shares(session.items)
    places, write = os.pipe()
    os.write(write, b"".join(place.to_bytes(PLACE) for place in range(len(shares))))
    os.close(write)
    base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    workers = [_fork(session, shares, places, base / f"worker{n}") for n in range(count)]
    try:
        _follow(session, dict(workers))
    finally:
        os.read(places, 1 << 16)  # nobody takes another share
        os.close(places)
        for _, pid in workers:
            os.waitpid(pid, 0)
    return True


def _shares(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the groups of tests that a worker takes at a time, in order."""
    found: dict[Path | str, list[pytest.Item]] = {}
    for item in sorted(items, key=_turn):
        found.setdefault(item.nodeid if item.get_closest_marker("apart") else item.path, []).append(item)
    return list(found.values())


def _turn(item: pytest.Item) -> int:
    return next((turn for turn, begin in enumerate(LONGEST) if item.nodeid.startswith(begin)), len(LONGEST))


def _fork(
    session: pytest.Session, shares: list[list[pytest.Item]], places: int, folder: Path
) -> tuple[Connection, int]:
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid:
        theirs.close()
        return ours, pid
    config = session.config
    captured: Any = config.pluginmanager.get_plugin("capturemanager")
    try:
        random.seed()
        folder.mkdir(mode=0o700)
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        captured.stop_global_capturing()  # its file is the others' too
        captured.start_global_capturing()
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(ReportSender(config, theirs))
        _work(session, shares, places)
        theirs.send(None)
    except KeyboardInterrupt:
        pass
    except BaseException:
        captured.suspend_global_capture()
        traceback.print_exc()
    finally:
        os._exit(0)


def _work(session: pytest.Session, shares: list[list[pytest.Item]], places: int) -> None:
    """Run the tests of one share after the other; between two shares only session fixtures stay active.

    The next share is not known before it is taken.
    """
    item = None
    while share := _next(shares, places):
        for item, after in pairwise([*share, session]):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
    if isinstance(item, pytest.Item):
        ended = pytest.CallInfo.from_call(lambda: session._setupstate.teardown_exact(None), "teardown")
        report = session.config.hook.pytest_runtest_makereport(item=item, call=ended)
        session.config.hook.pytest_runtest_logreport(report=report)


def _next(shares: list[list[pytest.Item]], places: int) -> list[pytest.Item]:
    place = os.read(places, PLACE)
    return shares[int.from_bytes(place)] if place else []


class ReportSender:
    """Plugin of a fork: sends the reports and warnings of its tests to the parent."""

    def __init__(self, config: pytest.Config, parent: Connection) -> None:
        self._config, self._parent = config, parent
        self._sends_all = config.option.durations is not None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._sends_all or report.when == "call" or not report.passed:
            self._parent.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        fields = (
            str(warning_message.message),
            warning_message.category,
            warning_message.filename,
            warning_message.lineno,
        )
        self._parent.send((fields, {"when": when, "nodeid": nodeid, "location": location}))


def _follow(session: pytest.Session, workers: dict[Any, int]) -> None:
    """Report what the workers send until all have ended; fail if one dies or none sends anything for HUNG_S."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    hook, last_tests = session.config.hook, dict.fromkeys(workers, "the start")
    while workers:
        ready = wait(list(workers), HUNG_S)
        if not ready:
            for pid in workers.values():
                os.kill(pid, signal.SIGKILL)
            tests = ", ".join(last_tests[worker] for worker in workers)
            _fail(session, f"no test ended in {HUNG_S:.0f} s: a test hangs after {tests}")
        for worker in ready:
            assert isinstance(worker, Connection)
            try:
                message = worker.recv()
            except EOFError:
                _fail(session, f"a worker died after {last_tests[worker]}")
            if message is None:
                del workers[worker]
                continue
            if isinstance(message, tuple):
                fields, place = message
                hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": WarningMessage(*fields), **place})
                continue
            report = hook.pytest_report_from_serializable(config=session.config, data=message)
            last_tests[worker] = report.nodeid
            hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
            if report.failed:  # at once: a run that is ended early would not say it
                reporter.write_line(f"\nFAILED {report.nodeid} ({report.when})")
            if session.shouldfail:
                raise session.Failed(session.shouldfail)


def _fail(session: pytest.Session, reason: str) -> NoReturn:
    session.shouldfail = reason
    raise session.Failed(reason) from None
