"""GET /v1/events/schema (contract 10); tests/event_check.py checks the events of all other tests against the schema."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from heliograph.api.event_schemas import event_schema
from heliograph.api.openapi import openapi_document
from heliograph.api.routes import V1
from heliograph.domain.events import DELAYED, EVENT_TYPES, StoredEvent
from tests import event_check
from tests.api.sends import SMS, send
from tests.service import Service, until

SCHEMA = event_schema()
SENT = {
    "id": "evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA",
    "type": "sms.sent",
    "created_at": "2026-11-15T09:30:00.000Z",
    "team_id": "team_acme",
    "sandbox": False,
    "sequence": 1,
    "data": {
        "id": "sms_01JCQ8Z6V3M2N7T0K4H9R5B1XA",
        "to": "+15005550006",
        "status": "sent",
        "sandbox": False,
        "created_at": "2026-11-15T09:30:00.000Z",
        "message_status": "sent",
        "previous_status": "sending",
        "recipient": "+15005550006",
        "recipient_kind": "to",
    },
}
CREDIT = StoredEvent(
    id="evt_1",
    type="credit.low",
    sequence=1,
    created_at=1_794_724_665_047,
    recipient=None,
    status=None,
    previous_status=None,
    message_status=None,
    detail='{"credit":"4.9550","held":"0.0450","threshold":"5.0000"}',
    record=None,
    sandbox=None,
    kind=None,
)


def is_valid(event: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(SCHEMA).is_valid(event)


def test_the_schema_is_served_without_a_key(shared_service: Service) -> None:
    answer = shared_service.get("/v1/events/schema", key=None)
    assert (answer.status, answer.json) == (200, SCHEMA)


def test_the_schema_is_json_schema_2020_12() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(SCHEMA)


def test_every_event_type_has_a_schema() -> None:
    assert [*SCHEMA["$defs"]] == [*EVENT_TYPES]
    assert SCHEMA["oneOf"] == [{"$ref": f"#/$defs/{name}"} for name in EVENT_TYPES]
    assert [*openapi_document(V1, "http://127.0.0.1:8700")["webhooks"]] == [*EVENT_TYPES]


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_event_schema_is_self_contained(name: str) -> None:
    assert "$ref" not in str(SCHEMA["$defs"][name])
    assert SCHEMA["$defs"][name]["properties"]["type"]["const"] == name


@pytest.mark.parametrize(
    ("changes", "valid"),
    [
        ({}, True),
        ({"later": "an addition"}, True),
        ({"data": SENT["data"] | {"tags": {"kind": "receipt"}}}, True),  # type: ignore[operator]
        ({"type": "sms.delivered"}, False),
        ({"type": "sms.queued"}, False),
        ({"sequence": "1"}, False),
        ({"data": {}}, False),
        ({"data": SENT["data"] | {"status": "delivered"}}, False),  # type: ignore[operator]
        ({"data": SENT["data"] | {"to": None}}, False),  # type: ignore[operator]
    ],
)
def test_only_events_of_their_type_are_valid(changes: dict[str, Any], valid: bool) -> None:
    assert is_valid(SENT | changes) is valid


def test_a_delayed_email_has_the_state_before_the_delay() -> None:
    status = SCHEMA["$defs"][DELAYED]["properties"]["data"]["properties"]["status"]
    assert "const" not in status


def test_the_feed_is_valid(shared_service: Service) -> None:
    send(shared_service, "/v1/sms", SMS)
    events = until(lambda: shared_service.get("/v1/events?limit=100").json["data"])
    assert [event for event in events if not is_valid(event)] == []


def test_event_that_violates_its_schema_is_detected() -> None:
    assert event_check.find_fault(CREDIT) is None
    fault = event_check.find_fault(msgspec.structs.replace(CREDIT, detail='{"credit":4.955,"held":"0.0450"}'))
    assert fault is not None
    assert "credit" in fault
    assert "threshold" in fault
