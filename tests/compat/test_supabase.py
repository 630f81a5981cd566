"""Supabase's auth hooks, signed by the Standard Webhooks library as by Supabase."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.service import Answer, Service, until

NUMBERS = itertools.count()
PATH = "/hooks/supabase/team_acme"
SMS = {"user": {"phone": "15005550006"}, "sms": {"otp": "135790"}}
MAIL = {
    "user": {"email": "delivered@simulator.test"},
    "email_data": {
        "token": "246802",
        "token_hash": "abc",
        "redirect_to": "https://app.test/",
        "email_action_type": "signup",
        "site_url": "https://db.test/auth/v1",
    },
}


@pytest.fixture(scope="module")
def secret(shared_service: Service) -> Iterator[str]:
    created = shared_service.post("/v1/keys", {"name": "supabase", "hook": True}).json
    assert created["token"].startswith("v1,whsec_") and created["hook"]
    yield created["token"].removeprefix("v1,")
    shared_service.ask("DELETE", f"/v1/keys/{created['id']}")


def call(service: Service, secret: str, body: Any, template: str, id_: str = "") -> Answer:
    at, id_, raw = datetime.now(UTC), id_ or f"msg_{next(NUMBERS)}", json.dumps(body)
    signed = {
        "webhook-id": id_,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(id_, at, raw),
    }
    return service.ask("POST", f"{PATH}?template={template}", raw.encode(), key=None, headers=signed)


def newest(service: Service, path: str) -> Any:
    return service.get(f"{path}?limit=1").json["data"][0]


def test_a_code_by_sms_once_for_each_request(shared_service: Service, secret: str) -> None:
    for _ in range(2):
        answer = call(shared_service, secret, SMS, "tpl_hook_sms", "msg_once")
        assert (answer.status, answer.json) == (200, {})
    sent = newest(shared_service, "/v1/sms")
    assert sent["to"] == "+15005550006"
    call(shared_service, secret, SMS, "tpl_hook_sms")
    assert newest(shared_service, "/v1/sms")["id"] != sent["id"]


def test_a_mail_from_the_teams_domain(shared_service: Service, secret: str) -> None:
    answer = call(shared_service, secret, MAIL, "tpl_hook_mail")
    assert (answer.status, answer.json) == (200, {})
    sent = newest(shared_service, "/v1/emails")
    assert (sent["to"], sent["from"], sent["subject"]) == (
        "delivered@simulator.test",
        "no-reply@acme.test",
        "signup: 246802",
    )


@pytest.mark.parametrize(
    ("body", "template", "code"),
    [
        (SMS, "", 400),
        (SMS, "tpl_none", 400),
        (SMS, "tpl_hook_mail", 409),
        ({"user": {}}, "tpl_hook_sms", 400),
        ({"user": {"phone": "12"}, "sms": {}}, "tpl_hook_sms", 400),
        ([], "tpl_hook_sms", 400),
    ],
)
def test_a_refusal_is_reported_with_status_200(
    shared_service: Service, secret: str, body: Any, template: str, code: int
) -> None:
    answer = call(shared_service, secret, body, template)
    assert (answer.status, answer.json["error"]["http_code"]) == (200, code)
    assert answer.json["error"]["message"]


def test_restricted_hook_sends_only_what_is_permitted(shared_service: Service) -> None:
    restrictions = {"templates": ["tpl_hook_sms"], "recipients": ["+1500*"]}
    created = shared_service.post("/v1/keys", {"name": "restricted hook", "hook": True, "restrictions": restrictions})
    assert created.status == 201, created.raw
    restricted = created.json["token"].removeprefix("v1,")
    assert call(shared_service, restricted, SMS, "tpl_hook_sms").json == {}
    other_phone = {**SMS, "user": {"phone": "447400123456"}}
    for body, template in ((other_phone, "tpl_hook_sms"), (MAIL, "tpl_hook_mail")):
        answer = call(shared_service, restricted, body, template)
        assert (answer.status, answer.json["error"]["http_code"]) == (200, 403)
        assert "key" in answer.json["error"]["message"]


def test_retryable_errors_keep_their_status(shared_service: Service, secret: str) -> None:
    answer = call(shared_service, secret, {**SMS, "user": {"phone": "15005550007"}}, "tpl_hook_sms")
    assert (answer.status, answer.json["error"]["http_code"]) == (503, 503)
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["heliograph-should-retry"] == "true"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [("GET", PATH, b"", 405), ("POST", f"{PATH}/more", b"{}", 404), ("POST", PATH, b" " * 70_000, 413)],
)
def test_other_requests_get_the_same_error_format(
    shared_service: Service, method: str, path: str, body: bytes, status: int
) -> None:
    answer = shared_service.ask(method, path, body, key=None)
    assert (answer.status, set(answer.json)) == (status, {"error"})
    assert (answer.json["error"]["http_code"], set(answer.json["error"])) == (status, {"http_code", "message"})


def test_only_valid_signatures_are_accepted(shared_service: Service, secret: str) -> None:
    other = "whsec_" + "A" * 32
    assert until(lambda: call(shared_service, other, SMS, "tpl_hook_sms").status == 401)
    refused = shared_service.ask("POST", PATH, b"{}", key=None)
    assert (refused.status, refused.headers["heliograph-should-retry"]) == (401, "false")
    assert shared_service.ask("POST", "/hooks/supabase/team_none", b"{}", key=None).status == 401
