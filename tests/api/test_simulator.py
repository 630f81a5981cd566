"""Every magic recipient of contract 13 on each channel: final state, order of events, and no cost."""

from typing import Any

import pytest

from tests.api.sends import EMAIL, SENDS, Body, assert_refused, idle_me, send, settled
from tests.service import Service, until, walked

EMAILS = {
    "delivered": ["sent", "delivered"],
    "bounced": ["bounced"],
    "asyncbounce": ["sent", "delivered", "bounced"],
    "complained": ["sent", "delivered", "complained"],
    "failed": ["failed"],
    "softbounce": ["sent", "delivered"],
}
PHONES = {
    "/v1/sms": {
        "+15005550006": ["sent", "delivered"],
        "+15005550001": ["failed"],
        "+15005550004": ["sent", "failed"],
        "+15005550005": ["sent", "delivered"],
        "+15005550009": ["sent", "delivered"],
        "+15005551000": ["sent", "delivered"],
        "+15005551099": ["sent", "delivered"],
    },
    "/v1/whatsapp": {
        "+15005550006": ["sent", "delivered", "read"],
        "+15005550001": ["failed"],
        "+15005550004": ["sent", "failed"],
        "+15005550005": ["sent", "delivered"],
        "+15005550009": ["sent", "delivered", "read"],  # both are published if one is skipped (contract 6)
        "+15005551000": ["sent", "delivered", "read"],
        "+15005551099": ["sent", "delivered", "read"],
    },
}
CHANNELS = {"/v1/emails": "email", "/v1/sms": "sms", "/v1/whatsapp": "whatsapp"}


def assert_states(message: Any, path: str, to: str, states: list[str]) -> None:
    """Check the published events and each previous state, counted from 1."""
    events = [event for event in message["events"] if event["sequence"] is not None]
    assert [event["status"] for event in events] == states
    assert [event["previous_status"] for event in events] == ["sending", *states[:-1]]
    assert [event["message_status"] for event in events] == states
    assert [event["sequence"] for event in events] == list(range(1, len(states) + 1))
    assert [event["type"] for event in events] == [f"{CHANNELS[path]}.{state}" for state in states]
    assert {event["recipient"] for event in events} == {to}
    assert message["status"] == message["recipients"][0]["status"] == states[-1]


@pytest.mark.parametrize("label", ["", "+order-7"])
@pytest.mark.parametrize("name", EMAILS)
def test_magic_email_reaches_its_documented_states(shared_service: Service, name: str, label: str) -> None:
    to = f"{name}{label}@simulator.test"
    message = send(shared_service, "/v1/emails", EMAIL | {"to": to}, status=EMAILS[name][-1])
    assert_states(message, "/v1/emails", to, EMAILS[name])
    deferred = [event for event in message["events"] if event["sequence"] is None]
    assert [event["detail"]["code"] for event in deferred] == (["451", "451"] if name == "softbounce" else [])


def test_a_delay_is_published_once_and_changes_no_state(shared_service: Service) -> None:
    message = send(shared_service, "/v1/emails", EMAIL | {"to": "delayed@simulator.test"}, status="delivered")
    published = [event for event in message["events"] if event["sequence"] is not None]
    assert [event["type"] for event in published] == ["email.delayed", "email.sent", "email.delivered"]
    delayed = published[0]
    assert (delayed["status"], delayed["previous_status"], delayed["sequence"]) == ("sending", "sending", 1)
    delay = delayed["detail"]["delay"]
    assert delay["since"] <= delay["next_attempt_at"] < delay["gives_up_at"]


def test_webhooks_receive_the_delay_event(shared_service: Service) -> None:
    id_ = send(shared_service, "/v1/emails", EMAIL | {"to": "delayed@simulator.test"}, status="delivered")["id"]

    def delayed_events() -> Any:
        events = walked(shared_service, "/v1/events")
        return [event for event in events if event["type"] == "email.delayed" and event["data"]["id"] == id_]

    (event,) = until(delayed_events)
    assert event["data"]["status"] == "sending"
    assert event["data"]["delay"].keys() == {"since", "next_attempt_at", "gives_up_at"}
    assert event["data"]["explanation"]["retry_helps"] is True


def test_a_bounce_has_the_smtp_reply(shared_service: Service) -> None:
    message = send(shared_service, "/v1/emails", EMAIL | {"to": "bounced@simulator.test"})
    detail = message["recipients"][0]["detail"]
    assert (detail["code"], detail["enhanced"]) == ("550", "5.1.1")


def test_the_suppressed_address_is_refused(shared_service: Service) -> None:
    answer = shared_service.post("/v1/emails", EMAIL | {"to": "suppressed@simulator.test"})
    assert_refused(answer, 403, "recipient_suppressed", "to")


@pytest.mark.parametrize(("path", "to"), [(path, to) for path, phones in PHONES.items() for to in phones])
def test_magic_phone_reaches_its_documented_states(shared_service: Service, path: str, to: str) -> None:
    states = PHONES[path][to]
    message = send(shared_service, path, SENDS[path] | {"to": to}, status=states[-1])
    assert_states(message, path, to, states)


