"""Restricted keys in other services' APIs and SMTP (contract 20): their error codes, our messages."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from heliograph.domain.refusals import NOT_PERMITTED, KeyLimitReached
from heliograph.submission.replies import reply_to
from tests.api.test_key_restrictions import restricted
from tests.service import Answer, Service

MAIL = {"from": "hello@acme.test", "to": "delivered@simulator.test", "subject": "Hello", "text": "Hi"}
NOTHING: list[dict[str, Any]] = [{"channels": []}, {"recipients": []}, {"templates": []}]


def resend(service: Service, key: str) -> Answer:
    return service.post("/compat/resend/emails", MAIL, key=key)


def postmark(service: Service, key: str) -> Answer:
    mail = {"From": MAIL["from"], "To": MAIL["to"], "Subject": "Hello", "TextBody": "Hi"}
    return service.post("/compat/postmark/email", mail, key=None, headers={"X-Postmark-Server-Token": key})


def postal(service: Service, key: str) -> Answer:
    mail = {"from": MAIL["from"], "to": [MAIL["to"]], "subject": "Hello", "plain_body": "Hi"}
    return service.post("/compat/postal/api/v1/send/message", mail, key=None, headers={"X-Server-API-Key": key})


def twilio(service: Service, key: str, **form: str) -> Answer:
    form = form or {"To": "+15005550006", "ContentSid": "tpl_sms", "ContentVariables": '{"parcel": "1"}'}
    headers = {
        "Authorization": "Basic " + b64encode(f"AC1:{key}".encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    path = "/compat/twilio/2010-04-01/Accounts/AC1/Messages.json"
    return service.post(path, urlencode(form).encode(), key=None, headers=headers)


Send = Callable[[Service, str], Answer]


@pytest.mark.parametrize(
    ("send", "status", "code", "limited"),
    [
        (resend, 403, ("name", "validation_error"), (429, "rate_limit_exceeded")),
        (postmark, 422, ("ErrorCode", 412), (429, 429)),
        (postal, 200, ("code", "AccessDenied"), (429, "AccessDenied")),
        (twilio, 403, ("code", 20403), (429, 20429)),
    ],
)
def test_refusals_have_the_codes_of_the_service_and_our_text(
    shared_service: Service, send: Send, status: int, code: tuple[str, Any], limited: tuple[int, Any]
) -> None:
    for restrictions in NOTHING:
        answer = send(shared_service, restricted(shared_service, **restrictions))
        body = answer.json.get("data", answer.json)
        assert (answer.status, body[code[0]]) == (status, code[1]), answer.raw
        assert "This key may" in body.get("message", body.get("Message")), answer.raw
    key = restricted(shared_service, per_hour=1)
    assert send(shared_service, key).status in (200, 201)
    answer = send(shared_service, key)
    assert (answer.status, answer.json.get("data", answer.json)[code[0]]) == limited, answer.raw
    assert int(answer.headers["retry-after"]) > 3000


@pytest.mark.parametrize(
    "form", [{"To": "5550006", "Body": "Hi"}, {"To": "+15005550006", "Body": "Hi"}, {"To": "whatsapp:+15005550006"}]
)
def test_twilio_checks_the_channel_before_the_fields(shared_service: Service, form: dict[str, str]) -> None:
    answer = twilio(shared_service, restricted(shared_service, channels=["email"]), **form)
    assert (answer.status, answer.json["code"]) == (403, 20403), answer.raw


def test_sender_is_refused_by_other_services(shared_service: Service) -> None:
    key = restricted(shared_service, senders=["other@acme.test"])
    assert (resend(shared_service, key).status, postmark(shared_service, key).json["ErrorCode"]) == (403, 412)


def test_smtp_refuses_for_good_and_limits_for_now() -> None:
    for refusal in NOT_PERMITTED:
        assert reply_to(refusal()).startswith(f"550 5.7.1 {refusal.code}: ")
    assert reply_to(KeyLimitReached(retry_after=60)).startswith("452 4.7.1 key_limit_reached: ")
