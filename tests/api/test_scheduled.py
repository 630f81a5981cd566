"""Messages for later: scheduled, moved, canceled, expired (contract 16)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.sends import EMAIL, SMS, WHATSAPP, Body, assert_refused, idle_me, settled
from tests.service import Service, until

SENDS = {"/v1/emails": EMAIL, "/v1/sms": SMS, "/v1/whatsapp": WHATSAPP}
by_channel = pytest.mark.parametrize(("path", "body"), SENDS.items(), ids=["email", "sms", "whatsapp"])


def ahead(**span: float) -> str:
    return (datetime.now(UTC) + timedelta(**span)).isoformat()


def reasons(found: Any) -> list[str]:
    return [one["detail"]["reason"] for one in found["recipients"]]


def patch(service: Service, path: str, body: Body) -> Any:
    return service.ask("PATCH", path, body)


@by_channel
def test_it_waits_for_its_time(shared_service: Service, path: str, body: Body) -> None:
    answer = shared_service.post(path, body | {"scheduled_at": ahead(seconds=1.5)}).json
    assert answer["status"] == "queued" and "scheduled_at" not in answer
    found = shared_service.get(f"{path}/{answer['id']}").json
    assert (found["status"], found["events"]) == ("queued", [])
    assert found["scheduled_at"] > found["created_at"]
    found = settled(shared_service, f"{path}/{answer['id']}")
    assert found["status"] in ("delivered", "read")
    assert found["events"][0]["created_at"] >= found["scheduled_at"]


@by_channel
def test_a_past_time_is_now(shared_service: Service, path: str, body: Body) -> None:
    answer = shared_service.post(path, body | {"scheduled_at": ahead(days=-1)}).json
    assert answer["status"] == "sending"
    settled(shared_service, f"{path}/{answer['id']}")


@by_channel
@pytest.mark.parametrize("priority", ["normal", "bulk"])
def test_it_is_canceled_once(shared_service: Service, path: str, body: Body, priority: str) -> None:
    answer = shared_service.post(path, body | {"scheduled_at": ahead(hours=1), "priority": priority}).json
    canceled = shared_service.post(f"{path}/{answer['id']}/cancel", None)
    assert (canceled.status, canceled.json["status"], canceled.json["id"]) == (200, "failed", answer["id"])
    found = shared_service.get(f"{path}/{answer['id']}").json
    assert (found["status"], reasons(found)) == ("failed", ["canceled"])
    assert [event["type"].partition(".")[2] for event in found["events"]] == ["failed"]
    assert_refused(shared_service.post(f"{path}/{answer['id']}/cancel", None), 409, "already_sending")
    assert_refused(
        patch(shared_service, f"{path}/{answer['id']}", {"scheduled_at": ahead(hours=2)}), 409, "already_sending"
    )


@by_channel
def test_it_is_moved(shared_service: Service, path: str, body: Body) -> None:
    answer = shared_service.post(path, body | {"scheduled_at": ahead(hours=1)}).json
    later = patch(shared_service, f"{path}/{answer['id']}", {"scheduled_at": ahead(days=2)})
    assert (later.status, later.json["status"]) == (200, "queued")
    assert later.json["scheduled_at"] == shared_service.get(f"{path}/{answer['id']}").json["scheduled_at"]
    assert patch(shared_service, f"{path}/{answer['id']}", {"scheduled_at": ahead(days=-1)}).status == 200
    assert settled(shared_service, f"{path}/{answer['id']}")["status"] in ("delivered", "read")


@by_channel
def test_what_is_sent_is_neither_moved_nor_canceled(shared_service: Service, path: str, body: Body) -> None:
    id_ = shared_service.post(path, body).json["id"]
    settled(shared_service, f"{path}/{id_}")
    assert_refused(shared_service.post(f"{path}/{id_}/cancel", None), 409, "already_sending")
    assert_refused(patch(shared_service, f"{path}/{id_}", {"scheduled_at": ahead(hours=1)}), 409, "already_sending")


@by_channel
def test_what_is_not_there(shared_service: Service, path: str, body: Body) -> None:
    for id_ in ("eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA", "sms_01JCQ8Z6V3M2N7T0K4H9R5B1XA", "nothing"):
        assert_refused(shared_service.post(f"{path}/{id_}/cancel", None), 404, "message_not_found")
    others = shared_service.post(path, body | {"scheduled_at": ahead(hours=1)}).json["id"]
    assert_refused(shared_service.post(f"{path}/{others}/cancel", None, key="OTHER"), 404, "message_not_found")


@by_channel
@pytest.mark.parametrize(
    "given",
    [
        {"scheduled_at": "tomorrow"},
        {"scheduled_at": "2026-11-15T09:30:00"},  # no offset
        {"scheduled_at": ahead(days=61)},
        {"expires_at": "soon"},
        {"expires_at": "9999-12-31T23:59:59-14:00"},  # in UTC, no year of four digits
        {"expires_at": ahead(seconds=-1)},
        {"scheduled_at": ahead(hours=2), "expires_at": ahead(hours=1)},
    ],
)
def test_bad_times(shared_service: Service, path: str, body: Body, given: Body) -> None:
    assert_refused(shared_service.post(path, body | given), 400, "invalid_schedule")


@by_channel
@pytest.mark.parametrize("given", [{"scheduled_at": 1}, {"expires_at": []}])
def test_a_wrong_type(shared_service: Service, path: str, body: Body, given: Body) -> None:
    assert_refused(shared_service.post(path, body | given), 400, "invalid_request")


def test_bad_moves(shared_service: Service) -> None:
    body = EMAIL | {"scheduled_at": ahead(hours=1), "expires_at": ahead(hours=3)}
    path = f"/v1/emails/{shared_service.post('/v1/emails', body).json['id']}"
    assert_refused(
        patch(shared_service, path, {"scheduled_at": ahead(hours=4)}), 400, "invalid_schedule", "scheduled_at"
    )
    assert_refused(
        patch(shared_service, path, {"scheduled_at": ahead(days=61)}), 400, "invalid_schedule", "scheduled_at"
    )
    assert_refused(patch(shared_service, path, {}), 400, "invalid_request", "scheduled_at")
    assert_refused(patch(shared_service, path, {"scheduled_at": ahead(hours=2), "x": 1}), 400, "invalid_request", "x")
    assert patch(shared_service, path, {"scheduled_at": ahead(hours=2)}).status == 200


def test_the_hold_and_the_quota_come_back(shared_service: Service) -> None:
    before = idle_me(shared_service, "ACME")
    body = SMS | {"to": "+447700900123", "scheduled_at": ahead(hours=1)}
    mail = EMAIL | {"to": ["a@example.com", "b@example.com"], "cc": ["A@Example.com"], "scheduled_at": ahead(hours=1)}
    ids = {path: shared_service.post(path, one).json["id"] for path, one in (("/v1/sms", body), ("/v1/emails", mail))}
    held = shared_service.get("/v1/me").json
    assert held["held"] != "0.0000"
    assert held["email_quota"]["used"] == before["email_quota"]["used"] + 3
    for path, id_ in ids.items():
        assert shared_service.post(f"{path}/{id_}/cancel", None).status == 200
    after = shared_service.get("/v1/me").json
    assert {name: after[name] for name in ("held", "credit", "email_quota")} == {
        name: before[name] for name in ("held", "credit", "email_quota")
    }


def test_suppression_is_looked_at_again(shared_service: Service) -> None:
    address = "later-suppressed@example.com"
    body = EMAIL | {"to": address, "scheduled_at": ahead(seconds=2)}
    id_ = shared_service.post("/v1/emails", body).json["id"]
    assert shared_service.post("/v1/suppressions", {"email": address}, key="ACME_MANAGE").status == 201
    found = settled(shared_service, f"/v1/emails/{id_}")
    assert (found["status"], reasons(found)) == ("failed", ["suppressed"])


def test_what_expires_is_not_sent(shared_service: Service) -> None:
    """The magic recipient is deferred once, for longer than it may wait."""
    body = EMAIL | {"to": "softbounce@simulator.test", "expires_at": ahead(seconds=1)}
    id_ = shared_service.post("/v1/emails", body).json["id"]
    found = until(lambda: one if (one := shared_service.get(f"/v1/emails/{id_}").json)["status"] == "failed" else None)
    assert reasons(found) == ["expired"]
