"""A relay-only installation with a provider's callbacks: deliveries are reported, bounces and complaints suppress."""

import email
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.carriers.providers import OPTIONS, PUBLIC, gzipped, payload, signed
from tests.journeys.smtp_sink import Sink
from tests.journeys.test_email import send, status
from tests.service import Service, until

CARRIER = """
[[carriers]]
id = "{provider}"
channel = "email"
kind = "smtp"
host = "127.0.0.1"
port = {port}
tls = "none"
priority = {priority}
provider = "{provider}"
"""


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


@pytest.fixture
def relayed(tmp_path: Path, sink: Sink) -> Iterator[Service]:
    """Start the service with mail through Postmark; the carrier for Brevo has no secret."""
    with Service(f"sqlite:///{tmp_path / 'heliograph.db'}", tmp_path / "data") as running:
        running.apply()
        setup = tmp_path / "carriers.toml"
        postmark = CARRIER.format(provider="postmark", port=sink.port, priority=1)
        sendgrid = CARRIER.format(provider="sendgrid", port=sink.port, priority=2)
        brevo = CARRIER.format(provider="brevo", port=sink.port, priority=3)
        secret = f'callback_secret = "{OPTIONS["postmark"]["callback_secret"]}"\n'
        setup.write_text(f'{postmark}{secret}{sendgrid}callback_key = "{PUBLIC}"\n{brevo}')
        running.apply(setup)
        running.start()
        yield running


def call_back(service: Service, provider: str, body: bytes, headers: dict[str, str]) -> int:
    headers = {"content-type": "application/json"} | headers
    answer = service.ask("POST", f"/carriers/{provider}/callback", body, key=None, headers=headers)
    if answer.status == 401:
        assert (answer.code, answer.headers["heliograph-should-retry"]) == ("invalid_signature", "false")
    return answer.status


@pytest.mark.parametrize(
    ("event", "ends", "reason"),
    [
        ("delivery", "delivered", None),
        ("hard_bounce", "bounced", "bounce"),
        ("complaint", "complained", "complaint"),
        ("deactivated", "failed", None),
        ("soft_bounce", "failed", None),
    ],
)
def test_provider_event_changes_the_message(
    relayed: Service, sink: Sink, event: str, ends: str, reason: str | None
) -> None:
    id_ = send(relayed, to="someone@example.com")
    until(lambda: status(relayed, id_) == "sent")
    along = email.message_from_bytes(sink.mails[0][2])["X-PM-Metadata-X-Heliograph-Id"]
    assert along == id_

    headers, body = signed("postmark", payload("postmark", event, along, "someone@example.com"), 0)
    assert call_back(relayed, "postmark", body, {}) == 401
    assert call_back(relayed, "brevo", body, headers) == 404
    assert status(relayed, id_) == "sent"
    for _ in range(2):
        assert call_back(relayed, "postmark", body, headers) == 200
    assert status(relayed, id_) == ends
    (recipient,) = relayed.get(f"/v1/emails/{id_}").json["recipients"]
    if event == "deactivated":
        assert recipient["explanation"]["cause"] == "provider_suppressed"
    suppressed = relayed.get("/v1/suppressions/someone@example.com")
    assert suppressed.status == (200 if reason else 404)
    assert not reason or suppressed.json["reason"] == reason


def test_provider_event_of_an_unknown_message_changes_nothing(relayed: Service, sink: Sink) -> None:
    id_ = send(relayed, to="someone@example.com")
    until(lambda: status(relayed, id_) == "sent")
    foreign = payload("sendgrid", "bounce", id_, "someone@example.com")  # the message was sent by another carrier
    headers, body = gzipped(foreign, int(time.time() * 1000))
    assert call_back(relayed, "sendgrid", body, headers | {"content-encoding": "gzip"}) == 200
    assert call_back(relayed, "sendgrid", body + b" ", headers | {"content-encoding": "gzip"}) == 401
    headers, body = signed("postmark", payload("postmark", "hard_bounce"), 0)  # no such message
    assert call_back(relayed, "postmark", body, headers) == 200
    assert call_back(relayed, "postmark", b"[[]]", headers) == 200
    assert status(relayed, id_) == "sent"
    assert (
        'heliograph_provider_events_total{carrier="postmark",result="nobody"} 1.0'
        in relayed.get("/metrics", key=None).raw.decode()
    )
