"""Postal's shape: django-anymail's untouched backend sends by it, and refusals have Postal's codes."""

from typing import Any

import pytest
from anymail.exceptions import AnymailRequestsAPIError
from anymail.message import AnymailMessage
from django.core.mail import get_connection

from tests.api.sends import EMAIL
from tests.compat import site  # noqa: F401
from tests.service import TOKENS, Service

PREFIX = "/compat/postal"
MAIL: dict[str, Any] = {"to": [EMAIL["to"]], "from": EMAIL["from"], "subject": "Hello", "plain_body": "Hi"}


def message(service: Service, **given: Any) -> AnymailMessage:
    connection = get_connection(
        "anymail.backends.postal.EmailBackend",
        api_key=TOKENS["ACME"],
        api_url=f"http://127.0.0.1:{service.ports[0]}{PREFIX}",
    )
    common = {"subject": "Hello", "body": "Hi", "from_email": "Acme <hello@acme.test>", "to": [EMAIL["to"]]}
    return AnymailMessage(**common | given, connection=connection)


def test_anymail_sends_all_that_it_can(shared_service: Service) -> None:
    mail = message(
        shared_service,
        to=["Ada <delivered@simulator.test>"],
        cc=["cc@simulator.test"],
        bcc=["bcc@simulator.test"],
        reply_to=["Help <help@acme.test>"],
        headers={"X-Order": "4711"},
        tags=["receipt"],
        envelope_sender="bounces@acme.test",
    )
    mail.attach_alternative("<p>Hi</p>", "text/html")
    mail.attach("a.txt", b"text " * 100, "text/plain")
    assert mail.send() == 1
    assert mail.anymail_status.status == {"queued"}
    everyone = {"delivered@simulator.test", "cc@simulator.test", "bcc@simulator.test"}
    assert mail.anymail_status.recipients.keys() == everyone
    sent = shared_service.get(f"/v1/emails/{mail.anymail_status.message_id}").json
    assert (sent["tags"], sent["reply_to"], sent["attachments_count"]) == ({"tag": "receipt"}, "help@acme.test", 1)
    assert (sent["headers"], sent["recipient_count"]) == ({"X-Order": "4711"}, 3)


def test_anymail_tells_of_a_refusal(shared_service: Service) -> None:
    with pytest.raises(AnymailRequestsAPIError, match="suppressed@simulator.test"):
        message(shared_service, to=["suppressed@simulator.test"]).send()


def test_what_is_empty_is_absent(shared_service: Service) -> None:
    empty = {"cc": [], "bcc": [], "reply_to": "", "tag": "", "html_body": "", "headers": {}, "sender": ""}
    file = {"name": "a.txt", "data": "QQ==", "content_type": ""}
    headers = {"X-Server-API-Key": TOKENS["ACME"]}
    for files in ([], [file]):
        body = MAIL | empty | {"attachments": files}
        told = shared_service.post(f"{PREFIX}/api/v1/send/message", body, key=None, headers=headers)
        assert told.json["status"] == "success", told.raw


@pytest.mark.parametrize(
    ("changed", "key", "status", "code"),
    [
        ({}, "", 200, "AccessDenied"),
        ({}, "hk_no", 200, "InvalidServerAPIKey"),
        ({}, "SUSPENDED", 200, "ServerSuspended"),
        ({"to": []}, "ACME", 200, "NoRecipients"),
        ({"to": ["no"]}, "ACME", 200, "ValidationError"),
        ({"to": ["a@simulator.test"] * 51}, "ACME", 200, "TooManyToAddresses"),
        ({"cc": ["a@simulator.test"] * 51}, "ACME", 200, "TooManyCCAddresses"),
        ({"plain_body": ""}, "ACME", 200, "NoContent"),
        ({"from": None}, "ACME", 200, "FromAddressMissing"),
        ({"from": "a@elsewhere.test"}, "ACME", 200, "UnauthenticatedFromAddress"),
        ({"attachments": [{"name": "a.exe", "data": "QQ=="}]}, "ACME", 200, "ValidationError"),
        ({"nothing": 1}, "ACME", 200, "ValidationError"),
    ],
)
def test_refusals(shared_service: Service, changed: dict[str, Any], key: str, status: int, code: str) -> None:
    headers = {"X-Server-API-Key": TOKENS.get(key, key)} if key else {}
    told = shared_service.post(f"{PREFIX}/api/v1/send/message", MAIL | changed, key=None, headers=headers)
    assert (told.status, told.json["status"], told.json["data"]["code"]) == (status, "error", code), told.raw
