"""Our own server under test: the current revision, or an older one in the same rounds; and its databases."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import asyncpg
import msgspec
from processes import Group, cpu_s, family
from rounds import ROOT, free_port

from heliograph.domain.setup.keys import ENTROPY_BYTES, make_token

sys.path.append(str(ROOT))  # benchmarks run as scripts, so their folder is on the path
from tests.postgres_server import PostgresServer

TOKEN = make_token(secrets.token_bytes(ENTROPY_BYTES))
SETUP = ROOT / "bench" / "setup.toml"
OLDER = ROOT / ".venv" / "revisions"


class Revision(msgspec.Struct, frozen=True):
    """What runs a revision: an interpreter with its dependencies, and its source."""

    name: str  # empty for the current revision
    python: str
    source: Path

    def command(self, *words: str) -> list[str]:
        return [self.python, "-P", "-m", "heliograph.cli.main", *words]

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "BENCH_TOKEN": TOKEN, "PYTHONPATH": str(self.source), **more}

    def ask(self, *words: str) -> str:
        """Return the output of a command."""
        done = subprocess.run(self.command(*words), env=self.environment(), check=True, stdout=subprocess.PIPE)
        return done.stdout.decode()

    def called(self, name: str) -> str:
        return f"{name}, {self.name}" if self.name else name


NOW = Revision("", sys.executable, ROOT / "src")


def revisions(compared: str | None) -> list[Revision]:
    """Return the current revision, and the one to compare it with, if any."""
    return [NOW, older(compared)] if compared else [NOW]


def older(name: str) -> Revision:
    """Return an older commit, unpacked and cached; with its own environment if its dependencies differ."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.check_output([*git, "rev-parse", "--short", f"{name}^{{commit}}"], text=True).strip()
    folder = OLDER / commit
    if not (folder / "src").exists():
        folder.mkdir(parents=True)
        archive = subprocess.check_output([*git, "archive", commit])
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    lock, venv = folder / "requirements.lock", folder / ".venv"
    if lock.read_bytes() == (ROOT / "requirements.lock").read_bytes():
        return Revision(commit, sys.executable, folder / "src")
    python = str(venv / "bin/python")
    if not (venv / ".ready").exists():
        print(f"installing what {commit} needs (once) …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(lock)], check=True)
        (venv / ".ready").touch()
    return Revision(commit, python, folder / "src")


class Databases:
    """SQLite files, and a PostgreSQL server with its default configuration, started for the benchmark."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._server = folder, PostgresServer(folder / "pg")

    def stop(self) -> None:
        self._server.stop(signal.SIGINT)

    def new(self, kind: str, name: str) -> str:
        """Return the URL of the database with this name (`sqlite` or `postgres`); it is created if missing."""
        if kind == "sqlite":
            return f"sqlite:///{self._folder}/{name}.db"
        if not self.ask(self._server.url(), f"SELECT 1 FROM pg_database WHERE datname = '{name}'")[0]:
            self.ask(self._server.url(), f'CREATE DATABASE "{name}"')
        return self._server.url(name)

    def drop(self, address: str) -> None:
        if address.startswith("sqlite"):
            for part in ("", "-wal", "-shm"):
                Path(address.removeprefix("sqlite:///") + part).unlink(missing_ok=True)
        else:
            name = urlsplit(address).path[1:]
            self.ask(self._server.url(), f'DROP DATABASE "{name}" WITH (FORCE)')

    def size(self, address: str) -> int:
        """Return the bytes on disk."""
        if address.startswith("sqlite"):
            return Path(address.removeprefix("sqlite:///")).stat().st_size
        return int(self.ask(address, "SELECT pg_database_size(current_database())")[0])

    def ask(self, address: str, *queries: str) -> list[Any]:
        """Return one value for each query."""
        if address.startswith("sqlite"):
            with apsw.Connection(address.removeprefix("sqlite:///")) as file:
                return [file.execute(query).get for query in queries]
        return asyncio.run(_ask(address, queries))

    def family(self) -> dict[int, int]:
        """Return the processes of PostgreSQL."""
        return family(self._server.pid)

    def cpu_s(self) -> float:
        """Return the CPU seconds of PostgreSQL."""
        return cpu_s(self._server.pid)


async def _ask(address: str, queries: tuple[str, ...]) -> list[Any]:
    connection = await asyncpg.connect(address)
    try:
        return [await connection.fetchval(query) for query in queries]
    finally:
        await connection.close()


class Ours(Group):
    """A running `heliograph serve`, with its own folder and the team of a setup file."""

    def __init__(
        self,
        revision: Revision,
        name: str,
        folder: Path,
        database: str,
        *options: str,
        setup: Path = SETUP,
        core: int | None = None,
        **environment: str,
    ) -> None:
        self.revision, self.folder, self.database, port = revision, folder, database, free_port()
        self.where = ["--database", database, "--data", str(folder)]
        revision.ask("apply", str(setup), "--json", *self.where)
        if "--processes" not in options and "--processes" in revision.ask("serve", "--help"):
            options = ("--processes", "1", *options)
        command = revision.command("serve", "--listen", f"127.0.0.1:{port}", *options, *self.where)
        began = time.monotonic()
        log = folder.with_name(f"{folder.name}-{port}.log")
        super().__init__(name, command, log, revision.environment(**environment), core, port)
        if "worker" not in options:
            self.wait_for(("127.0.0.1", port))
            self.started_s = time.monotonic() - began
            return
        while "delivering" not in log.read_text():
            self.check_alive()
            time.sleep(0.05)
