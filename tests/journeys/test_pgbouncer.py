"""The service works completely behind PgBouncer in transaction mode (1.18, which tracks no prepared statements)."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import postgres_server
from tests.conftest import fresh_database
from tests.journeys.load import Load, check_all_arrived, email
from tests.postgres_server import PostgresServer
from tests.proof.size import report, rounds, size
from tests.service import Service, until
from tests.storage.pooler import SESSIONS, pgbouncer

MESSAGES = size("pgbouncer messages")
WRITES = size("pgbouncer writes")
LAG_S = 2.0
READS = re.compile(r'^heliograph_standby_reads_total\{.*result="(\w+)".*\} (\d+)', re.M)


def test_api_and_worker_share_a_few_sessions(postgres: str, tmp_path: Path) -> None:
    url = fresh_database(postgres, "template1")
    with pgbouncer(url) as pooled, Service(pooled, tmp_path) as service:
        assert service.run("migrate").returncode == 0
        service.apply()
        for role in ("api", "worker"):
            service.start(role)
        with Load(service) as load:
            load.more(MESSAGES)
        assert (load.refused, load.broken) == ([], [])
        check_all_arrived(url, load.accepted)
        assert service.run("doctor").returncode == 0
    report("pgbouncer", f"{len(load.accepted)} messages over {SESSIONS} sessions, 0 errors, 0 missing, 0 twice")


class Lagging:
    """A primary, and a standby that applies commits LAG_S late, both through PgBouncer."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        primary = PostgresServer(folder / "primary", **postgres_server.UNSAFE)
        stack.callback(primary.stop)
        primary.run("pg_basebackup", "-d", primary.url(), "-D", str(folder / "standby"), "-c", "fast", "-R")
        (folder / "standby" / ".s.PGSQL.5432.lock").unlink()  # the primary's, copied with its data folder
        self._standby = PostgresServer(folder / "standby", **postgres_server.UNSAFE)
        stack.callback(self._standby.stop)
        self.set_lag(LAG_S)
        self.primary_url = stack.enter_context(pgbouncer(primary.url()))
        self.standby_url = stack.enter_context(pgbouncer(self._standby.url()))

    def set_lag(self, seconds: float) -> None:
        setting = f"ALTER SYSTEM SET recovery_min_apply_delay = '{int(seconds * 1000)}ms'"
        self._standby.run("psql", self._standby.url(), "-c", setting, "-c", "SELECT pg_reload_conf()")


@pytest.fixture
def databases() -> Iterator[Lagging]:
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.MISSING)
    with postgres_server.temporary_folder() as folder, ExitStack() as stack:
        yield Lagging(folder, stack)


def test_own_writes_are_visible_through_pgbouncer_while_the_standby_lags(databases: Lagging, tmp_path: Path) -> None:
    with Service(databases.primary_url, tmp_path, database_read=databases.standby_url) as service:
        assert service.run("migrate").returncode == 0
        service.apply()
        ports = [service.start(role) and service.ports[-1] for role in ("all", "api")]

        def reads(result: str) -> int:
            texts = [service.get("/metrics", key=None, port=port).raw.decode() for port in ports]
            return sum(int(count) for text in texts for found, count in READS.findall(text) if found == result)

        def standby_answers() -> bool:
            before = reads("standby")
            for port in ports:
                assert service.get("/v1/emails", port=port).status == 200
            return reads("standby") > before

        def write_and_read(number: int) -> None:
            """Write through one process, and read at once through the other."""
            writer, reader = ports[number % 2], ports[1 - number % 2]
            sent = service.post("/v1/emails", email(f"number {number}"), port=writer).json["id"]
            listed = service.get("/v1/emails", port=reader).json["data"]
            assert sent in {message["id"] for message in listed}
            address = f"ada{number}@example.com"
            assert service.post("/v1/suppressions", {"email": address}, key="ACME_MANAGE", port=writer).status == 201
            listed = service.get("/v1/suppressions", key="ACME_MANAGE", port=reader).json["data"]
            assert address in {suppression["email"] for suppression in listed}

        began = time.monotonic()
        for number in rounds("pgbouncer", WRITES):
            write_and_read(number)
        behind = reads("behind")
        assert behind > 0
        databases.set_lag(0)
        until(standby_answers)
        write_and_read(WRITES)
        report(
            "pgbouncer",
            f"standby {LAG_S:g} s behind: {2 * WRITES} writes, each listed at once by the other process; {behind} "
            f"reads answered by the primary because the standby was behind; {time.monotonic() - began:.0f} s",
        )
