"""Databases of earlier versions are upgraded while clients send; nothing that waited or is accepted gets lost."""

from collections import Counter
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.journeys.load import Load, ask_database, check_books, finished
from tests.journeys.smtp_sink import Sink
from tests.old_databases import (
    CARRIER,
    DELIVERED,
    REVISIONS,
    SECRET,
    SUPPRESSED,
    WAITING_EMAILS,
    WAITING_PHONES,
    load_dump,
)
from tests.service import SETUP, Service, free_port, until

pytestmark = pytest.mark.both_databases


def start(service: Service, port: int) -> None:
    """Start a process on the port that the clients use."""
    service.start(port=port)
    service.ports[:] = [port]


@pytest.mark.parametrize("revision", REVISIONS)
def test_upgrade_of_an_old_database_loses_nothing(revision: str, empty_database_url: str, tmp_path: Path) -> None:
    load_dump(revision, empty_database_url)
    waiting = ask_database(empty_database_url, "SELECT DISTINCT message FROM outbox")
    assert len(waiting) == len(WAITING_EMAILS) + WAITING_PHONES
    with Sink() as sink, Service(empty_database_url, tmp_path / "data", secret=SECRET) as service:
        (tmp_path / "setup.toml").write_text(SETUP.read_text("utf-8") + CARRIER.format(port=sink.port), "utf-8")
        port = free_port()
        service.ports.append(port)
        with Load(service) as load:
            service.apply(tmp_path / "setup.toml")  # migrates, and sets the port of the relay
            start(service, port)
            until(lambda: sink.mails)
            service.stop()
            start(service, port)
            load.more(10)
        finished(empty_database_url)
        # while the service stops
        assert all(answer.status == 503 and "retry-after" in answer.headers for answer in load.refused)
        assert service.get(f"/v1/suppressions/{SUPPRESSED}").status == 200
    received = Counter(message_from_bytes(content)["Subject"] for _, _, content in sink.mails)
    assert received == dict.fromkeys([*WAITING_EMAILS, *load.accepted], 1)
    assert DELIVERED not in received
    statuses = ask_database(
        empty_database_url, "SELECT channel, status, count(*) FROM message GROUP BY channel, status"
    )
    assert sorted(statuses) == [
        ("email", "sent", len(received) + 1),
        ("sms", "delivered", WAITING_PHONES // 2),
        ("whatsapp", "read", WAITING_PHONES // 2),
    ]
    twice = """SELECT message, type FROM event WHERE message IS NOT NULL AND type <> 'deferred'
               GROUP BY message, type HAVING count(*) > 1"""
    assert ask_database(empty_database_url, twice) == []
    check_books(empty_database_url)
