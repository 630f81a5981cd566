"""P3: a mail arrives twice only when its hand-over was in flight at a kill, and then with the same Message-ID.

Judged by a mail server of its own, and by what the database says was claimed when the service died.
"""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.load import Load, ask_database, finished
from tests.journeys.smtp_sink import Sink
from tests.journeys.test_email import CARRIER
from tests.proof.size import DATABASES, FULL, database_name, report, rounds, size
from tests.service import Service

KILLS = size("P3 kills")
CLAIMED = "SELECT m.id FROM outbox o JOIN message m ON m.key = o.message WHERE o.owner IS NOT NULL"


class SlowSink(Sink):
    """Takes a mail and lets its sender wait for the answer: a kill now makes a duplicate."""

    def __init__(self, answer_s: float = 0.05) -> None:
        super().__init__()
        self._answer_s = answer_s

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        taken = await super().handle_DATA(server, session, envelope)
        await asyncio.sleep(self._answer_s)
        return taken

    def arrived(self) -> Counter[str]:
        """How often each message came, by its Message-ID."""
        ids = [re.findall(rb"^Message-ID: <(\S+)@acme\.test>\r$", mail, re.M) for _, _, mail in self.mails]
        assert all(len(found) == 1 for found in ids)
        return Counter(found[0].decode() for found in ids)


@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
@pytest.mark.parametrize("how", ["kill", "stop", "leave"] if FULL else ["kill"])
def test_only_messages_in_flight_at_a_kill_are_sent_twice(database_url: str, tmp_path: Path, how: str) -> None:
    relay = tmp_path / "relay.toml"
    in_flight: Counter[str] = Counter()  # at how many kills
    with SlowSink() as sink, Service(database_url, tmp_path / "data") as service:
        relay.write_text(CARRIER.format(port=sink.port), "utf-8")
        service.apply()
        service.apply(relay)
        service.start()
        port = service.ports[0]
        with Load(service) as load:
            for _ in rounds("P3", KILLS):
                load.more(20, 60)
                if how == "kill":
                    service.kill()
                    in_flight.update(id_ for (id_,) in ask_database(database_url, CLAIMED))
                elif how == "stop":
                    assert service.stop() == 0
                if how != "leave":
                    service.start(port=port)
            load.more(20, 60)
        finished(database_url, 300)  # suspects are tried one by one, with pauses (ADR 0012)
        arrived = sink.arrived()
        stored = {id_ for (id_,) in ask_database(database_url, "SELECT id FROM message WHERE status = 'sent'")}
    assert set(load.accepted.values()) <= stored == set(arrived)
    again = {id_: times - 1 for id_, times in arrived.items() if times > 1}
    assert all(times <= in_flight[id_] for id_, times in again.items())
    report(
        "P3",
        f"{database_name(database_url)}, {how} × {KILLS}: {len(arrived)} mails, {sum(again.values())} arrived again, "
        f"{in_flight.total()} were in flight",
    )
