"""Postmark's API: its clients work unchanged, and refusals have the codes and texts that they evaluate."""

import base64
import json
from email.mime.image import MIMEImage
from typing import Any
from urllib.parse import urlsplit

import pytest
from anymail.exceptions import AnymailRecipientsRefused, AnymailRequestsAPIError
from anymail.message import AnymailMessage
from django.core.mail import get_connection
from postmarker.core import PostmarkClient
from postmarker.exceptions import ClientError
from requests.adapters import HTTPAdapter

from heliograph.webhooks.policy.signature import make_secret
from tests.api.sends import EMAIL
from tests.compat import site
from tests.journeys.load import ask_database
from tests.service import TOKENS, Answer, Service, until

PREFIX = "/compat/postmark"
PNG = b"\x89PNG\r\n\x1a\n"
PNG_TEXT = base64.b64encode(PNG).decode()
MAIL: dict[str, Any] = {"From": EMAIL["from"], "To": EMAIL["to"], "Subject": "Hello", "TextBody": "Hi"}
WELCOME: dict[str, Any] = {
    "From": EMAIL["from"],
    "To": EMAIL["to"],
    "TemplateAlias": "welcome",
    "TemplateModel": {"name": "Ada"},
}
INACTIVE = (
    "Found inactive addresses: suppressed@simulator.test. Inactive recipients are ones that have generated a hard "
    "bounce, a spam complaint, or a manual suppression."
)


def message(service: Service, **fields: Any) -> AnymailMessage:
    key = fields.pop("key", TOKENS["ACME"])
    connection = get_connection(
        "anymail.backends.postmark.EmailBackend",
        server_token=key,
        api_url=f"http://127.0.0.1:{service.ports[0]}{PREFIX}/",
    )
    common = {"subject": "Hello", "body": "Hi", "from_email": "Acme <hello@acme.test>", "to": [EMAIL["to"]]}
    return AnymailMessage(**common | fields, connection=connection)


def read(service: Service, id_: str) -> Any:
    return service.get(f"/v1/emails/{id_}").json


# -- django-anymail ----------------------------------------------------------------------------------------------------


def test_anymail_sends_all_that_it_can(shared_service: Service) -> None:
    mail = message(
        shared_service,
        to=['"Lovelace, Ada" <delivered@simulator.test>', "grace@simulator.test"],
        cc=["Cc <cc@simulator.test>"],
        bcc=["bcc@simulator.test"],
        reply_to=["Help <help@acme.test>", "more@acme.test"],
        headers={"X-Order": "4711"},
        tags=["receipt"],
        metadata={"order": "4711"},
        track_opens=True,
    )
    mail.attach_alternative("<p>Hi</p>", "text/html")
    mail.attach("a.txt", b"text " * 100, "text/plain")
    image = MIMEImage(PNG)
    image["Content-ID"] = "<logo@acme.test>"
    image["Content-Disposition"] = 'inline; filename="logo.png"'
    mail.attach(image)
    assert mail.send() == 1
    assert mail.anymail_status.status == {"sent"}
    sent = read(shared_service, mail.anymail_status.message_id)
    assert (sent["to_addresses"], sent["cc"], sent["bcc"]) == (
        ["delivered@simulator.test", "grace@simulator.test"],
        ["cc@simulator.test"],
        ["bcc@simulator.test"],
    )
    assert sent["reply_to_addresses"] == ["help@acme.test", "more@acme.test"]
    assert (sent["tags"], sent["metadata"]) == ({"tag": "receipt"}, {"order": "4711"})
    assert (sent["headers"], sent["attachments_count"]) == ({"X-Order": "4711"}, 2)
    query = f"SELECT body FROM content JOIN message ON key = message WHERE id = '{sent['id']}'"
    content = json.loads(ask_database(shared_service.database, query)[0][0])
    assert (content["to"][0], content["cc"]) == (
        '"Lovelace, Ada" <delivered@simulator.test>',
        ["Cc <cc@simulator.test>"],
    )


