"""Postal's API: django-anymail's backend works unchanged, and refusals have Postal's codes."""

from base64 import b64encode
from typing import Any

import pytest
from anymail.exceptions import AnymailRequestsAPIError
from anymail.message import AnymailMessage
from django.core.mail import get_connection

from tests.api.sends import EMAIL
from tests.compat import site
from tests.service import TOKENS, Service, until

PREFIX = "/compat/postal"
MAIL: dict[str, Any] = {"to": [EMAIL["to"]], "from": EMAIL["from"], "subject": "Hello", "plain_body": "Hi"}


def message(service: Service, **fields: Any) -> AnymailMessage:
    connection = get_connection(
        "anymail.backends.postal.EmailBackend",
        api_key=TOKENS["ACME"],
        api_url=f"http://127.0.0.1:{service.ports[0]}{PREFIX}",
    )
    common = {"subject": "Hello", "body": "Hi", "from_email": "Acme <hello@acme.test>", "to": [EMAIL["to"]]}
    return AnymailMessage(**common | fields, connection=connection)


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


def test_anymail_reports_a_refusal(shared_service: Service) -> None:
    with pytest.raises(AnymailRequestsAPIError, match="suppressed@simulator.test"):
        message(shared_service, to=["suppressed@simulator.test"]).send()


def test_anymail_receives_events(shared_service: Service) -> None:
    """Our worker posts to a real site, which verifies the signature with the public key of the webhook."""
    fields = {"url": "http://127.0.0.1:9/", "events": ["email.*"], "format": "postal"}
    hook = shared_service.post("/v1/webhooks", fields).json
    with site.listening(POSTAL_WEBHOOK_KEY=hook["public_key"]) as (address, received):
        shared_service.ask("PATCH", f"/v1/webhooks/{hook['id']}", {"url": f"{address}/postal/tracking/"})
        try:
            mail = message(shared_service, to=["bounced@simulator.test"], tags=["hard"])
            mail.send()
            id_ = mail.anymail_status.message_id
            (event,) = until(lambda: [item for item in received if item.message_id == id_])
        finally:
            shared_service.ask("DELETE", f"/v1/webhooks/{hook['id']}")
    assert (event.event_type, event.recipient, event.tags) == ("bounced", "bounced@simulator.test", ["hard"])


def test_empty_fields_are_ignored(shared_service: Service) -> None:
    empty = {"cc": [], "bcc": [], "reply_to": "", "tag": "", "html_body": "", "headers": {}, "sender": ""}
    file = {"name": "a.txt", "data": "QQ==", "content_type": ""}
    headers = {"X-Server-API-Key": TOKENS["ACME"]}
    for files in ([], [file]):
        body = MAIL | empty | {"attachments": files}
        response = shared_service.post(f"{PREFIX}/api/v1/send/message", body, key=None, headers=headers)
        assert response.json["status"] == "success", response.raw


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
def test_refused_send_has_the_error_code_of_postal(
    shared_service: Service, changed: dict[str, Any], key: str, status: int, code: str
) -> None:
    headers = {"X-Server-API-Key": TOKENS.get(key, key)} if key else {}
    response = shared_service.post(f"{PREFIX}/api/v1/send/message", MAIL | changed, key=None, headers=headers)
    assert (response.status, response.json["status"], response.json["data"]["code"]) == (status, "error", code), (
        response.raw
    )


RAW = b"""From: Acme <hello@acme.test>\r
To: Ada <delivered@simulator.test>\r
Subject: Raw\r
X-PM-Tag: receipt\r
\r
Hello from raw\r
"""
WRONG_REPLY = b64encode(RAW.replace(b"X-PM-Tag: receipt", b"Reply-To: no")).decode()


def post_to_postal(service: Service, path: str, **body: Any) -> Any:
    headers = {"X-Server-API-Key": TOKENS["ACME"]}
    return service.post(f"{PREFIX}/api/v1/{path}", body, key=None, headers=headers).json


def test_a_raw_message_and_its_deliveries(shared_service: Service) -> None:
    rcpt = ["delivered@simulator.test", "delivered+hidden@simulator.test"]
    sent = post_to_postal(
        shared_service, "send/raw", mail_from="x@acme.test", rcpt_to=rcpt, data=b64encode(RAW).decode()
    )
    assert (sent["status"], sent["data"]["messages"].keys()) == ("success", set(rcpt)), sent
    id_ = sent["data"]["message_id"]

    def find_sent() -> Any:
        parts = post_to_postal(shared_service, "messages/message", id=id_, _expansions=True)["data"]
        return parts["status"]["status"] == "Sent" and parts

    stored = until(find_sent)
    assert (stored["id"], stored["plain_body"].strip(), stored["html_body"]) == (id_, "Hello from raw", None)
    details = {name: stored["details"][name] for name in ("rcpt_to", "mail_from", "subject", "direction", "tag")}
    assert details == {
        "rcpt_to": "delivered@simulator.test",
        "mail_from": "hello@acme.test",
        "subject": "Raw",
        "direction": "outgoing",
        "tag": "receipt",
    }
    assert post_to_postal(shared_service, "messages/message", id=id_)["data"] == {"id": id_, "token": id_}
    tries = until(
        lambda: (
            len(find_sent := post_to_postal(shared_service, "messages/deliveries", id=id_)["data"]) == 2 and find_sent
        )
    )
    assert [attempt["status"] for attempt in tries] == ["Sent", "Sent"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("send/raw", {"rcpt_to": ["a@simulator.test"], "data": "no base64!"}, "ValidationError"),
        ("send/raw", {"rcpt_to": [], "data": b64encode(RAW).decode()}, "NoRecipients"),
        ("send/raw", {"rcpt_to": ["no"], "data": b64encode(RAW).decode()}, "ValidationError"),
        ("send/raw", {"rcpt_to": ["a@simulator.test"], "data": ""}, "NoContent"),
        ("send/raw", {"rcpt_to": ["a@simulator.test"], "data": WRONG_REPLY}, "ValidationError"),
        ("messages/message", {"id": 1}, "MessageNotFound"),
        ("messages/message", {"id": "eml_01ARZ3NDEKTSV4RRFFQ69G5FAV"}, "MessageNotFound"),
        ("messages/deliveries", {"id": 1}, "MessageNotFound"),
        ("messages/message", {}, "ValidationError"),
    ],
)
def test_other_refused_calls_have_the_error_code_of_postal(
    shared_service: Service, path: str, body: dict[str, Any], code: str
) -> None:
    answer = post_to_postal(shared_service, path, **body)
    assert (answer["status"], answer["data"]["code"]) == ("error", code), answer


def test_a_missing_raw_message_is_named(shared_service: Service) -> None:
    answer = post_to_postal(shared_service, "send/raw", rcpt_to=["a@simulator.test"])
    assert answer["data"]["message"].startswith("data is missing")
