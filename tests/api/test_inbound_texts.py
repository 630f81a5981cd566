"""Inbound texts (contract 17): published, applied if they are keywords, and replied to."""

from typing import Any

import pytest

from tests.api.sends import SMS, WHATSAPP, Body, assert_refused
from tests.service import Service, until

KEYS = ("object", "id", "from", "to", "text", "carrier")


def events_of_type(service: Service, type_: str) -> list[Any]:
    return [event for event in service.get("/v1/events?limit=100").json["data"] if event["type"] == type_]


def final_states(sent: list[Any]) -> list[Any]:
    return sent if len(sent) > 1 and {message["status"] for message in sent} <= {"delivered", "read"} else []


@pytest.mark.parametrize(("path", "body"), [("/v1/sms", SMS), ("/v1/whatsapp", WHATSAPP)])
def test_a_magic_phone_answers_stop(service: Service, path: str, body: Body) -> None:
    channel, phone = path.removeprefix("/v1/"), "+15005550010"
    assert service.post(path, body | {"to": phone}).status == 202
    until(lambda: events_of_type(service, "opt_out.created"))
    (received,) = events_of_type(service, f"{channel}.received")
    assert tuple(received["data"]) == KEYS
    assert received["data"]["id"].startswith("rcv_")
    assert (received["data"]["from"], received["data"]["text"]) == (phone, "STOP")
    (opted_out,) = events_of_type(service, "opt_out.created")
    assert (opted_out["data"]["channel"], opted_out["data"]["reason"]) == (channel, "text")
    assert_refused(service.post(path, body | {"to": phone}), 403, "recipient_opted_out", "to")
    sent = until(lambda: final_states(service.get(path).json["data"]))
    assert len(sent) == 2  # the send, and the reply to STOP
    assert len(events_of_type(service, f"{channel}.received")) == 1
    assert service.ask("DELETE", f"/v1/opt-outs/{phone}").status == 200
    assert service.post(path, body | {"to": phone}).status == 202


def test_a_magic_phone_answers_a_text(service: Service) -> None:
    service.post("/v1/sms", SMS | {"to": "+15005550011"})
    (received,) = until(lambda: events_of_type(service, "sms.received"))
    assert received["data"]["text"] and not events_of_type(service, "opt_out.created")
    assert service.post("/v1/sms", SMS | {"to": "+15005550011"}).status == 202
