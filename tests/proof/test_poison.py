"""P14 in short: messages that kill whoever hands them over are put aside, and all others arrive."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import service as services
from tests.journeys.load import ask_database, check_books
from tests.service import Service, until

POISON = ("+14155550666", "+14155550667", "+14155550668")
OTHERS = 30
DEATHS_MAX = len(POISON) * 3
DIED = 66

# The service with a carrier that takes its process with it.
DEADLY = f"""
import os
from heliograph.channels.sms.simulator import SmsSimulator
from heliograph.cli.main import main

hand_over = SmsSimulator.hand_over


async def deadly(self, parcel):
    if parcel.address in {POISON!r}:
        os._exit({DIED})
    return await hand_over(self, parcel)


SmsSimulator.hand_over = deadly
main()
"""


@pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)
def test_poison_cannot_stop_the_queue(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(database_url, tmp_path / "data") as service:
        service.apply()
        service.start("api")
        numbers = [f"+1415555{n:04d}" for n in range(OTHERS)]
        mixed = [*numbers[:10], *POISON, *numbers[10:]]
        sent = [
            service.post("/v1/sms", {"to": to, "template_id": "tpl_sms", "variables": {"parcel": "1"}}) for to in mixed
        ]
        assert {answer.status for answer in sent} == {202}
        monkeypatch.setattr(services, "COMMAND", (sys.executable, "-c", DEADLY))
        deaths = 0
        while not is_empty(database_url):
            worker = service.start("worker")
            wait_for_an_end(worker, database_url)
            deaths += worker.poll() == DIED
            assert deaths <= DEATHS_MAX
        assert deaths >= len(POISON)
        ended = {answer.json["to"]: service.get(f"/v1/sms/{answer.json['id']}").json for answer in sent}
        assert {to for to, message in ended.items() if message["status"] == "failed"} == set(POISON)
        assert {ended[to]["status"] for to in numbers} == {"delivered"}
        check_books(database_url)
        assert service.get("/v1/me").json["held"] == "0.0000"


def wait_for_an_end(worker: "subprocess.Popen[str]", database: str) -> None:
    until(lambda: worker.poll() is not None or is_empty(database), 30)


def is_empty(database: str) -> bool:
    return ask_database(database, "SELECT count(*) FROM outbox") == [(0,)]
