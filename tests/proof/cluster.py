"""PostgreSQL nodes under Patroni with etcd, on loopback: killed, frozen, isolated, switched over, and repaired.

All traffic of a node goes through ports of ours, which can stop forwarding, as a network that drops packets does.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import asyncpg

from tests import postgres_server
from tests.npm import miss
from tests.service import free_port, until

CONFIG = Path(__file__).parents[2] / "deploy" / "patroni.yaml"
USER = "postgres"
NAMES = ("one", "two", "three")
RUNNING = ("running", "streaming")  # states of a member
PASSWORD = "loopback"
START_S = 300.0
T = TypeVar("T")


class Wires:
    """Ports before others' ports."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._flows: dict[int, asyncio.Event] = {}
        self._ends: dict[int, list[asyncio.StreamWriter]] = {}

    def open(self, target: int) -> int:
        """Another port that leads to it."""
        return self._do(self._open(target))

    def cut(self, port: int) -> None:
        """Nothing goes through any more, and nobody is told."""
        self._loop.call_soon_threadsafe(self._flows[port].clear)

    def mend(self, port: int) -> None:
        """Connections of before are lost, as after so long a time."""
        self._do(self._mend(port))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, target: int) -> int:
        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._ends[port].append(writer)
            await self._flows[port].wait()
            try:
                there, back = await asyncio.open_connection("127.0.0.1", target)
            except OSError:
                writer.transport.abort()
                return
            self._ends[port].append(back)
            await asyncio.gather(self._pipe(port, reader, back), self._pipe(port, there, writer))

        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        port = int(server.sockets[0].getsockname()[1])
        self._flows[port], self._ends[port] = asyncio.Event(), []
        self._flows[port].set()
        return port

    async def _pipe(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flows[port].wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _mend(self, port: int) -> None:
        for end in self._ends[port]:
            end.transport.abort()
        self._ends[port].clear()
        self._flows[port].set()


class Node:
    """A Patroni and its PostgreSQL."""

    def __init__(self, name: str, folder: Path, etcd: int, wires: Wires) -> None:
        self.name = name
        self._wires = wires
        self._data, self._log = folder / name, folder / f"{name}.log"
        self._own = free_port()
        self._rest = free_port()
        self.port, rest, etcd = wires.open(self._own), wires.open(self._rest), wires.open(etcd)
        self._ports = (self.port, rest, etcd)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PATRONI_NAME": name,
            "PATRONI_ETCD3_HOSTS": f"127.0.0.1:{etcd}",
            "PATRONI_ETCD3_USE_PROXIES": "true",
            "PATRONI_RESTAPI_LISTEN": f"127.0.0.1:{self._rest}",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": f"127.0.0.1:{rest}",
            "PATRONI_POSTGRESQL_LISTEN": f"127.0.0.1:{self._own}",
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": f"127.0.0.1:{self.port}",
            "PATRONI_POSTGRESQL_BIN_DIR": str(postgres_server.bin_path()),
            "PATRONI_POSTGRESQL_DATA_DIR": str(self._data),
            "PATRONI_SUPERUSER_PASSWORD": PASSWORD,
            "PATRONI_REPLICATION_PASSWORD": PASSWORD,
        }
        self._patroni: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._patroni = subprocess.Popen(
                ["patroni", str(CONFIG)],
                env=self._environment,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
                **postgres_server.identity(),
            )

    def kill(self) -> None:
        """As if its machine had lost power; mended by a start."""
        self._signal(signal.SIGKILL)
        if self._patroni:
            self._patroni.wait()

    def hang(self) -> None:
        self._signal(signal.SIGSTOP)

    def reset(self) -> None:
        """As a watchdog does. One that just goes on may take the lead back, without what was written meanwhile."""
        self.kill()
        self.start()

    def cut(self) -> None:
        for port in self._ports:
            self._wires.cut(port)

    def mend(self) -> None:
        for port in self._ports:
            self._wires.mend(port)

    def leads(self) -> bool:
        """It takes writes, whatever its Patroni thinks of it; asked beside the network."""
        with suppress(Exception):  # whatever the driver says of one that goes down
            return asyncio.run(self._ask("SELECT NOT pg_is_in_recovery()")) is True
        return False

    def roles(self) -> dict[str, str]:
        """Return the role of each running node by its name, according to this node's Patroni."""
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._rest}/cluster", timeout=2) as answer:
            members = json.load(answer)["members"]
            return {member["name"]: member["role"] for member in members if member["state"] in RUNNING}
        return {}

    def make_database(self) -> None:
        asyncio.run(self._ask("CREATE DATABASE heliograph", timeout=START_S))

    def switch_to(self, other: "Node") -> None:
        """Refused until its Patroni knows that the other one is synchronous."""
        body = json.dumps({"leader": self.name, "candidate": other.name}).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{self._rest}/switchover", body)

        def is_done() -> bool:
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(asked, timeout=START_S):
                return True
            return False

        until(is_done, START_S)

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/heliograph?sslmode=disable"

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    async def _ask(self, query: str, timeout: float = 2) -> Any:
        url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self._own}/postgres?sslmode=disable"
        connection: Any = await asyncpg.connect(url, timeout=timeout / 2, command_timeout=timeout)
        try:
            return await connection.fetchval(query)
        finally:
            connection.terminate()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pids(self) -> list[int]:
        """Patroni first: it must not see the others go."""
        found = [self._patroni.pid] if self._patroni and self._patroni.poll() is None else []
        with suppress(OSError, ValueError, IndexError):
            postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
            found += [postmaster, *_children(postmaster)]
        return found


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Cluster:
    def __init__(self, nodes: int = 2) -> None:
        missing = [name for name in ("patroni", "etcd") if shutil.which(name) is None]
        if missing or not postgres_server.is_installed():
            miss("failover", "it needs patroni, etcd and the PostgreSQL of the tests")
        self._names = NAMES[:nodes]
        self._ended = ExitStack()
        self._wires = Wires()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._ended.close()
            raise
        return self

    def _start(self) -> None:
        folder = self._ended.enter_context(postgres_server.temporary_folder())
        self._ended.callback(self._wires.close)
        etcd = self._start_etcd(folder)
        self.nodes = [Node(name, folder, etcd, self._wires) for name in self._names]
        for node in self.nodes:
            self._ended.callback(node.kill)
            node.start()
            until(lambda: any(node.leads() for node in self.nodes), START_S)
        self.until_whole()
        self.primary.make_database()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind:
            print(*(node.log() for node in self.nodes), sep="\n\n")
        self._ended.close()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://{USER}:{PASSWORD}@{hosts}/heliograph?target_session_attrs=read-write&sslmode=disable"

    @property
    def primary(self) -> Node:
        return next(node for node in self.nodes if node.leads())

    def others(self, node: Node) -> list[Node]:
        return [other for other in self.nodes if other is not node]

    def synchronous_standby(self) -> Node:
        roles = self.primary.roles()
        return next(node for node in self.nodes if roles.get(node.name) == "sync_standby")

    def until_whole(self, members: int | None = None) -> None:
        """Wait until one node leads and the others follow, one of them synchronously; `members`: all by default."""

        def is_whole() -> bool:
            leaders = [node for node in self.nodes if node.leads()]
            roles = leaders[0].roles() if len(leaders) == 1 else {}
            return len(roles) >= (members or len(self.nodes)) and "sync_standby" in roles.values()

        until(is_whole, START_S)

    def _start_etcd(self, folder: Path) -> int:
        port, peers = free_port(), free_port()
        ours, theirs = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
        command = ["etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", ours]
        command += ["--advertise-client-urls", ours, "--listen-peer-urls", theirs]
        command += ["--initial-advertise-peer-urls", theirs, "--initial-cluster", f"default={theirs}"]
        environment = os.environ | {"ETCD_UNSUPPORTED_ARCH": "arm64"}
        with (folder / "etcd.log").open("wb") as log:
            etcd = subprocess.Popen(command, env=environment, stdout=log, stderr=log, **postgres_server.identity())
        self._ended.callback(etcd.wait)
        self._ended.callback(etcd.kill)
        return port
