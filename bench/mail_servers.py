"""A server under measure, with files and a port of its own, and ours: whole, and with one signature alone."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from accept import CLI, HERE, free_port
from mail_install import run
from mail_processes import Group

from heliograph.opening import open_store
from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.setup.snapshot import to_row
from heliograph.settings import Settings
from heliograph.storage.setup import SetupChange

TEAM, DOMAIN = "team_bench", "bench.test"  # of setup.toml
SESSIONS = 20  # to the sink: Postfix's default; as many of smtp-source to Postfix and Haraka
CONNECTIONS = 128  # of the HTTP load
SEND_S = 120.0


class Server(ABC):
    """Up only between `start` and `stop`; what it keeps on disk stays from one time to the next."""

    name: str  # short
    label: str  # for the table

    def __init__(self, folder: Path, sink: int) -> None:
        self.folder, self.sink, self.port = folder / self.name, sink, free_port()
        self.folder.mkdir()
        self.folder.chmod(0o755)  # Postfix's own users go through it
        self._groups: list[Group] = []

    @abstractmethod
    def start(self) -> None:
        """Returns when it takes connections."""

    @abstractmethod
    def send(self, mails: int) -> float:
        """Submit so many; answers when it began, on the machine's monotonic clock."""

    @abstractmethod
    def records(self) -> dict[str, str]:
        """Its DKIM records: name → value."""

    def cpu_s(self) -> float:
        return sum(group.cpu_s() for group in self._groups)

    def stop(self) -> None:
        while self._groups:
            self._groups.pop().stop()

    def _run(self, *command: str, environment: dict[str, str] | None = None) -> Group:
        group = Group(self.name, [*command], self.folder / f"{Path(command[0]).name}.log", environment)
        self._groups.append(group)
        return group


class Ours(Server):
    """The whole service in one process on SQLite; every 202 follows a synced commit."""

    name, label = "ours", "Heliograph"

    def __init__(self, folder: Path, sink: int, token: str) -> None:
        super().__init__(folder, sink)
        self._token = token
        self.settings = Settings(database=f"sqlite:///{self.folder}/ours.db", data=self.folder / "files")
        self._where = ["--database", self.settings.database, "--data", str(self.settings.data)]
        self._environment = {**os.environ, "BENCH_TOKEN": token}
        relay = f'kind = "smtp"\nhost = "127.0.0.1"\nport = {sink}\ntls = "none"\nconnections = {SESSIONS}'
        setup = self.folder / "setup.toml"
        setup.write_text((HERE / "setup.toml").read_text().replace('kind = "simulator"', relay))
        self._ask("apply", str(setup), "--json")
        self.records()  # makes the keys

    def start(self) -> None:
        self.launch(*CLI)

    def launch(self, *program: str) -> Group:
        command = [*program, "serve", "--listen", f"127.0.0.1:{self.port}", *self._where]
        group = self._run(*command, environment=self._environment)
        group.wait_for(socket.AF_INET, ("127.0.0.1", self.port))
        return group

    def send(self, mails: int) -> float:
        options = [f"--port={self.port}", f"--token={self._token}", f"--mails={mails}", f"--connections={CONNECTIONS}"]
        load = [sys.executable, str(HERE / "mail_load.py"), *options]
        return float(subprocess.run(load, check=True, stdout=subprocess.PIPE, timeout=SEND_S).stdout)

    def records(self) -> dict[str, str]:
        shown = json.loads(self._ask("domain", "dns", DOMAIN, "--json"))["records"]
        return {record["name"]: record["value"] for record in shown if record["purpose"] == "dkim"}

    def _ask(self, *words: str) -> str:
        return run([*CLI, *words, *self._where], env=self._environment)


class OursRsa(Ours):
    """With one signature, as the others make it."""

    name, label = "ours-rsa", "Heliograph, RSA alone"

    def __init__(self, folder: Path, sink: int, token: str) -> None:
        super().__init__(folder, sink, token)
        asyncio.run(_drop_ed25519(self.settings))


async def _drop_ed25519(settings: Settings) -> None:
    async with open_store(settings) as store:
        keys = [key for key in store.setup.current.teams[TEAM].dkim_keys if key.algorithm != "rsa-sha256"]
        rows = [to_row("dkim_key", key.id, None, key.team) for key in keys]
        await store.setup.change(
            lambda *_: SetupChange(rows=rows, audit=COMMAND_LINE.did(0, "bench.set_up", "a bench"))
        )