def test_anymail_sends_a_template_to_each(shared_service: Service) -> None:
    mail = message(shared_service, subject="", body="", to=["a@simulator.test", "delivered@simulator.test"])
    mail.template_id = "welcome"
    mail.merge_data = {"a@simulator.test": {"name": "Ada"}, "delivered@simulator.test": {"name": "Bob"}}
    mail.merge_metadata = {"a@simulator.test": {"n": "1"}}
    mail.send()
    ids = {to: status.message_id for to, status in mail.anymail_status.recipients.items()}
    subjects = {to: read(shared_service, id_)["subject"] for to, id_ in ids.items()}
    assert subjects == {"a@simulator.test": "Welcome, Ada", "delivered@simulator.test": "Welcome, Bob"}
    assert read(shared_service, ids["a@simulator.test"])["metadata"] == {"n": "1"}


@pytest.mark.parametrize(("to", "status"), [("suppressed@simulator.test", "rejected"), ("ada@-bad-.test", "invalid")])
def test_anymail_reports_refused_recipients(shared_service: Service, to: str, status: str) -> None:
    mail = message(shared_service, to=[to])
    with pytest.raises(AnymailRecipientsRefused):
        mail.send()
    assert mail.anymail_status.recipients[to].status == status


@pytest.mark.parametrize("field", ["to", "cc", "bcc"])
def test_anymail_sends_to_the_remaining_recipients(shared_service: Service, field: str) -> None:
    recipients = {"to": [EMAIL["to"]], "cc": ["cc@simulator.test"], "bcc": ["bcc@simulator.test"]}
    mail = message(shared_service, **recipients | {field: [*recipients[field], "suppressed@simulator.test"]})
    assert mail.send() == 1
    status_by_address = {address: item.status for address, item in mail.anymail_status.recipients.items()}
    assert status_by_address == {item: "sent" for addresses in recipients.values() for item in addresses} | {
        "suppressed@simulator.test": "rejected"
    }
    sent = read(shared_service, mail.anymail_status.recipients[EMAIL["to"]].message_id)
    assert (sent["to_addresses"], sent["cc"], sent["bcc"]) == tuple(recipients.values())


def test_anymail_reports_unsent_recipients_of_a_batch(shared_service: Service) -> None:
    """Each message of a batch has a result; refused ones raise no exception for the others."""
    to = ["a@simulator.test", "ada@-bad-.test", "suppressed@simulator.test"]
    mail = message(shared_service, to=to)
    mail.merge_data = {}
    mail.send()
    assert [mail.anymail_status.recipients[address].status for address in to] == ["sent", "invalid", "rejected"]


def test_anymail_reports_a_dropped_bcc(shared_service: Service) -> None:
    mail = message(shared_service, bcc=["suppressed@simulator.test"])
    mail.send()
    assert mail.anymail_status.recipients["suppressed@simulator.test"].status == "rejected"
    assert mail.anymail_status.recipients[EMAIL["to"]].status == "sent"


def test_anymail_reports_an_invalid_key(shared_service: Service) -> None:
    with pytest.raises(AnymailRequestsAPIError, match=r'"ErrorCode":\s*10'):
        message(shared_service, key="hk_wrong").send()


def test_anymail_receives_events(shared_service: Service) -> None:
    """Our worker posts to a real site."""
    secret = make_secret(bytes(range(24)))
    with site.listening(WEBHOOK_SECRET=f"heliograph:{secret}") as (address, received):
        fields = {"url": f"{address}/postmark/tracking/", "events": ["email.*"], "format": "postmark", "secret": secret}
        hook = shared_service.post("/v1/webhooks", fields).json["id"]
        try:
            mail = message(shared_service, to=["bounced@simulator.test"], tags=["hard"], metadata={"order": "17"})
            mail.send()
            id_ = mail.anymail_status.message_id
            (event,) = until(lambda: [item for item in received if item.message_id == id_])
        finally:
            shared_service.ask("DELETE", f"/v1/webhooks/{hook}")
    assert (event.event_type, event.recipient) == ("bounced", "bounced@simulator.test")
    assert (event.tags, event.metadata) == (["hard"], {"order": "17"})


# -- postmarker --------------------------------------------------------------------------------------------------------


class Proxy(HTTPAdapter):
    """A proxy that adds the prefix, because postmarker drops the path of its base URL."""

    def send(self, request: Any, *args: Any, **more: Any) -> Any:
        path = urlsplit(request.url).path
        request.url = request.url.replace(path, PREFIX + path, 1)
        return super().send(request, *args, **more)


@pytest.fixture
def client(shared_service: Service) -> PostmarkClient:
    root = f"http://127.0.0.1:{shared_service.ports[0]}"
    client = PostmarkClient(server_token=TOKENS["ACME"], root_api_url=root)
    client.session.mount(root, Proxy())
    return client


