"""Provider limits of a running service: a held message shows why and until when; others use the overflow carrier."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.carriers.dns_peer import DnsPeer, Zone
from tests.journeys.smtp_sink import Sink
from tests.service import Service, until

pytestmark = pytest.mark.anyio

ZONE: Zone = {("example.com", "MX"): ["10 mx.google.com."], ("mx.google.com", "A"): ["127.0.0.1"]}
LIMITED = """
[[carriers]]
id = "direct"
channel = "email"
kind = "mx"
helo = "mail.acme.test"
port = {port}
resolver = "{resolver}"
allow_private = ["127.0.0.0/8"]
source_ips = ["127.0.0.1"]
[carriers.providers.google]
per_minute = 2
[carriers.pools.default]
source_ips = ["127.0.0.1"]
"""
OVERFLOW = """
overflow = "spare"
[[carriers]]
id = "spare"
channel = "email"
kind = "simulator"
priority = 20
"""


async def test_messages_above_the_rate_are_held_until_the_rate_permits_them(tmp_path: Path) -> None:
    with Sink() as sink:
        async with DnsPeer(ZONE) as names:
            await asyncio.to_thread(_run, tmp_path, LIMITED.format(port=sink.port, resolver=names.address), sink)


def _run(folder: Path, carrier: str, sink: Sink) -> None:
    file = folder / "carrier.toml"
    with Service(f"sqlite:///{folder / 'heliograph.db'}", folder / "data") as service:
        service.apply()
        file.write_text(carrier)
        assert service.apply(file)["changed"] == ["carrier direct: created"]
        service.start()
        ids = [_send(service, f"ada{number}@example.com") for number in range(4)]

        def held() -> list[dict[str, Any]]:
            messages = [service.get(f"/v1/emails/{id_}").json for id_ in ids]
            return [message for message in messages if message["held"]]

        until(lambda: len(sink.mails) == 2 and len(held()) == 2)
        for message in held():
            (recipient,) = message["recipients"]
            assert recipient["held"] == message["held"]
            assert message["held"]["reason"] == "provider_rate"
            assert message["held"]["until"] > recipient["updated_at"]
            assert (recipient["provider"], recipient["status"]) == ("google", "sending")
            assert recipient["explanation"]["cause"] == "provider_rate"
        urgent = _send(service, "urgent@example.com", priority="critical")
        until(lambda: _status(service, urgent) == "delivered")
        file.write_text(carrier + OVERFLOW)
        service.apply(file)
        last = _send(service, "last@example.com")
        until(lambda: _status(service, last) == "delivered")
        assert service.get(f"/v1/emails/{last}").json["recipients"][0]["detail"]["simulated"] is True
        assert len(sink.mails) == 3


def _send(service: Service, to: str, **fields: Any) -> str:
    body = {"from": "hello@acme.test", "to": [to], "subject": "Hello", "text": "Hello"} | fields
    answer = service.post("/v1/emails", body)
    assert answer.status == 202, answer.json
    return str(answer.json["id"])


def _status(service: Service, id_: str) -> str:
    return str(service.get(f"/v1/emails/{id_}").json["status"])
