"""P24: switchovers of PostgreSQL, with no process killed, lose no message and send none twice.

Two servers change places as under Patroni, whose own clusters test_failover.py has; judged by a mail server.
"""

import os
import time
from pathlib import Path

import pytest

from tests import postgres_server
from tests.journeys.load import Load, ask_database, check_books, finished
from tests.journeys.test_email import CARRIER
from tests.proof.pair import Pair
from tests.proof.size import report, rounds
from tests.proof.test_duplicates import CLAIMED, SlowSink
from tests.service import Service

SENT = "SELECT id FROM message WHERE status = 'sent'"
SWITCHOVERS = 200
ANSWER_S = 0.3  # of the mail server: some mails are being sent whenever a switchover begins
LEASE_S = 240.0  # claims whose end could not be written are free again within that
PACE_S = 0.25  # of each client


def test_switchovers_send_each_message_once(tmp_path: Path) -> None:
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.MISSING)
    relay, began, claimed, waits = tmp_path / "relay.toml", time.monotonic(), 0, list[float]()
    with postgres_server.temporary_folder() as servers, SlowSink(ANSWER_S) as sink:
        pair = Pair(servers)
        try:
            with Service(pair.url, tmp_path / "data") as service:
                relay.write_text(CARRIER.format(port=sink.port), "utf-8")
                service.apply()
                service.apply(relay)
                running = [service.start() for _ in range(2)]
                with Load(service, pause_s=PACE_S, retry_s=PACE_S) as load:
                    for _ in rounds("failover", SWITCHOVERS):
                        load.more(8, LEASE_S)
                        claimed += len(ask_database(pair.primary_url, CLAIMED))
                        asked = time.monotonic()
                        pair.switch_over()
                        load.more(1, LEASE_S)
                        waits.append(time.monotonic() - asked)
                    load.more(20, LEASE_S)
                finished(pair.primary_url, LEASE_S)
                assert all(process.poll() is None for process in running)
                stored = {id_ for (id_,) in ask_database(pair.primary_url, SENT)}
                check_books(pair.primary_url)
        finally:
            pair.stop()
    arrived = sink.arrived()
    missing = set(load.accepted.values()) - (stored & arrived.keys())
    twice = [id_ for id_, times in arrived.items() if times > 1]
    report(
        "failover",
        f"{SWITCHOVERS} switchovers of two servers, no process killed: {len(load.accepted)} accepted, {len(arrived)} "
        f"arrived at a mail server, {len(missing)} missing, {len(twice)} twice; about {claimed / SWITCHOVERS:.0f} were "
        f"claimed when one began; the next one was accepted after {max(waits):.1f} s at most; {len(load.refused)} "
        f"answered 503, {len(load.broken)} without an answer; {time.monotonic() - began:.0f} s, load of the machine "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs",
    )
    assert (missing, twice) == (set(), [])
    assert {(answer.status, answer.code) for answer in load.refused} <= {(503, "service_unavailable")}
