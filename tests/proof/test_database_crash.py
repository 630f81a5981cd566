"""P20: PostgreSQL is stopped at once and started again under load."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.load import Load, ask_database, check_all_arrived
from tests.postgres_server import PostgresServer, temporary_folder
from tests.proof.size import FULL, report, rounds, size
from tests.service import Service, until

CRASHES = size("P20 crashes")
RECOVERED_S = 5.0


@pytest.fixture
def server(postgres: str) -> Iterator[PostgresServer]:
    """A PostgreSQL for this test alone."""
    with temporary_folder() as folder:
        server = PostgresServer(folder / "data")
        yield server
        server.stop()


def test_database_crash_loses_and_charges_nothing_twice(server: PostgresServer, tmp_path: Path) -> None:
    url, waits = server.url(), []
    with Service(url, tmp_path) as service:
        service.apply()
        service.start()
        port, paid = service.ports[0], dict[str, str]()
        with Load(service) as load:
            for number in rounds("P20", CRASHES):
                paid |= {f"paid {number}": send_sms(service, f"paid {number}")}
                load.more(20)
                server.stop()
                until(lambda: service.get("/readyz").status == 503)
                assert service.get("/healthz").status == 200
                server.start()
                began = time.monotonic()
                load.more(1)
                waits.append(time.monotonic() - began)
            load.more(20)
        # Claims whose answer was lost with the database would run out in two minutes; a restart takes them back.
        assert service.stop() == 0
        service.start(port=port)
        check_all_arrived(url, load.accepted | paid)
        assert {(a.status, a.code) for a in load.refused} <= {(503, "service_unavailable")}
        assert all("retry-after" in a.headers for a in load.refused)
        settled = ask_database(url, "SELECT kind, count(*), count(DISTINCT subject) FROM ledger GROUP BY kind")
        booked = {kind: (count, subjects) for kind, count, subjects in settled if kind != "topup"}
        assert booked == {"hold": (CRASHES, CRASHES), "capture": (CRASHES, CRASHES)}
    assert not FULL or max(waits) <= RECOVERED_S
    count = len(load.accepted) + len(paid)
    report(
        "P20", f"{CRASHES} crashes, {count} accepted, 0 lost or charged twice, recovered in {max(waits):.2f} s at most"
    )


def send_sms(service: Service, name: str) -> str:
    """Once, whatever it takes: the answer of the first try may be lost with the database."""
    body = {"to": "+14155550123", "template_id": "tpl_sms", "variables": {"parcel": "1"}}
    answer = until(lambda: (a := service.post("/v1/sms", body, headers={"Idempotency-Key": name})).status == 202 and a)
    id_: str = answer.json["id"]
    return id_
