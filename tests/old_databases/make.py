"""Writes the dumps: runs each earlier version on an empty database, and leaves messages waiting in it.

python -m tests.old_databases.make [REVISION …]   needs a clone with its whole history
"""

import gzip
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller

from tests.journeys.load import ask_database, email
from tests.old_databases import (
    BATCH,
    CARRIER,
    DEFERRED,
    DELIVERED,
    INTERRUPTED,
    QUEUED,
    REVISIONS,
    SCHEDULED,
    SECRET,
    SUPPRESSED,
    WAITING_PHONES,
    dump_file,
)
from tests.postgres_server import PostgresServer, bin_path, temporary_folder
from tests.service import Service, free_port, until

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-P", "-m", "heliograph.cli.main")
SCHEDULED_IN = timedelta(minutes=1)


def extract(revision: str, folder: Path) -> Path:
    """Write the sources of a revision into `folder`."""
    archive = subprocess.run(["git", "archive", revision, "src", "tests/setup.toml"], cwd=ROOT, capture_output=True)
    archive.check_returncode()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


class OldService(Service):
    """A service that runs the code of an earlier version."""

    def __init__(self, sources: Path, database: str, data: Path) -> None:
        super().__init__(database, data, secret=SECRET)
        self._environment["PYTHONPATH"] = str(sources / "src")

    def apply_relay(self, sources: Path, relay_port: int) -> None:
        setup = self.data.with_name("setup.toml")
        setup.write_text((sources / "tests/setup.toml").read_text("utf-8") + CARRIER.format(port=relay_port), "utf-8")
        self.command("apply", str(setup))

    def command(self, *arguments: str) -> None:
        subprocess.run([*COMMAND, *arguments], env=self._environment, check=True, stdout=subprocess.DEVNULL)

    @contextmanager
    def running(self, role: str, how_to_end: str) -> Iterator[None]:
        port = free_port()
        self.ports.append(port)
        process = subprocess.Popen(
            [*COMMAND, "serve", "--role", role, "--listen", f"127.0.0.1:{port}"],
            env=self._environment,
            stdout=subprocess.DEVNULL,
        )
        try:
            until(lambda: self._is_ready(port))
            yield
        finally:
            process.kill() if how_to_end == "kill" else process.terminate()
            process.wait()

    def _is_ready(self, port: int) -> bool:
        try:
            return self.get("/readyz", key=None, port=port).status == 200
        except OSError:
            return False

    def accept(self, path: str, body: dict[str, Any]) -> str:
        answer = self.post(path, body, headers={"Idempotency-Key": body.get("subject", str(time.monotonic_ns()))})
        assert answer.status == 202, answer.raw
        return str(answer.json["id"])

    def status(self, id_: str) -> str:
        return str(self.get(f"/v1/emails/{id_}").json["status"])


class Relay:
    """A relay that answers each mail with `reply`."""

    def __init__(self, port: int) -> None:
        self.reply = "250 2.0.0 taken"
        self.connections = Controller(self, hostname="127.0.0.1", port=port, enable_SMTPUTF8=True)

    async def handle_DATA(self, *_: Any) -> str:
        return self.reply


def fill(service: OldService, sources: Path) -> None:
    """Leave messages in every state of waiting, and some that are final."""
    relay = Relay(free_port())
    service.apply_relay(sources, relay.connections.port)
    relay.connections.start()
    with service.running("all", "stop"):
        first = service.accept("/v1/emails", email(DELIVERED))
        until(lambda: service.status(first) == "sent")
        assert service.post("/v1/suppressions", {"email": SUPPRESSED}, key="ACME_MANAGE").status < 300
        relay.reply = "451 4.3.0 later"
        deferred = [service.accept("/v1/emails", email(subject)) for subject in DEFERRED]
        until(lambda: all(attempts(service, id_) for id_ in deferred))
    relay.connections.stop()
    # A relay that accepts connections and says nothing: mails stay in progress.
    with socket.create_server(("127.0.0.1", relay.connections.port), backlog=16), service.running("all", "kill"):
        for subject in INTERRUPTED:
            service.accept("/v1/emails", email(subject))
        until(lambda: claimed(service) >= len(INTERRUPTED))
    with service.running("api", "stop"):
        at = (datetime.now(UTC) + SCHEDULED_IN).strftime("%Y-%m-%dT%H:%M:%SZ")
        for subject in SCHEDULED:
            service.accept("/v1/emails", email(subject) | {"scheduled_at": at})
        batch = service.post("/v1/emails/batch", {"messages": [email(subject) for subject in BATCH]})
        assert batch.status in (200, 202, 207), batch.raw
        for subject in QUEUED:
            service.accept("/v1/emails", email(subject))
        for number in range(WAITING_PHONES):
            channel, template = (("sms", "tpl_sms"), ("whatsapp", "tpl_whatsapp"))[number % 2]
            body = {"to": f"+491511234560{number}", "template_id": template, "variables": {"parcel": "1"}}
            service.accept(f"/v1/{channel}", body)


def attempts(service: OldService, id_: str) -> int:
    return sum(event["type"].endswith("deferred") for event in service.get(f"/v1/emails/{id_}").json["events"])


def claimed(service: OldService) -> int:
    return int(ask_database(service.database, "SELECT count(*) FROM outbox WHERE owner IS NOT NULL")[0][0])


def dump_sqlite(url: str) -> str:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    try:
        return "\n".join(connection.iterdump()) + "\n"
    finally:
        connection.close()


def dump_postgres(url: str) -> str:
    program = str(bin_path() / "pg_dump")
    options = ["--no-owner", "--no-privileges", "--no-comments", "--inserts", "--rows-per-insert=50"]
    done = subprocess.run([program, *options, url], capture_output=True, check=True, text=True)
    # Lines that begin with a backslash are commands of psql.
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("\\"))


def make(revision: str, kind: str, url: str, folder: Path) -> None:
    sources = extract(revision, folder)
    fill(OldService(sources, url, folder / "data"), sources)
    text = dump_sqlite(url) if kind == "sqlite" else dump_postgres(url)
    file = dump_file(revision, kind)
    file.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{file.relative_to(ROOT)}: {len(text)} characters, {file.stat().st_size} bytes")


def main() -> None:
    os.umask(0o022)
    for revision in sys.argv[1:] or REVISIONS:
        with tempfile.TemporaryDirectory() as folder:
            make(revision, "sqlite", f"sqlite:///{folder}/heliograph.db", Path(folder))
        with temporary_folder() as servers, tempfile.TemporaryDirectory() as folder:
            server = PostgresServer(servers / "data")
            make(revision, "postgres", server.url(), Path(folder))
            server.stop()


if __name__ == "__main__":
    main()
