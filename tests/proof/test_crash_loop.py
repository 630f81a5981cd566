"""P22: a worker that is killed again and again harms no message; only what kills by itself is put aside."""

import time
from pathlib import Path

import pytest

from tests import service as services
from tests.journeys.load import Load, ask_database, check_books, email
from tests.proof.size import DATABASES, FULL, database_name, report, rounds, size
from tests.proof.test_poison import DIED, is_empty, wait_for_an_end
from tests.service import Service

KILLS, RUNS = size("P22 kills"), size("P22 runs")
APART_S = 1.2
POISON = "poison@example.com"
WAITS = "" if FULL else f"worker.SUSPECTS_S = {2 * APART_S}"  # still later than each kill

# The service with a carrier that takes its time, and dies with one address.
SLOW = f"""
import asyncio, os
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.cli.main import main
from heliograph.deliver import worker

{WAITS}
send_message = EmailSimulator.send_message


async def slow(self, message):
    # Some take longer than the process lives: the next kill meets them again.
    await asyncio.sleep(1.5 if message.message_id[-1] == "0" else 0.2)
    if message.address == {POISON!r}:
        os._exit({DIED})
    return await send_message(self, message)


EmailSimulator.send_message = slow
main()
"""


@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
def test_a_crash_loop_harms_no_innocent_message(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(services, "PROGRAM", SLOW)
    with Service(database_url, tmp_path / "data") as service:
        service.apply()
        service.start("api")
        planted = {POISON} if FULL else set()  # in short that is P14's
        for address in planted:
            assert service.post("/v1/emails", email("poison", address)).status == 202
        with Load(service, 4 if FULL else 1) as load:
            load.more(20, 60)
            for _ in rounds("P22", KILLS):
                service.start("worker")
                time.sleep(APART_S)
                service.kill()
        died = ask_database(database_url, "SELECT count(*) FROM outbox WHERE claims > 1")[0][0]
        while not is_empty(database_url):
            wait_for_an_end(service.start("worker"), database_url, 600)
        ended = ask_database(
            database_url, "SELECT m.id, r.address, r.status FROM recipient r JOIN message m ON m.key = r.message"
        )
        assert set(load.accepted.values()) <= {id_ for id_, _, _ in ended}
        assert {address for _, address, status in ended if status != "delivered"} == planted
        check_books(database_url)
    report(
        "P22",
        f"{database_name(database_url)}, run {number + 1}: {KILLS} kills, {len(ended)} messages, {died} of them "
        f"suspected, 0 lost, {len(planted)} planted and {len(planted)} moved to the dead-letter queue",
    )
