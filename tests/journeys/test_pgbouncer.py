"""The service works completely behind PgBouncer in transaction mode (1.18, which tracks no prepared statements)."""

from pathlib import Path

from tests.conftest import fresh_database
from tests.journeys.load import Load, check_all_arrived
from tests.proof.size import report, size
from tests.service import Service
from tests.storage.pooler import SESSIONS, pgbouncer

MESSAGES = size("pgbouncer messages")


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
