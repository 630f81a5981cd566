"""/v1/opt-outs: phones that opted out of a team's messages, and sends to them (contract 17)."""

from typing import Any

import pytest

from tests.api.sends import SMS, VERIFY, WHATSAPP, Body, assert_refused
from tests.api.test_scheduled import time_from_now
from tests.service import Answer, Service, until, walked

FIELDS = ("object", "id", "phone", "channel", "reason", "created_at")


def add(service: Service, phone: str, channel: str = "sms", **more: str) -> Answer:
    return service.post("/v1/opt-outs", {"phone": phone, "channel": channel, **more})


def events(service: Service, type_: str, phone: str) -> list[Any]:
    all_events = walked(service, "/v1/events")
    return [event["data"] for event in all_events if event["type"] == type_ and event["data"].get("phone") == phone]


def test_opt_out_is_added_read_and_deleted(shared_service: Service, phone: str) -> None:
    sends = {"/v1/sms": SMS, "/v1/whatsapp": WHATSAPP}
    added = add(shared_service, phone)
    assert (added.status, tuple(added.json)) == (201, FIELDS)
    assert added.json | {"created_at": ""} == {
        "object": "opt_out",
        "id": f"sms:{phone}",
        "phone": phone,
        "channel": "sms",
        "reason": "manual",
        "created_at": "",
    }
    assert shared_service.get(f"/v1/opt-outs/{phone}?channel=sms").json == added.json
    assert shared_service.get(f"/v1/opt-outs/{phone}").json["data"] == [added.json]
    assert_refused(shared_service.get(f"/v1/opt-outs/{phone}?channel=whatsapp"), 404, "opt_out_not_found", "phone")
    assert_refused(shared_service.post("/v1/sms", SMS | {"to": phone}), 403, "recipient_opted_out", "to")
    assert_refused(shared_service.post("/v1/sms?dry_run=true", SMS | {"to": phone}), 403, "recipient_opted_out", "to")
    assert shared_service.post("/v1/whatsapp", WHATSAPP | {"to": phone}).status == 202
    assert add(shared_service, phone, "whatsapp").status == 201
    assert len(shared_service.get(f"/v1/opt-outs/{phone}").json["data"]) == 2
    assert_refused(shared_service.post("/v1/whatsapp", WHATSAPP | {"to": phone}), 403, "recipient_opted_out", "to")
    deleted = shared_service.ask("DELETE", f"/v1/opt-outs/{phone}")
    assert (deleted.status, deleted.json) == (
        200,
        {"object": "opt_out", "phone": phone, "channel": None, "deleted": True},
    )
    assert_refused(shared_service.ask("DELETE", f"/v1/opt-outs/{phone}"), 404, "opt_out_not_found", "phone")
    for path, body in sends.items():
        assert shared_service.post(path, body | {"to": phone}).status == 202
    assert until(lambda: len(events(shared_service, "opt_out.deleted", phone)) == 2)
    created = events(shared_service, "opt_out.created", phone)
    assert [event["channel"] for event in created] == ["sms", "whatsapp"]
    assert created[0] == {name: value for name, value in added.json.items() if name != "id"}


def test_one_channel_is_deleted(shared_service: Service, phone: str) -> None:
    for channel in ("sms", "whatsapp"):
        add(shared_service, phone, channel)
    assert shared_service.ask("DELETE", f"/v1/opt-outs/{phone}?channel=sms").status == 200
    (remaining,) = shared_service.get(f"/v1/opt-outs/{phone}").json["data"]
    assert remaining["channel"] == "whatsapp"


def test_verification_codes_ignore_opt_outs(shared_service: Service, phone: str) -> None:
    add(shared_service, phone)
    assert shared_service.post("/v1/verify", VERIFY | {"to": phone}).status == 202


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"phone": "123", "channel": "sms"}, "invalid_phone", "phone"),
        ({"phone": "+4915112345678", "channel": "email"}, "invalid_request", "channel"),
        ({"phone": "+4915112345678"}, "invalid_request", "channel"),
    ],
)
def test_invalid_opt_outs_are_refused(shared_service: Service, body: Body, code: str, param: str) -> None:
    assert_refused(shared_service.post("/v1/opt-outs", body), 400, code, param)


def test_an_invalid_channel_is_reported(shared_service: Service) -> None:
    assert_refused(shared_service.get("/v1/opt-outs/+4915112345678?channel=fax"), 400, "invalid_request", "channel")


def test_the_list_is_paged_newest_first(shared_service: Service) -> None:
    ids = [add(shared_service, f"+1500555109{i}").json["id"] for i in range(4)]
    seen_ids, after = [], ""
    while True:
        page = shared_service.get(f"/v1/opt-outs?limit=2{after}").json
        seen_ids += [item["id"] for item in page["data"]]
        if not page["has_more"]:
            break
        last = page["data"][-1]
        shared_service.ask("DELETE", f"/v1/opt-outs/{last['phone']}?channel={last['channel']}")
        after = f"&after={last['id']}"
    assert [item for item in seen_ids if item in ids] == ids[::-1]
    assert_refused(shared_service.get("/v1/opt-outs?after=sms:+4915199999999"), 400, "invalid_request", "after")


def test_opt_outs_do_not_affect_other_teams(shared_service: Service, phone: str) -> None:
    add(shared_service, phone)
    assert shared_service.get(f"/v1/opt-outs/{phone}", key="SANDBOX").status in (403, 404)
    body = SMS | {"to": phone, "template_id": "tpl_sandbox_sms"}
    assert shared_service.post("/v1/sms", body, key="SANDBOX").code != "recipient_opted_out"


def test_scheduled_messages_are_rechecked_before_sending(shared_service: Service, phone: str) -> None:
    body = SMS | {"to": phone, "scheduled_at": time_from_now(seconds=1.5)}
    id_ = shared_service.post("/v1/sms", body).json["id"]
    add(shared_service, phone)
    message = until(lambda: (current := shared_service.get(f"/v1/sms/{id_}").json)["status"] == "failed" and current)
    assert message["recipients"][0]["detail"]["reason"] == "opted_out"
