"""Runs commands in forks of a process that has already imported everything, which saves a second of CPU each."""

import atexit
import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

MESSAGE_MAX = 1 << 18


class Forked:
    """The part of the interface of subprocess.Popen that tests use. The program is Python code that reads sys.argv."""

    def __init__(
        self, program: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> None:
        self._ended, ended = _pair()
        read, write = os.pipe()
        os.umask(umask := os.umask(0o077))
        asked = json.dumps([program, arguments, dict(environment), str(folder or Path.cwd()), umask]).encode()
        with ended:
            socket.send_fds(parent(), [asked], [ended.fileno(), write])
        os.close(write)
        self.stdout = os.fdopen(read, encoding="utf-8")
        self.pid = int(self._ended.recv(20))
        self.returncode: int | None = None
        self.blocked: list[str] = []  # logged warnings about its blocked event loop

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._ended.settimeout(timeout)
            try:
                self.returncode = int(self._ended.recv(20))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self._ended.close()
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _pair() -> tuple[socket.socket, socket.socket]:
    """Return a pair of sockets that keep message boundaries, so that a pid and an exit code are not merged."""
    return socket.socketpair(type=socket.SOCK_SEQPACKET)


@functools.cache
def parent() -> socket.socket:
    """Return our end of the process that forks. It ends when this process does, as do all its forks."""
    ours, theirs = _pair()
    subprocess.Popen([sys.executable, "-m", "tests.forks"], stdin=theirs.fileno(), cwd=Path(__file__).parents[1])
    theirs.close()
    atexit.register(ours.close)
    return ours


def _serve(control: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # processes that watch forks leave no zombies
    while True:
        asked, files, *_ = socket.recv_fds(control, MESSAGE_MAX, 2)
        if not asked:
            return
        if os.fork() == 0:
            control.close()
            _watch(asked, *files)
        for file in files:
            os.close(file)


def _watch(asked: bytes, ended: int, output: int) -> None:
    """Wait in a separate process for the forked one to end, and report its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # restores signals that nohup ignores,
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and those that a background shell ignores
    child = os.fork()
    if child == 0:
        os.close(ended)
        _become(asked, output)
    os.close(output)
    os.write(ended, b"%d" % child)
    _, status = os.waitpid(child, 0)
    os.write(ended, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(asked: bytes, output: int) -> None:
    program, arguments, environment, folder, umask = json.loads(asked)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.umask(umask)
    code: object = 1
    try:
        sys.argv[1:] = arguments
        exec(program, {})
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def compile_pages() -> None:
    from heliograph.dashboard.render import jinja_environment

    for template in jinja_environment().list_templates():
        jinja_environment().get_template(template)


if __name__ == "__main__":
    import heliograph.cli.serve  # noqa: F401  the second that is saved
    from heliograph.storage.engine.query import Dialect, load_queries
    from tests.fast_crypto import cheapen

    cheapen()
    for dialect in get_args(Dialect):
        load_queries(dialect)
    compile_pages()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page of this process
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with socket.socket(fileno=os.dup(0)) as at:
        _serve(at)
