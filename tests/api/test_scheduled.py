"""Scheduled messages (contract 16): scheduled, rescheduled, cancelled, expired."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.sends import EMAIL, SMS, WHATSAPP, Body, assert_refused, idle_me, settled
from tests.service import Service, until

SENDS = {"/v1/emails": EMAIL, "/v1/sms": SMS, "/v1/whatsapp": WHATSAPP}
by_channel = pytest.mark.parametrize(("path", "body"), SENDS.items(), ids=["email", "sms", "whatsapp"])


def time_from_now(**duration: float) -> str:
    return (datetime.now(UTC) + timedelta(**duration)).isoformat()


def reasons(message: Any) -> list[str]:
    return [recipient["detail"]["reason"] for recipient in message["recipients"]]


def patch(service: Service, path: str, body: Body) -> Any:
    return service.ask("PATCH", path, body)


@by_channel
def test_a_scheduled_message_is_queued_until_its_time(shared_service: Service, path: str, body: Body) -> None:
    answer = shared_service.post(path, body | {"scheduled_at": time_from_now(seconds=1.5)}).json
    assert answer["status"] == "queued" and "scheduled_at" not in answer
    message = shared_service.get(f"{path}/{answer['id']}").json
    assert (message["status"], message["events"]) == ("queued", [])
    assert message["scheduled_at"] > message["created_at"]
    message = settled(shared_service, f"{path}/{answer['id']}")
    assert message["status"] in ("delivered", "read")
    assert message["events"][0]["created_at"] >= message["scheduled_at"]


@by_channel
def test_a_past_time_sends_at_once(shared_service: Service, path: str, body: Body) -> None:
    answer = shared_service.post(path, body | {"scheduled_at": time_from_now(days=-1)}).json
    assert answer["status"] == "sending"
    settled(shared_service, f"{path}/{answer['id']}")


@by_channel
@pytest.mark.parametrize("priority", ["normal", "bulk"])
def test_a_message_is_canceled_once(shared_service: Service, path: str, body: Body, priority: str) -> None:
    answer = shared_service.post(path, body | {"scheduled_at": time_from_now(hours=1), "priority": priority}).json
    canceled = shared_service.post(f"{path}/{answer['id']}/cancel", None)
    assert (canceled.status, canceled.json["status"], canceled.json["id"]) == (200, "failed", answer["id"])
    message = shared_service.get(f"{path}/{answer['id']}").json
    assert (message["status"], reasons(message)) == ("failed", ["canceled"])
    assert [event["type"].partition(".")[2] for event in message["events"]] == ["failed"]
    assert_refused(shared_service.post(f"{path}/{answer['id']}/cancel", None), 409, "already_sending")
    assert_refused(
        patch(shared_service, f"{path}/{answer['id']}", {"scheduled_at": time_from_now(hours=2)}),
        409,
        "already_sending",
    )


@by_channel
def test_a_message_is_rescheduled(shared_service: Service, path: str, body: Body) -> None:
    answer = shared_service.post(path, body | {"scheduled_at": time_from_now(hours=1)}).json
    later = patch(shared_service, f"{path}/{answer['id']}", {"scheduled_at": time_from_now(days=2)})
    assert (later.status, later.json["status"]) == (200, "queued")
    assert later.json["scheduled_at"] == shared_service.get(f"{path}/{answer['id']}").json["scheduled_at"]
    assert patch(shared_service, f"{path}/{answer['id']}", {"scheduled_at": time_from_now(days=-1)}).status == 200
    assert settled(shared_service, f"{path}/{answer['id']}")["status"] in ("delivered", "read")


@by_channel
def test_a_sent_message_cannot_be_rescheduled_or_canceled(shared_service: Service, path: str, body: Body) -> None:
    id_ = shared_service.post(path, body).json["id"]
    settled(shared_service, f"{path}/{id_}")
    assert_refused(shared_service.post(f"{path}/{id_}/cancel", None), 409, "already_sending")
    assert_refused(
        patch(shared_service, f"{path}/{id_}", {"scheduled_at": time_from_now(hours=1)}), 409, "already_sending"
    )


@by_channel
def test_unknown_messages_return_404(shared_service: Service, path: str, body: Body) -> None:
    for id_ in ("eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA", "sms_01JCQ8Z6V3M2N7T0K4H9R5B1XA", "nothing"):
        assert_refused(shared_service.post(f"{path}/{id_}/cancel", None), 404, "message_not_found")
    others = shared_service.post(path, body | {"scheduled_at": time_from_now(hours=1)}).json["id"]
    assert_refused(shared_service.post(f"{path}/{others}/cancel", None, key="OTHER"), 404, "message_not_found")


@by_channel
@pytest.mark.parametrize(
    "given",
    [
        {"scheduled_at": "tomorrow"},
        {"scheduled_at": "2026-11-15T09:30:00"},  # without an offset
        {"scheduled_at": time_from_now(days=61)},
        {"expires_at": "soon"},
        {"expires_at": "9999-12-31T23:59:59-14:00"},  # in UTC, the year has five digits
        {"expires_at": time_from_now(seconds=-1)},
        {"scheduled_at": time_from_now(hours=2), "expires_at": time_from_now(hours=1)},
    ],
)
def test_invalid_times_are_refused(shared_service: Service, path: str, body: Body, given: Body) -> None:
    assert_refused(shared_service.post(path, body | given), 400, "invalid_schedule")


@by_channel
@pytest.mark.parametrize("given", [{"scheduled_at": 1}, {"expires_at": []}])
def test_timing_field_of_a_wrong_type_is_refused(shared_service: Service, path: str, body: Body, given: Body) -> None:
    assert_refused(shared_service.post(path, body | given), 400, "invalid_request")


def test_invalid_reschedules_are_refused(shared_service: Service) -> None:
    body = EMAIL | {"scheduled_at": time_from_now(hours=1), "expires_at": time_from_now(hours=3)}
    path = f"/v1/emails/{shared_service.post('/v1/emails', body).json['id']}"
    assert_refused(
        patch(shared_service, path, {"scheduled_at": time_from_now(hours=4)}), 400, "invalid_schedule", "scheduled_at"
    )
    assert_refused(
        patch(shared_service, path, {"scheduled_at": time_from_now(days=61)}), 400, "invalid_schedule", "scheduled_at"
    )
    assert_refused(patch(shared_service, path, {}), 400, "invalid_request", "scheduled_at")
    assert_refused(
        patch(shared_service, path, {"scheduled_at": time_from_now(hours=2), "x": 1}), 400, "invalid_request", "x"
    )
    assert patch(shared_service, path, {"scheduled_at": time_from_now(hours=2)}).status == 200


def test_canceling_releases_hold_and_quota(shared_service: Service) -> None:
    before = idle_me(shared_service, "ACME")
    body = SMS | {"to": "+447700900123", "scheduled_at": time_from_now(hours=1)}
    mail = EMAIL | {
        "to": ["a@example.com", "b@example.com"],
        "cc": ["A@Example.com"],
        "scheduled_at": time_from_now(hours=1),
    }
    ids = {
        path: shared_service.post(path, fields).json["id"] for path, fields in (("/v1/sms", body), ("/v1/emails", mail))
    }
    account = shared_service.get("/v1/me").json
    assert account["held"] != "0.0000"
    assert account["email_quota"]["used"] == before["email_quota"]["used"] + 3
    for path, id_ in ids.items():
        assert shared_service.post(f"{path}/{id_}/cancel", None).status == 200
    after = shared_service.get("/v1/me").json
    assert {name: after[name] for name in ("held", "credit", "email_quota")} == {
        name: before[name] for name in ("held", "credit", "email_quota")
    }


def test_suppressions_are_rechecked_before_sending(shared_service: Service) -> None:
    address = "later-suppressed@example.com"
    body = EMAIL | {"to": address, "scheduled_at": time_from_now(seconds=2)}
    id_ = shared_service.post("/v1/emails", body).json["id"]
    assert shared_service.post("/v1/suppressions", {"email": address}, key="ACME_MANAGE").status == 201
    message = settled(shared_service, f"/v1/emails/{id_}")
    assert (message["status"], reasons(message)) == ("failed", ["suppressed"])


def test_an_expired_message_is_not_sent(shared_service: Service) -> None:
    """The magic recipient is deferred once, beyond the message's expiry."""
    body = EMAIL | {"to": "softbounce@simulator.test", "expires_at": time_from_now(seconds=1)}
    id_ = shared_service.post("/v1/emails", body).json["id"]
    message = until(
        lambda: current if (current := shared_service.get(f"/v1/emails/{id_}").json)["status"] == "failed" else None
    )
    assert reasons(message) == ["expired"]