@pytest.mark.parametrize("path", PHONES)
def test_the_number_without_a_carrier_is_refused(shared_service: Service, path: str) -> None:
    answer = shared_service.post(path, SENDS[path] | {"to": "+15005550007"})
    assert_refused(answer, 503, "no_carrier_available", "to")


@pytest.mark.parametrize(
    ("to", "status", "right"),
    [
        ("+15005550006", "pending", "000000"),
        ("+15005551000", "pending", "551000"),
        ("+15005551042", "pending", "551042"),
        ("+15005551099", "pending", "551099"),
        ("+15005550005", "pending", None),
        ("+15005550001", "failed", None),
        ("+15005550007", "failed", None),
    ],
)
def test_magic_number_has_its_documented_verification_result(
    shared_service: Service, to: str, status: str, right: str | None
) -> None:
    started = shared_service.post("/v1/verify", {"to": to}).json
    assert started["status"] == status
    assert bool(started["error_message"]) == (status == "failed")
    check = f"/v1/verify/{started['id']}/check"
    for code in ("000000", "551000", "123456", to[-6:]):
        if code != right:
            assert not shared_service.post(check, {"code": code}).json["verified"]
    assert right is None or shared_service.post(check, {"code": right}).json["verified"]


@pytest.mark.parametrize("key", ["SANDBOX", "BROKE"])
def test_magic_recipients_work_everywhere_and_cost_nothing(shared_service: Service, key: str) -> None:
    """The sandbox team has not verified the recipients; the broke team has no credit."""
    team = key.lower()
    email: Body = {"to": "delivered@simulator.test", "template_id": f"tpl_{team}_email"}
    phone = {"to": "+15005550006", "template_id": f"tpl_{team}_sms"}
    variables = {"SANDBOX": {"parcel": "x"}, "BROKE": {"name": "x"}}[key]
    before = shared_service.get("/v1/me", key=key).json
    send(shared_service, "/v1/emails", email | ({} if key == "SANDBOX" else {"from": "a@broke.test"}), key)
    send(shared_service, "/v1/sms", phone | {"variables": variables}, key)
    whatsapp = phone | {"template_id": f"tpl_{team}_whatsapp"}
    send(shared_service, "/v1/whatsapp", whatsapp | ({"variables": variables} if key == "BROKE" else {}), key)
    if key == "SANDBOX":  # the broke team may verify in GB only
        assert shared_service.post("/v1/verify", {"to": "+15005550006"}, key=key).json["status"] == "pending"
    assert shared_service.get("/v1/me", key=key).json == before


def test_a_magic_verification_passes_every_limit(shared_service: Service) -> None:
    """The broke team may verify in GB only and has no credit, but magic numbers are exempt."""
    answer = shared_service.post("/v1/verify", {"to": "+15005550006"}, key="BROKE")
    assert (answer.status, answer.json["status"]) == (202, "pending")


def test_magic_emails_leave_quota_and_suppressions_alone(shared_service: Service) -> None:
    before = idle_me(shared_service, "ACME")
    for name in ("bounced", "complained", "asyncbounce", "failed"):
        send(shared_service, "/v1/emails", EMAIL | {"to": f"{name}@simulator.test"}, status=EMAILS[name][-1])
        answer = shared_service.get(f"/v1/suppressions/{name}@simulator.test")
        assert_refused(answer, 404, "suppression_not_found")
    assert idle_me(shared_service, "ACME") == before


@pytest.mark.parametrize(("name", "reason"), [("bounced", "bounce"), ("complained", "complaint")])
def test_magic_local_part_at_another_domain_is_suppressed(shared_service: Service, name: str, reason: str) -> None:
    """Simulators accept every domain, but only their own has magic recipients."""
    to = f"{name}@customer.example"
    body = EMAIL | {"to": to, "cc": ["fine@customer.example"]}
    answer = shared_service.post("/v1/emails", body)
    path = f"/v1/suppressions/{to}"
    until(lambda: shared_service.get(path).status == 200)
    suppression = shared_service.get(path).json
    assert (suppression["email"], suppression["reason"], suppression["source_message_id"]) == (
        to,
        reason,
        answer.json["id"],
    )
    assert_refused(shared_service.post("/v1/emails", EMAIL | {"to": to}), 403, "recipient_suppressed")
    settled(shared_service, f"/v1/emails/{answer.json['id']}")
    assert_refused(shared_service.get("/v1/suppressions/fine@customer.example"), 404, "suppression_not_found")


@pytest.mark.parametrize("name", ["failed", "softbounce", "delivered"])
def test_only_bounces_and_complaints_are_suppressed(shared_service: Service, name: str) -> None:
    to = f"{name}@customer.example"
    send(shared_service, "/v1/emails", EMAIL | {"to": to}, status=EMAILS[name][-1])
    assert_refused(shared_service.get(f"/v1/suppressions/{to}"), 404, "suppression_not_found")
