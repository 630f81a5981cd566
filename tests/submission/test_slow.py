"""Clients that are slow, too many, or there when the service stops."""

import signal
import smtplib
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import service as services
from tests.service import PATIENCE_S, TOKENS, Service
from tests.submission.conftest import HOST, deliver, free_port, mail

# A client has a minute to show its key, and a mail a minute to begin with: here less.
HURRIED = """
from msgspec.structs import replace
from heliograph.smtp import wire
from heliograph.submission import session
from heliograph.cli.main import main

session.AUTH_S, session.SESSION_S, wire.MAIL_S = 2.0, 4.0, 1.0
session.LIMITS = replace(session.LIMITS, strangers=3, connections=5)
main()
"""


class Own:
    def __init__(self, service: Service, port: int) -> None:
        self.service, self.port = service, port

    def client(self) -> smtplib.SMTP:
        client = smtplib.SMTP(HOST, self.port, timeout=PATIENCE_S)
        client.login("heliograph", TOKENS["ACME"])
        client.ehlo_or_helo_if_needed()
        return client


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Own]:
    monkeypatch.setattr(services, "PROGRAM", HURRIED)
    port = free_port()
    with Service(f"sqlite:///{tmp_path / 'h.db'}", tmp_path / "data", submission_listen=f"{HOST}:{port}") as service:
        service.apply()
        service.start()
        yield Own(service, port)


def heard(made: socket.socket) -> bytes:
    """All that comes until it is closed."""
    said = b""
    while piece := made.recv(1000):
        said += piece
    return said


def test_slow_and_too_many_clients(own: Own) -> None:
    made = [socket.create_connection((HOST, own.port), timeout=PATIENCE_S) for _ in range(3)]
    assert all(one.recv(1000).startswith(b"220 ") for one in made)
    with socket.create_connection((HOST, own.port), timeout=PATIENCE_S) as fourth:
        assert heard(fourth) == b"421 4.7.0 Too many connections, try again later\r\n"
    made[0].sendall(b"EHLO x\r\nNO")
    for one in made:
        assert heard(one).endswith(b"421 4.4.2 Too slow\r\n")
    known = [own.client() for _ in range(5)]  # with a key, the limit of strangers is not theirs
    with socket.create_connection((HOST, own.port), timeout=PATIENCE_S) as sixth:
        assert heard(sixth).startswith(b"421 4.7.0 ")
    known[0].mail("a@acme.test")
    known[0].rcpt("ada@example.com")
    known[0].docmd("DATA")
    known[0].send(b"Subject: never")
    assert known[0].getreply() == (421, b"4.4.2 Too slow")


def test_a_stop_finishes_the_mail_and_sends_the_others_away(own: Own) -> None:
    idle, sending = own.client(), own.client()
    sending.mail("a@acme.test")
    sending.rcpt("delivered@simulator.test")
    sending.docmd("DATA")
    sending.send(mail().as_bytes())
    process = own.service.processes[-1]
    process.send_signal(signal.SIGTERM)
    assert idle.getreply()[0] == 421
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, own.port), timeout=PATIENCE_S)
    sending.send(b"\r\n.\r\n")
    code, said = sending.getreply()
    assert (code, said[:14]) == (250, b"2.0.0 Ok: eml_")
    assert sending.getreply()[0] == 421
    assert process.wait(PATIENCE_S) == 0
    own.service.start()
    assert own.service.get(f"/v1/emails/{said.decode().split()[-1]}").status == 200


def test_several_processes_share_the_port(own: Own) -> None:
    own.service.stop()
    own.service.start("all", 0, "--processes", "2")
    for _ in range(8):
        with own.client() as client:
            assert deliver(client, mail(To="delivered@simulator.test"))[0] == 250


def test_who_sends_no_mail_is_sent_away_however_often_it_speaks(own: Own) -> None:
    client = own.client()
    while (said := client.docmd("NOOP"))[0] == 250:
        time.sleep(0.01)
    assert said == (421, b"4.4.2 Too slow")
    stranger = socket.create_connection((HOST, own.port), timeout=PATIENCE_S)
    with suppress(ConnectionError):
        while True:  # a byte now and then wins no time
            stranger.sendall(b"x")
            time.sleep(0.001)
