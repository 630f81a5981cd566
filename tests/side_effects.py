"""A pytest plugin that fails a run which changes the machine, and reports the changes.

It compares the state before and after a run: the mode of the home folder, the accounts, the processes that the run
started, and `git status`. Someone may edit the checkout while tests run, so changes in it fail the run only in CI and
are reported elsewhere.
"""

import os
import pwd
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests import forks

ROOT = Path(__file__).parents[1]
GIT = "git status"
MARK = "TEST_RUN"  # inherited by every process that a test starts with our environment
END_S = 30.0  # wait for processes that are ending

_before = pytest.StashKey[dict[str, object]]()
_changes = pytest.StashKey[dict[str, str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    os.environ[MARK] = uuid.uuid4().hex
    session.config.stash[_before] = machine_state()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Compare the state after all other plugins have ended what they started. Workers end without this."""
    if forks.parent.cache_info().currsize:  # else it would end after us
        forks.parent().close()
        forks.parent.cache_clear()
    before, now = session.config.stash[_before], machine_state()
    changes = {name: f"{before[name]!r} before, {now[name]!r} now" for name in now if now[name] != before[name]}
    if commands := left_running(os.environ.pop(MARK)):
        changes["processes"] = f"still running: {', '.join(commands)}"
    session.config.stash[_changes] = changes
    if set(changes) - (set() if os.environ.get("CI") else {GIT}):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for name, change in config.stash.get(_changes, {}).items():
        terminalreporter.write_line(f"THIS RUN CHANGED THE MACHINE: {name}: {change}", red=True)


def machine_state() -> dict[str, object]:
    home = Path.home()
    return {
        f"mode of {home}": oct(home.stat().st_mode) if home.exists() else None,
        "accounts": sorted(entry.pw_name for entry in pwd.getpwall()),
        GIT: git_status(),
    }


def git_status() -> list[str]:
    command = ["git", "-C", str(ROOT), "status", "--porcelain"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:  # git is not installed
        return []


def left_running(mark: str) -> list[str]:
    """Return the commands of this run's processes that still run, after processes that are exiting have ended."""
    deadline = time.monotonic() + END_S
    while (commands := processes_of(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return commands


def processes_of(mark: str) -> list[str]:
    marked, commands = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marked in (folder / "environ").read_bytes().split(b"\0"):
                commands.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
        except OSError:
            continue  # it has ended, or is another user's
    return commands