def test_postmarker_sends_email_and_template(shared_service: Service, client: PostmarkClient) -> None:
    result = client.emails.send(
        **MAIL, Headers={"X-Order": "1"}, Attachments=[("a.png", PNG_TEXT, "image/png", "cid:<a>")]
    )
    assert (result["ErrorCode"], result["Message"], result["To"]) == (0, "OK", EMAIL["to"])
    assert read(shared_service, result["MessageID"])["attachments_count"] == 1
    templated = client.emails.send_with_template(**WELCOME)
    assert read(shared_service, templated["MessageID"])["subject"] == "Welcome, Ada"


def test_postmarker_sends_batches(client: PostmarkClient) -> None:
    results = client.emails.send_batch(MAIL, MAIL | {"To": "suppressed@simulator.test"}, MAIL)
    assert [result["ErrorCode"] for result in results] == [0, 406, 0]
    results = client.emails.send_batch(MAIL | {"Bcc": "suppressed@simulator.test"})
    assert INACTIVE.removeprefix("Found ") in results[0]["Message"] and results[0]["ErrorCode"] == 0
    results = client.emails.send_template_batch(WELCOME, WELCOME | {"TemplateAlias": "nothing"})
    assert [result["ErrorCode"] for result in results] == [0, 1101]


def test_the_record_names_the_first_remaining_recipient(shared_service: Service, client: PostmarkClient) -> None:
    result = client.emails.send(**MAIL | {"To": "suppressed@simulator.test", "Cc": "cc@simulator.test"})
    assert INACTIVE.removeprefix("Found ") in result["Message"] and result["ErrorCode"] == 0
    assert read(shared_service, result["MessageID"])["to_addresses"] == ["cc@simulator.test"]


def test_postmarker_reports_a_refusal(client: PostmarkClient) -> None:
    with pytest.raises(ClientError, match="marked as inactive") as refused:
        client.emails.send(**MAIL | {"To": "suppressed@simulator.test"})
    assert refused.value.error_code == 406


# -- codes and words ---------------------------------------------------------------------------------------------------


def post(service: Service, path: str, body: Any, key: str = "ACME", **headers: str) -> Answer:
    authentication = {"X-Postmark-Server-Token": TOKENS.get(key, key)} if key else {}
    return service.post(PREFIX + path, body, key=None, headers=authentication | headers)


