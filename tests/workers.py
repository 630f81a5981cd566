"""`--workers N`: tests are collected once and run by N forks, file by file. A fork has everything imported; where each
worker collects for itself, each takes ten seconds more, and twenty where nothing is compiled yet."""

import os
import random
import traceback
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any
from warnings import WarningMessage

import pytest

# Begun first, so that no worker is left with one of them while the others have ended.
LONGEST = ("tests/test_pages.py", "tests/dashboard/test_access.py", "tests/proof/test_reads.py", "tests/journeys/")
PLACE = 2  # octets of a file's place in the order; all of them fit into a pipe


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="Run the tests in so many processes, file by file.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("workers")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    files: dict[Path, list[pytest.Item]] = {}
    for item in sorted(session.items, key=lambda item: not item.nodeid.startswith(LONGEST)):
        files.setdefault(item.path, []).append(item)
    places, write = os.pipe()
    os.write(write, b"".join(place.to_bytes(PLACE) for place in range(len(files))))
    os.close(write)
    base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    workers = [_fork(session.config, list(files.values()), places, base / f"worker{n}") for n in range(count)]
    try:
        _follow(session, dict(workers))
    finally:
        os.read(places, 1 << 16)  # nobody takes another file
        os.close(places)
        for _, pid in workers:
            os.waitpid(pid, 0)
    return True


def _fork(config: pytest.Config, files: list[list[pytest.Item]], places: int, folder: Path) -> tuple[Connection, int]:
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid:
        theirs.close()
        return ours, pid
    captured: Any = config.pluginmanager.get_plugin("capturemanager")
    try:
        random.seed()
        folder.mkdir(mode=0o700)
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        captured.stop_global_capturing()  # its file is the others' too
        captured.start_global_capturing()
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Teller(config, theirs))
        _work(files, places)
        theirs.send(None)
    except KeyboardInterrupt:
        pass
    except BaseException:
        captured.suspend_global_capture()
        traceback.print_exc()
    finally:
        os._exit(0)


def _work(files: list[list[pytest.Item]], places: int) -> None:
    """A file is taken when the last test of the one before begins, which must know what comes next."""
    left = _next(files, places)
    while left:
        item = left.pop(0)
        left = left or _next(files, places)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=left[0] if left else None)


def _next(files: list[list[pytest.Item]], places: int) -> list[pytest.Item]:
    place = os.read(places, PLACE)
    return files[int.from_bytes(place)] if place else []


class Teller:
    """Of a fork: hands on what is to be counted or shown."""

    def __init__(self, config: pytest.Config, to: Connection) -> None:
        self._config, self._to = config, to
        self._all = config.option.durations is not None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._all or report.when == "call" or not report.passed:
            self._to.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        told = str(warning_message.message), warning_message.category, warning_message.filename, warning_message.lineno
        self._to.send((told, {"when": when, "nodeid": nodeid, "location": location}))


def _follow(session: pytest.Session, workers: dict[Any, int]) -> None:
    hook, last = session.config.hook, dict.fromkeys(workers, "it began")
    while workers:
        for one in wait(list(workers)):
            assert isinstance(one, Connection)
            try:
                told = one.recv()
            except EOFError:
                session.shouldfail = f"a worker died after {last[one]}"
                raise session.Failed(session.shouldfail) from None
            if told is None:
                del workers[one]
                continue
            if isinstance(told, tuple):
                hook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": WarningMessage(*told[0]), **told[1]}
                )
                continue
            report = hook.pytest_report_from_serializable(config=session.config, data=told)
            last[one] = report.nodeid
            hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
