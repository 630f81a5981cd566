"""Different clients: another service's SDK, slow clients, and clients that send large bodies."""

import base64
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import resend

from heliograph.domain.limits import EMAIL_BODY_MAX, MIB
from tests import service as services
from tests.journeys.load import email
from tests.service import PATIENCE_S, TOKENS, Answer, Service, until

# Shorter timeouts than the default of 10 s for headers and 5 s for a small body.
HURRIED = """
from heliograph.web import connection
from heliograph.cli.main import main

connection.HEADERS_S, connection.BODY_S, connection.SWEEP_S = 1.0, 1.0, 0.1
main()
"""


def test_the_resend_sdk_sends_unmodified(shared_service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend, "api_url", f"http://127.0.0.1:{shared_service.ports[-1]}/v1")
    monkeypatch.setattr(resend, "api_key", TOKENS["ACME"])
    params: resend.Emails.SendParams = {
        "from": "Acme Support <support@acme.test>",
        "to": ["delivered+sdk@simulator.test"],
        "cc": ["delivered+sdk-cc@simulator.test"],
        "reply_to": "help@acme.test",
        "subject": "From an SDK",
        "html": "<p>Hello</p>",
        "attachments": [
            {"filename": "a.txt", "content": base64.b64encode(b"hi").decode(), "content_type": "text/plain"}
        ],
    }
    sent = resend.Emails.send(params, {"idempotency_key": "sdk"})
    again = resend.Emails.send(params, {"idempotency_key": "sdk"})
    assert sent["id"] == again["id"]
    until(lambda: shared_service.get(f"/v1/emails/{sent['id']}").json["status"] == "delivered")
    with pytest.raises(resend.exceptions.ResendError):
        resend.Emails.send({**params, "subject": "x" * 201})


SLOW: dict[str, bytes] = {
    "says nothing": b"",
    "stops in its headers": b"POST /v1/emails HTTP/1.1\r\nHost: x\r\n",
    "stops in its body": (
        b"POST /v1/emails HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
        b"Authorization: Bearer " + TOKENS["ACME"].encode() + b'\r\n\r\n{"from":'
    ),
}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_slow_clients_are_closed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them wait at the same time, one with a byte now and then; other clients are served meanwhile."""
    monkeypatch.setattr(services, "PROGRAM", HURRIED)
    service.start()
    sockets = {name: socket.create_connection(("127.0.0.1", service.ports[-1])) for name in (*SLOW, "trickles")}
    for name, start in SLOW.items():
        sockets[name].sendall(start)
    trickling = threading.Thread(target=trickle, args=(sockets["trickles"],))
    trickling.start()
    for open_socket in sockets.values():
        open_socket.settimeout(PATIENCE_S)
    assert service.get("/healthz").status == 200
    for open_socket in sockets.values():
        assert ended(open_socket)
    trickling.join()


def trickle(client: socket.socket) -> None:
    """Send a header line now and then, without ever finishing."""
    end = time.monotonic() + PATIENCE_S
    try:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        while time.monotonic() < end:
            client.sendall(b"X-More: x\r\n")
            time.sleep(0.1)
    except OSError:
        pass  # closed, as it should be


def ended(client: socket.socket) -> bool:
    """Return whether the server closes the connection in time."""
    with client:
        try:
            return client.recv(1000) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


def test_a_body_that_is_too_large_is_refused_before_it_is_read(shared_service: Service) -> None:
    body = b'{"text":"' + b"x" * EMAIL_BODY_MAX + b'"}'
    with socket.create_connection(("127.0.0.1", shared_service.ports[-1]), timeout=PATIENCE_S) as client:
        head = "POST /v1/emails HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\nAuthorization: Bearer {TOKENS['ACME']}\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 413"


def test_a_chunked_body_that_is_too_large_is_refused(shared_service: Service) -> None:
    """Its size is unknown until it has been read."""
    with socket.create_connection(("127.0.0.1", shared_service.ports[-1]), timeout=PATIENCE_S) as client:
        head = "POST /v1/emails HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Transfer-Encoding: chunked\r\nAuthorization: Bearer {TOKENS['ACME']}\r\n\r\n".encode())
        part = b"%x\r\n%s\r\n" % (MIB, b"x" * MIB)
        try:
            for _ in range(41):
                client.sendall(part)
        except OSError:
            pass  # the server may disconnect after the refusal
        assert client.recv(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_fifty_large_bodies_at_once_stay_within_memory(service: Service) -> None:
    content = base64.b64encode(b"x" * (3 * MIB)).decode()

    def send(number: int) -> Answer:
        file = {"filename": "a.txt", "content": content, "content_type": "text/plain"}
        return service.post("/v1/emails", email(f"large {number}") | {"attachments": [file]})

    before = peak_memory(service)
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(send, range(50)))
    assert {a.status for a in answers} <= {202, 503}
    assert sum(a.status == 202 for a in answers) >= 25
    assert all("retry-after" in a.headers for a in answers if a.status == 503)
    # 50 bodies of 4 MiB, three copies each, would be 600 MiB; the budget allows 96 MiB at once.
    assert peak_memory(service) - before < 400 * MIB


def peak_memory(service: Service) -> int:
    status = Path(f"/proc/{service.processes[-1].pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
