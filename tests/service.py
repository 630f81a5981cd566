"""The service as a user runs it: real processes of the command line, accessed over HTTP."""

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Self
from unittest import mock

import msgspec

from heliograph.cli.main import main
from heliograph.domain.setup.keys import make_token
from tests.event_check import check_file
from tests.forks import Forked

SETUP = Path(__file__).with_name("setup.toml")
NAMES = (
    *("ACME", "ACME_SEND", "ACME_MANAGE", "ACME_PINNED", "SANDBOX", "BARE", "POOR", "SUSPENDED", "SLOW"),
    *("SUSPENDED_MANAGE", "SLOW_MANAGE", "BROKE", "NARROW", "PLAIN", "UDH", "QUOTA", "SLOW_SMS", "OTHER", "LONG"),
    "AGENT",
)
TOKENS = {name: make_token(bytes([number]) * 64) for number, name in enumerate(NAMES, 1)}
COMMAND = (sys.executable, "-P", "-m", "heliograph.cli.main")
PROGRAM = "from heliograph.cli.main import main; main()"  # a test may insert a fault before it

PATIENCE_S = 60.0  # maximum wait for an expected result, on a busy machine
BLOCKED = "event loop blocked"
NOBODY = "127.0.0.1:9"  # address of a name server that does not respond: tests contact no other machine

_alone = threading.Lock()  # held while a command runs in this process, because it uses the environment and streams


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]  # lower-case names
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def code(self) -> str | None:
        """Return the error code of the response; None for a success."""
        return self.json["error"]["code"] if self.status >= 400 else None


class Service:
    """One or more processes on one database; all are stopped when the block ends."""

    def __init__(
        self,
        database: str,
        data: Path,
        step_ms: int = 1,
        bounce_listen: str = "off",
        resolver: str = NOBODY,
        stop_delay_ms: int = 0,
        **settings: str,
    ) -> None:
        """Further settings by their names."""
        self.database = database
        self.data = data
        self.ports: list[int] = []
        self.processes: list[Forked] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")},
            **TOKENS,
            "HELIOGRAPH_DATABASE": database,
            "HELIOGRAPH_DATA": str(data),
            "HELIOGRAPH_PROCESSES": "1",
            "HELIOGRAPH_SIMULATOR_STEP_MS": str(step_ms),
            "HELIOGRAPH_STOP_DELAY_MS": str(stop_delay_ms),
            "HELIOGRAPH_BOUNCE_LISTEN": bounce_listen,
            "HELIOGRAPH_RESOLVER": resolver,
            "HELIOGRAPH_WEBHOOK_ALLOW_PRIVATE": "127.0.0.0/8",
            "HELIOGRAPH_TRUSTED_PROXIES": "127.0.0.1",
            **{f"HELIOGRAPH_{name.upper()}": value for name, value in settings.items()},
            "PYTHONUNBUFFERED": "1",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        path = Path(self.database.removeprefix("sqlite:///"))
        if path.exists():
            check_file(path)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end and return its output.

        It runs in this process, which has imported everything, and in a thread, because the test may have an event
        loop.
        """
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))

        def command() -> Any:
            with mock.patch.dict(os.environ, self._environment, clear=True), redirect_stdout(out), redirect_stderr(err):
                try:
                    main(arguments)
                except SystemExit as ended:
                    return ended.code

        with _alone, ThreadPoolExecutor(1) as pool:
            code = pool.submit(command).result()
        said = (stream.buffer.getvalue().decode() for stream in (out, err))
        return subprocess.CompletedProcess(arguments, code, *said)

    def launch(self, program: str, *arguments: str) -> Forked:
        """Start a command in a process of its own."""
        process = Forked(program, arguments, self._environment)
        self.processes.append(process)
        return process

    def apply(self, file: Path = SETUP) -> Any:
        done = self.run("apply", str(file), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, role: str = "all", port: int = 0, *flags: str) -> Forked:
        """Start a process and wait until it responds; its port is the last one of `ports`."""
        arguments = ["serve", "--role", role, "--listen", f"127.0.0.1:{port}", *flags]
        process = Forked(PROGRAM, arguments, self._environment)
        self.processes.append(process)
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith("Heliograph is "):
                if role != "worker":
                    self.ports.append(int(line.split("http://")[1].split()[0].rpartition(":")[2]))
                # The pipe must not fill up: of what it says from now on, only what blocked its loop is kept.
                _drain(process)
                return process
        raise AssertionError("".join(seen))

    def kill(self, process: Forked | None = None) -> None:
        process = process or self.processes[-1]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self, process: Forked | None = None) -> int:
        process = process or self.processes[-1]
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_S)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = "ACME",
        headers: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> Answer:
        """Send a request and return the response.

        `key` names a token of TOKENS. A body of bytes is sent unchanged, any other as JSON.
        """
        given = {"Content-Type": "application/json"} if body is not None else {}
        if key is not None:
            given["Authorization"] = f"Bearer {TOKENS.get(key, key)}"
        given |= headers or {}
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", port or self.ports[-1], timeout=PATIENCE_S)
        try:
            connection.request(method, path, sent, given)
            response = connection.getresponse()
            answered = {name.lower(): response.getheader(name, "") for name, _ in response.getheaders()}
            return Answer(response.status, answered, response.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Answer:
        return self.ask("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> Answer:
        return self.ask("POST", path, body, **options)

    def add_credit(self, team: str, amount: str) -> None:
        """Add credit with a new platform key."""
        token = json.loads(self.run("key", "create", "--platform", "--json").stdout)["token"]
        body = {"amount": amount, "reference": str(time.monotonic_ns())}
        answer = self.post(f"/v1/teams/{team}/credit", body, key=token)
        assert answer.status == 201, answer.raw


def until(check: Callable[..., Any], seconds: float = PATIENCE_S) -> Any:
    """Return the first true result of `check`; fail if there is none in time.

    The interval between calls grows, to leave CPU for the awaited work.
    """
    end, pause = time.monotonic() + seconds, 0.02
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"still {found!r} after {seconds} s"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.2)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _drain(process: Forked) -> None:

    def read() -> None:
        with process.stdout:
            for line in process.stdout:
                if BLOCKED in line:
                    process.blocked.append(line)

    threading.Thread(target=read, daemon=True).start()


def walked(service: "Service", path: str) -> list[Any]:
    """Return every entry of a list, page by page, also those of other tests that share the service."""
    found: list[Any] = []
    more = True
    while more:
        after = f"&after={found[-1]['id']}" if found else ""
        page = service.get(f"{path}?limit=100{after}").json
        found += page["data"]
        more = page["has_more"]
    return found
