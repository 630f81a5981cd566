"""Slow clients, too many clients, and clients connected at shutdown."""

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

# Shorter timeouts than the default of a minute for authentication and for a mail.
HURRIED = """
from msgspec.structs import replace
from heliograph.smtp import wire
from heliograph.submission import session
from heliograph.cli.main import main

session.AUTH_TIMEOUT_S, session.NEXT_MAIL_TIMEOUT_S, wire.MAIL_BASE_TIMEOUT_S = 2.0, 4.0, 1.0
session.LIMITS = replace(session.LIMITS, unauthenticated=3, connections=5)
main()
"""


class OwnServer:
    def __init__(self, service: Service, port: int) -> None:
        self.service, self.port = service, port

    def client(self) -> smtplib.SMTP:
        client = smtplib.SMTP(HOST, self.port, timeout=PATIENCE_S)
        client.login("heliograph", TOKENS["ACME"])
        client.ehlo_or_helo_if_needed()
        return client


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnServer]:
    monkeypatch.setattr(services, "PROGRAM", HURRIED)
    port = free_port()
    with Service(f"sqlite:///{tmp_path / 'h.db'}", tmp_path / "data", submission_listen=f"{HOST}:{port}") as service:
        service.apply()
        service.start()
        yield OwnServer(service, port)


def read_all(connection: socket.socket) -> bytes:
    """Return everything received until the connection is closed."""
    received = b""
    while piece := connection.recv(1000):
        received += piece
    return received


def test_slow_or_too_many_clients_are_disconnected(own: OwnServer) -> None:
    connections = [socket.create_connection((HOST, own.port), timeout=PATIENCE_S) for _ in range(3)]
    assert all(connection.recv(1000).startswith(b"220 ") for connection in connections)
    with socket.create_connection((HOST, own.port), timeout=PATIENCE_S) as fourth:
        assert read_all(fourth) == b"421 4.7.0 Too many connections, try again later\r\n"
    connections[0].sendall(b"EHLO x\r\nNO")
    for connection in connections:
        assert read_all(connection).endswith(b"421 4.4.2 Timeout\r\n")
    known = [own.client() for _ in range(5)]  # with a key, they have a separate limit
    with socket.create_connection((HOST, own.port), timeout=PATIENCE_S) as sixth:
        assert read_all(sixth).startswith(b"421 4.7.0 ")
    known[0].mail("a@acme.test")
    known[0].rcpt("ada@example.com")
    known[0].docmd("DATA")
    known[0].send(b"Subject: never")
    assert known[0].getreply() == (421, b"4.4.2 Timeout")


def test_stop_finishes_the_current_mail_and_disconnects_other_clients(own: OwnServer) -> None:
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
    code, reply = sending.getreply()
    assert (code, reply[:14]) == (250, b"2.0.0 Ok: eml_")
    assert sending.getreply()[0] == 421
    assert process.wait(PATIENCE_S) == 0
    own.service.start()
    assert own.service.get(f"/v1/emails/{reply.decode().split()[-1]}").status == 200


def test_several_processes_share_the_port(own: OwnServer) -> None:
    own.service.stop()
    own.service.start("all", 0, "--processes", "2")
    for _ in range(8):
        with own.client() as client:
            assert deliver(client, mail(To="delivered@simulator.test"))[0] == 250


def test_client_that_sends_no_mail_is_disconnected_despite_activity(own: OwnServer) -> None:
    client = own.client()
    while (reply := client.docmd("NOOP"))[0] == 250:
        time.sleep(0.01)
    assert reply == (421, b"4.4.2 Timeout")
    stranger = socket.create_connection((HOST, own.port), timeout=PATIENCE_S)
    with suppress(ConnectionError):
        while True:  # single bytes do not extend the deadline
            stranger.sendall(b"x")
            time.sleep(0.001)
