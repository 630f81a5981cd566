"""A 202 survives a crash (P1, P5, P10): real processes, killed under load."""

import random
import time

from tests.journeys.load import Load, ask_database, check_all_arrived, check_books, email
from tests.proof.size import database_name, report, rounds, size
from tests.service import Service

KILLS, BETWEEN = size("P1 kills"), size("P1 accepts between kills")
STOPS = size("P10 stops")


def test_killed_server_loses_no_accepted_message(service: Service) -> None:
    port, chance, ready = service.ports[0], random.Random(0), []
    with Load(service) as load:
        for _ in rounds("P1", KILLS):
            load.more(BETWEEN, 60)
            time.sleep(chance.random() / 50)  # at a random time between two accepts
            service.kill()
            began = time.monotonic()
            service.start(port=port)
            ready.append(time.monotonic() - began)
            check_whole(service.database)
        load.more(BETWEEN, 60)
    check_all_arrived(service.database, load.accepted)
    accepted, slowest = len(load.accepted), max(ready)
    report(
        "P1",
        f"{database_name(service.database)}: {KILLS} kills, {accepted} accepted, 0 missing, all delivered, "
        f"whole after every kill; ready again after {slowest:.1f} s at most, {sorted(ready)[KILLS // 2]:.1f} s mostly",
    )


def check_whole(database: str) -> None:
    """Check the database while clients keep sending."""
    check_books(database)
    if database.startswith("sqlite"):
        assert ask_database(database, "PRAGMA integrity_check") == [("ok",)]


def test_idempotency_key_gets_the_same_response_after_a_kill(service: Service) -> None:
    key = {"Idempotency-Key": "order 1"}
    first = service.post("/v1/emails", email("order 1"), headers=key)
    service.kill()
    service.start()
    again = service.post("/v1/emails", email("order 1"), headers=key)
    assert (again.status, again.raw) == (202, first.raw)
    assert again.headers["idempotency-replayed"] == "true"
    assert ask_database(service.database, "SELECT count(*) FROM message") == [(1,)]


def test_stopped_server_loses_and_repeats_no_message(service: Service) -> None:
    port, stopped = service.ports[0], []
    with Load(service) as load:
        for _ in rounds("P10", STOPS):
            load.more(30, 60)
            began = time.monotonic()
            assert service.stop() == 0  # within a minute
            stopped.append(time.monotonic() - began)
            service.start(port=port)
        load.more(30, 60)
    assert {(a.status, a.code) for a in load.refused} <= {(503, "service_unavailable")}
    assert all("retry-after" in a.headers for a in load.refused)
    check_all_arrived(service.database, load.accepted)
    # Every stored message was answered: no client had to repeat a request.
    stored = ask_database(service.database, "SELECT count(*) FROM message")
    assert stored == [(len(load.accepted),)]
    report(
        "P10",
        f"{database_name(service.database)}: {STOPS} stops, {len(load.accepted)} accepted, 0 lost, 0 repeated, "
        f"{len(load.refused)} refused with 503 and Retry-After; ended after {max(stopped):.1f} s at most",
    )
