"""P14: messages that kill their worker are moved to the dead-letter queue, and all others are delivered."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from heliograph.domain.limits import CLAIMS_MAX, CRASHES_MAX
from tests import service as services
from tests.forks import Forked
from tests.journeys.load import ask_database, check_books
from tests.proof.size import FULL, database_name, report, size
from tests.service import Service, until

POISON = [f"+1415556{n:04d}" for n in range(size("P14 poison"))]
OTHERS = [f"+1415555{n:04d}" for n in range(size("P14 others"))]
DEATHS = len(POISON) * (CLAIMS_MAX + CRASHES_MAX)
WAITS = "" if FULL else "worker.SUSPECTS_S, outbox.ALONE_AGAIN_MS = 0.1, 100"
DIED = 66

# The service with a carrier that takes its process with it.
DEADLY = f"""
import os
from heliograph.carriers.sms.simulator import SmsSimulator
from heliograph.cli.main import main
from heliograph.deliver import worker
from heliograph.storage import outbox

{WAITS}
send_message = SmsSimulator.send_message


async def deadly(self, message):
    if message.address in {POISON!r}:
        os._exit({DIED})
    return await send_message(self, message)


SmsSimulator.send_message = deadly
main()
"""


@pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)
def test_poison_cannot_stop_the_queue(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(database_url, tmp_path / "data") as service:
        service.apply()
        service.start("api")
        service.add_credit("team_acme", "1000.00")
        mixed = [*OTHERS[:10], *POISON, *OTHERS[10:]]
        with ThreadPoolExecutor(8) as pool:
            sent = list(pool.map(lambda to: service.post("/v1/sms", sms(to)), mixed))
        assert {answer.status for answer in sent} == {202}
        monkeypatch.setattr(services, "PROGRAM", DEADLY)
        deaths = 0
        while not is_empty(database_url):
            worker = service.start("worker")
            wait_for_an_end(worker, database_url)
            deaths += worker.poll() == DIED
            assert deaths <= DEATHS
        assert deaths >= len(POISON) * CRASHES_MAX
        ended = dict(ask_database(database_url, "SELECT address, status FROM recipient"))
        assert ended == dict.fromkeys(POISON, "failed") | dict.fromkeys(OTHERS, "delivered")
        check_books(database_url)
        assert service.get("/v1/me").json["held"] == "0.0000"
    report(
        "P14",
        f"{database_name(database_url)}: {len(POISON)} poison messages moved to the dead-letter queue after {deaths} "
        f"deaths, {len(OTHERS)} delivered",
    )


def sms(to: str) -> dict[str, Any]:
    return {"to": to, "template_id": "tpl_sms", "variables": {"parcel": "1"}}


def wait_for_an_end(worker: Forked, database: str, seconds: float = 60) -> None:
    until(lambda: worker.poll() is not None or is_empty(database), seconds)


def is_empty(database: str) -> bool:
    return ask_database(database, "SELECT count(*) FROM outbox") == [(0,)]