@pytest.mark.parametrize(
    ("path", "body", "key", "status", "code", "words"),
    [
        ("/email", MAIL, "", 401, 10, "X-Postmark-Server-Token is missing"),
        ("/email", MAIL, "hk_no", 401, 10, ""),
        ("/email", MAIL, "ACME_MANAGE", 401, 10, ""),
        ("/email", MAIL, "SUSPENDED", 422, 413, ""),
        ("/email", MAIL | {"To": "suppressed@simulator.test"}, "ACME", 422, 406, INACTIVE),
        ("/email", MAIL | {"To": "Ada <no>"}, "ACME", 422, 300, "Invalid 'To' address: 'Ada <no>'."),
        ("/email", MAIL | {"Bcc": "no"}, "ACME", 422, 300, "Invalid 'Bcc' address: 'no'."),
        ("/email", MAIL | {"ReplyTo": "no"}, "ACME", 422, 300, "Invalid 'Reply-To' address: 'no'."),
        ("/email", MAIL | {"To": '"Ada <a@simulator.test>'}, "ACME", 422, 300, "Invalid 'To' address"),
        ("/email", MAIL | {"To": ""}, "ACME", 422, 300, "To contains no address"),
        ("/email", MAIL | {"From": "no"}, "ACME", 422, 300, "From 'no' is neither"),
        ("/email", MAIL | {"From": "a@elsewhere.test"}, "ACME", 422, 400, "elsewhere.test"),
        ("/email", MAIL | {"To": "real@example.com"}, "SANDBOX", 422, 400, "sandbox"),
        ("/email", MAIL | {"From": None, "To": "real@example.com"}, "SANDBOX", 422, 412, "Not verified"),
        ("/email", MAIL | {"TextBody": ""}, "ACME", 422, 300, "Both 'HtmlBody' and 'TextBody' are missing"),
        (
            "/email",
            MAIL | {"Attachments": [{"Name": "a.exe", "Content": "QQ=="}]},
            "ACME",
            422,
            411,
            "ContentType of 'a.exe'",
        ),
        ("/email", MAIL | {"Attachments": [{"Name": "a.txt", "Content": "?"}]}, "ACME", 422, 300, "Content of 'a.txt'"),
        ("/email", MAIL | {"Headers": [{"Name": "From", "Value": "x"}]}, "ACME", 422, 300, "not allowed"),
        ("/email", MAIL | {"Headers": [{"Name": "X-A", "Value": "x"}] * 2}, "ACME", 422, 300, "twice"),
        ("/email", MAIL | {"Metadata": {"a": "x" * 4096}}, "ACME", 422, 300, "Metadata has"),
        ("/email", MAIL | {"Nothing": 1}, "ACME", 422, 403, "Nothing"),
        ("/email", MAIL | {"To": ["a@simulator.test"]}, "ACME", 422, 403, "To"),
        ("/email", [], "ACME", 422, 403, "object"),
        ("/email", b"{", "ACME", 422, 402, "JSON"),
        ("/email/batch", MAIL, "ACME", 422, 403, "list"),
        ("/email/batch", [MAIL] * 501, "ACME", 422, 410, "500"),
        ("/email/withTemplate", WELCOME | {"TemplateAlias": "nothing"}, "ACME", 422, 1101, ""),
        ("/email/withTemplate", WELCOME | {"TemplateAlias": None}, "ACME", 422, 1101, ""),
        ("/email/withTemplate", WELCOME | {"TemplateAlias": None, "TemplateId": 17}, "ACME", 422, 1101, "tpl_17"),
        ("/email/withTemplate", WELCOME | {"TemplateModel": {}}, "ACME", 422, 403, "name"),
        ("/email/nothing", MAIL, "ACME", 404, 300, ""),
    ],
)
def test_refused_call_has_the_error_code_of_postmark(
    shared_service: Service, path: str, body: Any, key: str, status: int, code: int, words: str
) -> None:
    response = post(shared_service, path, body, key)
    assert (response.status, response.json["ErrorCode"]) == (status, code), response.raw
    assert response.json.keys() == {"ErrorCode", "Message"}
    assert words in response.json["Message"]


def test_empty_fields_are_ignored(shared_service: Service) -> None:
    empty = {"Cc": "", "Bcc": "", "ReplyTo": "", "Tag": "", "HtmlBody": "", "Headers": [], "Metadata": {}}
    file = {"Name": "a.txt", "Content": "QQ==", "ContentType": "", "ContentID": ""}
    responses = [post(shared_service, "/email", MAIL | empty | {"Attachments": files}) for files in ([], [file])]
    assert [response.status for response in responses] == [200, 200], responses
    templated = post(shared_service, "/email/withTemplate", WELCOME | {"Subject": "", "TextBody": "", "HtmlBody": ""})
    assert templated.status == 200, templated.raw


def test_undeclared_template_variables_are_ignored(shared_service: Service) -> None:
    model = {"name": "Ada", "more": "x", "items": [{"price": 1}], "company": {"name": "Acme"}}
    assert post(shared_service, "/email/withTemplate", WELCOME | {"TemplateModel": model}).status == 200


@pytest.mark.parametrize("path", ["/email/", "/email/withTemplate/", "/email/batch/", "/email/batchWithTemplates/"])
def test_a_trailing_slash_is_accepted(shared_service: Service, path: str) -> None:
    body: Any = {"/email/": MAIL, "/email/withTemplate/": WELCOME, "/email/batch/": [MAIL]}.get(path)
    assert post(shared_service, path, body or {"Messages": [WELCOME]}).status == 200


def test_an_idempotency_key_sends_once(shared_service: Service) -> None:
    responses = [post(shared_service, "/email", MAIL, **{"Idempotency-Key": "postmark-once"}) for _ in range(2)]
    assert responses[0].json == responses[1].json and responses[1].headers["idempotency-replayed"] == "true"


def test_rate_limit_errors(shared_service: Service) -> None:
    responses = [post(shared_service, "/email", MAIL, "SLOW") for _ in range(20)]
    refused = [response for response in responses if response.status == 429]
    assert refused and all(
        response.json["ErrorCode"] == 429 and "retry-after" in response.headers for response in refused
    )
