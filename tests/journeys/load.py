"""Clients that send until they are stopped, and a checker that reads the database independently of our code."""

import asyncio
import http.client
import itertools
import threading
import time
from typing import Any, Self

import apsw
import asyncpg

from tests.proof.size import FULL
from tests.service import PATIENCE_S, Answer, Service, until

AGAIN_S = 0.02
BREATH_S = 0.0 if FULL else 0.06  # pause between sends: a few dozen sends suffice while a process starts


def email(subject: str, to: str = "ada@example.com") -> dict[str, Any]:
    return {"from": "hello@acme.test", "to": to, "subject": subject, "text": "Hello"}


class Load:
    """Each client sends one email after the other, and repeats each until it is answered.

    Every email has its own Idempotency-Key. `accepted` has each 202 whose response was read completely.
    """

    def __init__(
        self,
        service: Service,
        clients: int = 4,
        name: str = "client",
        pause_s: float = BREATH_S,
        retry_s: float = AGAIN_S,
    ) -> None:
        """`pause_s`: wait after a 202; `retry_s`: wait before a repetition."""
        self._service = service
        self._pause_s, self._retry_s = pause_s, retry_s
        self._name = name
        self._stop = threading.Event()
        self.accepted: dict[str, str] = {}  # subject (also the Idempotency-Key) → id
        self.refused: list[Answer] = []
        self.broken: list[Exception] = []  # errors of sends without a response
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def more(self, count: int, seconds: float = PATIENCE_S) -> None:
        """Wait until `count` more messages are accepted."""
        enough = len(self.accepted) + count
        until(lambda: len(self.accepted) >= enough, seconds)

    def _send(self, client: int) -> None:
        for number in itertools.count():
            subject = f"{self._name} {client} number {number}"
            while subject not in self.accepted:
                if self._stop.is_set():
                    return
                port = self._service.ports[(client + number) % len(self._service.ports)]
                try:
                    answer = self._service.post(
                        "/v1/emails", email(subject), headers={"Idempotency-Key": subject}, port=port
                    )
                except (OSError, http.client.HTTPException) as error:
                    self.broken.append(error)
                    time.sleep(self._retry_s)
                    continue
                if answer.status == 202:
                    self.accepted[subject] = answer.json["id"]
                    time.sleep(self._pause_s)
                else:
                    self.refused.append(answer)
                    time.sleep(self._retry_s)


def ask_database(url: str, query: str) -> list[tuple[Any, ...]]:
    """Query the database without the code under test."""
    if url.startswith("sqlite:///"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        try:
            return [tuple(row) for row in connection.execute(query)]
        finally:
            connection.close()

    async def ask() -> list[tuple[Any, ...]]:
        server: Any = await asyncpg.connect(url)
        try:
            return [tuple(row) for row in await server.fetch(query)]
        finally:
            await server.close()

    return asyncio.run(ask())


def finished(url: str, seconds: float = PATIENCE_S) -> None:
    """Wait until no work is left."""
    until(lambda: ask_database(url, "SELECT count(*) FROM outbox") == [(0,)], seconds)


def check_all_arrived(url: str, accepted: dict[str, str]) -> None:
    """Check that no accepted message is missing, no key created two messages, and each message is final once."""
    finished(url)
    stored = ask_database(url, "SELECT id, status, record FROM message")
    assert set(accepted.values()) - {id_ for id_, _, _ in stored} == set()
    assert {status for _, status, _ in stored} == {"delivered"}
    keys = ask_database(url, "SELECT count(*), count(DISTINCT hash) FROM idempotency")
    assert keys == [(len(stored), len(stored))]
    check_sent_once(url)
    check_books(url)


def check_sent_once(url: str) -> None:
    """Check the timelines: a message that was sent twice has two entries."""
    stories = "SELECT message, type, count(*) FROM event GROUP BY message, type"
    twice = [row for row in ask_database(url, stories) if row[2] != 1 or row[1] == "ignored"]
    assert twice == []


def check_books(url: str) -> None:
    """Check that the balances agree with the ledger."""
    said = ask_database(
        url,
        """SELECT a.team, a.available, a.held,
                  coalesce(sum(CASE l.kind WHEN 'topup' THEN amount WHEN 'hold' THEN -amount
                                           WHEN 'release' THEN amount ELSE 0 END), 0),
                  coalesce(sum(CASE l.kind WHEN 'hold' THEN amount WHEN 'topup' THEN 0 ELSE -amount END), 0)
           FROM account a LEFT JOIN ledger l ON l.team = a.team GROUP BY a.team, a.available, a.held""",
    )
    for _, available, held, booked, booked_held in said:
        assert (available, held) == (booked, booked_held)
        assert available >= 0
