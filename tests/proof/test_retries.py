"""P5: a retry never sends twice: twenty at once with one key over two processes, while these are killed."""

import http.client
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import service as services
from tests.journeys.load import AGAIN_S, ask_database, check_books, finished
from tests.proof.size import DATABASES, FULL, database_name, report, rounds, size
from tests.service import Answer, Service, until

KEYS, KILLS, AT_ONCE = size("P5 keys"), size("P5 kills"), 20
IN_PROGRESS = "idempotency_request_in_progress"
SMS = {"to": "+14155550100", "template_id": "tpl_sms", "variables": {"parcel": "1"}}

# The service with a carrier that never answers.
SILENT = """
import asyncio
from heliograph.carriers.sms.simulator import SmsSimulator
from heliograph.cli.main import main


async def silent(self, message):
    await asyncio.sleep(3600)


SmsSimulator.send_message = silent
main()
"""


def ask_until_answered(service: Service, port: int, key: str) -> Answer:
    while True:
        try:
            answer = service.post("/v1/sms", SMS, headers={"Idempotency-Key": key}, port=port)
        except (OSError, http.client.HTTPException):
            time.sleep(AGAIN_S)
            continue
        if answer.status == 202:
            return answer
        assert answer.code == IN_PROGRESS
        time.sleep(AGAIN_S)


@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
def test_idempotency_key_gives_one_message_after_any_crash(service: Service) -> None:
    service.add_credit("team_acme", "1000.00")
    processes, chance, kept = [service.processes[0], service.start("api")], random.Random(0), 0
    ports = service.ports[:2]
    deaths = {(number + 1) * KEYS // KILLS - 1 for number in range(KILLS)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in rounds("P5", KEYS):
            asked = [pool.submit(ask_until_answered, service, ports[n % 2], f"key {number}") for n in range(AT_ONCE)]
            if number in deaths:
                time.sleep(chance.random() / 20)
                dying = chance.randrange(2)
                service.kill(processes[dying])
                processes[dying] = service.start(("all", "api")[dying], ports[dying])
            answers = [each.result() for each in asked]
            assert len({answer.raw for answer in answers}) == 1
            fresh = sum("idempotency-replayed" not in answer.headers for answer in answers)
            # At a kill, the first answer may have been on its way.
            assert fresh == 1 or (fresh == 0 and number in deaths)
            kept += fresh
    finished(service.database)
    assert ask_database(service.database, "SELECT count(*) FROM message") == [(KEYS,)]
    assert ask_database(service.database, "SELECT count(*) FROM ledger WHERE kind = 'capture'") == [(KEYS,)]
    check_books(service.database)
    report(
        "P5",
        f"{database_name(service.database)}: {KEYS} keys × {AT_ONCE} at once, {KILLS} kills: one message and one "
        f"charge a key, equal bytes; {KEYS - kept} first answers were lost at a kill and replayed to all",
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_idempotency_key_is_released_after_a_crash(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process dies for good while it asks a carrier for its key: in a minute another may have the key."""
    with Service(database_url, tmp_path / "data") as service:
        service.apply()
        with monkeypatch.context() as patch:
            patch.setattr(services, "PROGRAM", SILENT)
            dying = service.start("api")
        service.start("api")

        def verify(port: int) -> Answer:
            return service.post("/v1/verify", {"to": SMS["to"]}, headers={"Idempotency-Key": "k"}, port=port)

        def die_asking() -> None:
            with pytest.raises((OSError, http.client.HTTPException)):
                verify(service.ports[0])

        asking = threading.Thread(target=die_asking)
        asking.start()
        until(lambda: ask_database(database_url, "SELECT status FROM idempotency") == [(None,)])
        service.kill(dying)
        died = time.monotonic()
        asking.join()
        assert verify(service.ports[1]).code == IN_PROGRESS
        if not FULL:  # there the minute is waited for
            ask_database(database_url, "UPDATE idempotency SET lease_until = lease_until - 60000")
        # The code of the dead one may have been sent: its successor is told to wait, as with any second code.
        answer = until(lambda: found if (found := verify(service.ports[1])).code != IN_PROGRESS else None, 90)
        assert (answer.status, answer.code) in {(202, None), (429, "verify_rate_limited")}
        report("P5", f"a key whose process died for good was free after {time.monotonic() - died:.0f} s")
