"""Programs for Resend with our service, by Resend's own libraries (compat.md)."""

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import resend
from anyio.from_thread import start_blocking_portal
from anymail.exceptions import AnymailAPIError
from anymail.message import AnymailMessage
from django.core.mail import get_connection
from resend.exceptions import ResendError

from heliograph.compat.resend.codec import CHUNK_BYTES, error, parse
from heliograph.domain import refusals as r
from heliograph.domain.refusals import InvalidJson, Refusal
from tests.carriers.hook_receiver import Receiver
from tests.compat.resend_calls import HELLO, PDF, REFUSED, WORKS, ExistingRecords
from tests.compat.site import anymail, track
from tests.journeys.load import ask_database
from tests.make_request import make_request
from tests.npm import install
from tests.service import PATIENCE_S, TOKENS, Answer, Service, until

PREFIX = "/compat/resend"
NUMBERS = itertools.count(1)


@pytest.fixture(autouse=True)
def _client(shared_service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend, "api_url", f"http://127.0.0.1:{shared_service.ports[-1]}{PREFIX}")
    monkeypatch.setattr(resend, "api_key", TOKENS["ACME"])


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Receiver()) as running:
        yield running


@pytest.fixture(scope="module")
def records(shared_service: Service, receiver: Receiver) -> ExistingRecords:
    def create(path: str, body: Any) -> Any:
        answer = shared_service.post(PREFIX + path, body)
        assert answer.status == 200, answer.raw
        return answer.json

    hook = create("/webhooks", {"endpoint": receiver.url, "events": ["email.delivered"]})["id"]
    email = create("/emails", HELLO | {"attachments": [{"filename": "a.pdf", "content": list(PDF)}]})["id"]
    create("/emails", HELLO)
    (notified,) = until(lambda: [request for request in receiver.received if email in request.body])
    return ExistingRecords(
        email=email,
        webhook=hook,
        event=notified.headers["svix-id"],
        number=lambda: next(NUMBERS),
    )


def send(**more: Any) -> str:
    return str(resend.Emails.send({**HELLO, **more})["id"])  # type: ignore[typeddict-item]


def stored(service: Service, id_: str) -> Any:
    return service.get(f"/v1/emails/{id_}").json


def refused(**more: Any) -> ResendError:
    with pytest.raises(ResendError) as failure:
        send(**more)
    return failure.value


def send_request(service: Service, method: str, path: str, body: Any = None, **options: Any) -> Answer:
    return service.ask(method, PREFIX + path, body, **options)


# -- every call -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKS)
def test_supported_call_succeeds(records: ExistingRecords, name: str) -> None:
    assert WORKS[name](records)


@pytest.mark.filterwarnings("ignore:Audiences is deprecated")
@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_call_is_refused_with_a_reason(records: ExistingRecords, name: str) -> None:
    call, kind, reason = REFUSED[name]
    with pytest.raises(ResendError, match=reason) as failure:
        call(records)
    assert failure.value.error_type == kind


def test_the_documented_calls_work() -> None:
    """These tests make exactly the calls that the docs list."""
    text = Path("docs/compat.md").read_text("utf-8").partition("resend calls: begin -->")[2].partition("<!--")[0]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (works|refused|not yet) \|", text, re.MULTILINE))
    tried = dict.fromkeys(WORKS, True) | dict.fromkeys(REFUSED, False)
    assert {name: state == "works" for name, state in rows.items()} == tried


# -- sending ----------------------------------------------------------------------------------------------------


def test_email_with_every_field_is_stored(shared_service: Service) -> None:
    id_ = send(
        to="Ada <delivered@simulator.test>",
        cc=["Bo <cc@simulator.test>", "cc2@simulator.test"],
        bcc="bcc@simulator.test",
        reply_to=["One <one@acme.test>", "two@acme.test"],
        headers={"X-Entity-Ref-ID": "17"},
        tags=[{"name": "kind", "value": "receipt"}, {"name": "test"}],
    )
    email = stored(shared_service, id_)
    assert (email["to_addresses"], email["from"]) == (["delivered@simulator.test"], "hello@acme.test")
    assert (email["cc"], email["bcc"]) == (["cc@simulator.test", "cc2@simulator.test"], ["bcc@simulator.test"])
    assert email["reply_to_addresses"] == ["one@acme.test", "two@acme.test"]
    assert (email["headers"], email["tags"]) == ({"X-Entity-Ref-ID": "17"}, {"kind": "receipt", "test": "true"})


def test_recipient_names_are_in_the_mail(shared_service: Service) -> None:
    names: Any = {"to": [' "Ada, Countess" <delivered@simulator.test> '], "cc": "Bo <bo@simulator.test>"}
    batch = resend.Batch.send([HELLO | names])["data"][0]["id"]
    for id_ in (send(**names), batch):
        query = f"SELECT body FROM content JOIN message ON key = message WHERE id = '{id_}'"
        ((body,),) = ask_database(shared_service.database, query)
        content = json.loads(body)
        assert content["to"] == ['"Ada, Countess" <delivered@simulator.test>']
        assert content["cc"] == ["Bo <bo@simulator.test>"]


def test_a_template_with_variables(shared_service: Service) -> None:
    fields = {"to": "a@simulator.test", "template": {"id": "tpl_welcome", "variables": {"NAME": "Ada"}}}
    senders = ("Acme <hello@acme.test>", "Acme <no-reply@acme.test>")
    for extra, sender in (({"from": "hello@acme.test"}, senders[0]), ({}, senders[1])):
        id_ = resend.Emails.send(fields | extra)["id"]  # type: ignore[arg-type]
        email = resend.Emails.get(id_)
        assert (email["subject"], email["from"]) == ("Welcome, Ada", sender)


TEMPLATE: Any = {
    "name": "Receipt",
    "subject": "Order {{{ORDER}}}",
    "html": "<p>Dear {{{firstName}}}, {{{TOTAL}}}</p>",
    "from": "Acme <orders@acme.test>",
    "reply_to": ["help@acme.test"],
}
VARIABLES = [
    {"key": "ORDER", "type": "string", "fallback_value": None},
    {"key": "firstName", "type": "string", "fallback_value": "customer"},
    {"key": "TOTAL", "type": "number", "fallback_value": 0},
]


def test_a_template_is_returned_as_written_and_sent_by_alias(shared_service: Service) -> None:
    alias = f"receipt-{next(NUMBERS)}"
    id_ = resend.Templates.create(TEMPLATE | {"alias": alias, "variables": VARIABLES})["id"]
    for invalid in ({"alias": alias}, {"from": "nobody"}, {"reply_to": ["b@"]}):
        with pytest.raises(ResendError, match=f"{next(iter(invalid))}: "):
            resend.Templates.create(TEMPLATE | invalid)
    resend.Templates.publish(alias)
    for name in (id_, alias):
        template: Any = resend.Templates.get(name)
        assert {field: template[field] for field in TEMPLATE} == TEMPLATE
        assert (template["id"], template["alias"], template["variables"]) == (id_, alias, VARIABLES)
    fields: Any = {"to": "a@simulator.test", "template": {"id": alias, "variables": {"ORDER": "4711", "TOTAL": 12}}}
    mail = resend.Emails.get(resend.Emails.send(fields)["id"])
    assert (mail["subject"], mail["html"]) == ("Order 4711", "<p>Dear customer, 12</p>")
    assert (mail["from"], mail["reply_to"]) == ("Acme <orders@acme.test>", ["help@acme.test"])
    with pytest.raises(ResendError, match="order"):
        resend.Emails.send({"to": "a@simulator.test", "template": {"id": alias}})
    resend.Templates.update({"id": id_, "subject": "Your order {{{ORDER}}}"})
    assert resend.Templates.get(id_)["subject"] == "Your order {{{ORDER}}}"
    assert resend.Templates.get(id_)["variables"] == VARIABLES


def test_a_number_variable_stays_a_number() -> None:
    count: Any = [{"key": "COUNT", "type": "number", "fallback_value": None}]
    id_ = resend.Templates.create({"name": "Number", "subject": "x", "html": "{{{COUNT}}}", "variables": count})["id"]
    assert resend.Templates.get(id_)["variables"] == count


@pytest.mark.parametrize(
    "empty",
    [
        {"cc": "", "bcc": "", "reply_to": ""},  # as Payload CMS sends every mail
        {"cc": [], "bcc": [], "reply_to": [], "attachments": [], "tags": []},
        {"headers": {}, "template": {}, "topic_id": "", "scheduled_at": "", "html": ""},
        {"attachments": [{"filename": "a.txt", "content": "QQ==", "path": "", "content_type": "", "content_id": ""}]},
    ],
    ids=str,
)
def test_empty_fields_are_ignored(empty: dict[str, Any]) -> None:
    assert send(**empty)


def test_undeclared_variables_are_ignored_and_the_subject_is_used(shared_service: Service) -> None:
    template = {"id": "tpl_welcome", "variables": {"NAME": "Ada", "MORE": 1, "LIST": [1]}}
    fields: Any = {"to": "a@simulator.test", "template": template, "html": "", "subject": ""}
    assert stored(shared_service, resend.Emails.send(fields)["id"])["subject"] == "Welcome, Ada"
    large = {"attachments": [{"filename": "a.zip", "content": "A" * 400_000}]}  # parsed in threads
    for more in ({}, large):
        with_subject = resend.Emails.send(fields | {"subject": "Hello from us"} | more)["id"]
        assert resend.Emails.get(with_subject)["subject"] == "Hello from us"
        assert stored(shared_service, with_subject)["subject"] == "Hello from us"


@pytest.mark.parametrize(
    "content",
    [base64.b64encode(PDF).decode(), list(PDF), {"type": "Buffer", "data": list(PDF)}],
    ids=["base64", "list of ints", "Node's Buffer"],
)
def test_three_attachment_encodings(content: Any) -> None:
    id_ = send(attachments=[{"filename": "a.pdf", "content": content, "inline_content_id": "logo"}])
    (file,) = resend.Emails.Attachments.list(id_)["data"]
    assert (file["filename"], file["size"], file["content_type"]) == ("a.pdf", len(PDF), "application/pdf")
    assert (file["content_id"], file["content_disposition"]) == ("logo", "inline")
    assert requests.get(file["download_url"], timeout=PATIENCE_S).content == PDF


def test_a_large_file_as_numbers_and_similar_text() -> None:
    octets = bytes(range(256)) * 4096  # 1 MiB: more numbers than our limit of JSON values
    text = 'see "content": [1, 2, 3] and \\'
    id_ = send(text=text, attachments=[{"filename": "a.zip", "content": list(octets)}])
    (file,) = resend.Emails.Attachments.list(id_)["data"]
    assert (file["size"], resend.Emails.get(id_)["text"]) == (len(octets), text)
    assert requests.get(file["download_url"], timeout=PATIENCE_S).content == octets
    assert requests.get(file["download_url"].replace("/1?", "/2?"), timeout=PATIENCE_S).json()["name"] == "not_found"


@pytest.mark.parametrize(
    "content", [[256], [-1], [1.5], ["a"], {"type": "Buffer"}, 7, "no base64", None], ids=lambda value: repr(value)
)
def test_invalid_attachments_are_refused(content: Any) -> None:
    failure = refused(attachments=[{"filename": "a.pdf", "content": content}])
    assert (failure.code, failure.error_type) == (422, "invalid_attachment")


def test_email_is_returned_as_by_resend(records: ExistingRecords) -> None:
    email: Any = until(lambda: (mail := resend.Emails.get(records.email))["last_event"] == "delivered" and mail)
    assert email.pop("http_headers") and email.pop("created_at") == resend.Emails.get(records.email)["created_at"]
    assert email == {
        "object": "email",
        "id": records.email,
        "message_id": f"<{records.email}@acme.test>",
        "to": ["Ada Lovelace <delivered@simulator.test>"],
        "from": "Acme <hello@acme.test>",
        "subject": "Hello",
        "html": "<p>Hello</p>",
        "text": "Hello",
        "cc": None,
        "bcc": None,
        "reply_to": None,
        "last_event": "delivered",
        "scheduled_at": None,
        "tags": [],
    }


@pytest.mark.parametrize(("to", "last"), [("bounced", "bounced"), ("complained", "complained"), ("failed", "failed")])
def test_last_event_of_an_email(to: str, last: str) -> None:
    id_ = send(to=f"{to}@simulator.test")
    until(lambda: resend.Emails.get(id_)["last_event"] == last)


def test_a_scheduled_email_is_rescheduled_and_canceled() -> None:
    id_ = send(scheduled_at="in 1 hour")
    assert resend.Emails.get(id_)["last_event"] == "scheduled"
    assert resend.Emails.cancel(id_)["id"] == id_
    assert resend.Emails.get(id_)["last_event"] == "canceled"
    lines = {email["id"]: email["last_event"] for email in resend.Emails.list()["data"]}
    assert lines[id_] == "canceled"


def test_an_idempotency_key_sends_one_email() -> None:
    key = f"resend-{next(NUMBERS)}".ljust(256, "x")
    with pytest.raises(ResendError, match="1 to 256 "):
        resend.Emails.send(HELLO, {"idempotency_key": key + "x"})  # type: ignore[arg-type]
    first, second = (resend.Emails.send(HELLO, {"idempotency_key": key}) for _ in range(2))  # type: ignore[arg-type]
    assert first["id"] == second["id"]
    with pytest.raises(ResendError) as failure:
        resend.Emails.send({**HELLO, "subject": "Other"}, {"idempotency_key": key})  # type: ignore[typeddict-item]
    assert (failure.value.code, failure.value.error_type) == (409, "invalid_idempotent_request")


def test_a_batch_is_answered_in_order(shared_service: Service) -> None:
    mails: Any = [{**HELLO, "subject": f"Mail {n}"} for n in range(3)]
    created = resend.Batch.send(mails, {"idempotency_key": f"batch-{next(NUMBERS)}"})["data"]
    assert [stored(shared_service, item["id"])["subject"] for item in created] == ["Mail 0", "Mail 1", "Mail 2"]


def test_a_strict_batch_is_refused_as_a_whole() -> None:
    before = resend.Emails.list({"limit": 1})["data"][0]["id"]
    bad: Any = [HELLO, {**HELLO, "from": "hello@elsewhere.test"}]
    with pytest.raises(ResendError, match=r"^\[1\] .* not a verified and approved domain") as failure:
        resend.Batch.send(bad)
    assert (failure.value.code, failure.value.error_type) == (403, "validation_error")
    assert resend.Emails.list({"limit": 1})["data"][0]["id"] == before


def test_a_permissive_batch_reports_refused_emails() -> None:
    batch: Any = [{**HELLO, "to": "nobody"}, HELLO, {**HELLO, "to": "suppressed@simulator.test"}]
    result = resend.Batch.send(batch, {"batch_validation": "permissive"})
    assert (len(result["data"]), [item["index"] for item in result["errors"]]) == (1, [0, 2])
    assert "Suppressed" in result["errors"][1]["message"]
    assert resend.Batch.send([HELLO], {"batch_validation": "permissive"})["errors"] == []  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("body", "mode"), [([], "strict"), ([HELLO] * 101, "strict"), ({}, "strict"), ([HELLO], "lax")]
)
def test_invalid_batches_are_refused(shared_service: Service, body: Any, mode: str) -> None:
    answer = send_request(shared_service, "POST", "/emails/batch", body, headers={"x-batch-validation": mode})
    assert (answer.status, answer.json["name"]) == (422, "validation_error")


def test_emails_are_paginated() -> None:
    ids = [send(subject=f"Page {n}") for n in range(4)][::-1]
    page = resend.Emails.list({"limit": 2})
    assert ([email["id"] for email in page["data"]], page["has_more"]) == (ids[:2], True)
    after = resend.Emails.list({"limit": 2, "after": ids[1]})
    assert [email["id"] for email in after["data"]] == ids[2:]
    before = resend.Emails.list({"limit": 2, "before": ids[3]})
    assert ([email["id"] for email in before["data"]], before["has_more"]) == (ids[1:3], True)


def test_recipients_keep_their_display_names_in_lists_and_events(records: ExistingRecords, receiver: Receiver) -> None:
    to, cc = (
        ["Ada L <delivered+ada@simulator.test>", "delivered+bare@simulator.test"],
        ["C <delivered+c@simulator.test>"],
    )
    id_ = send(to=to, cc=cc)
    (entry,) = [email for email in resend.Emails.list({"limit": 100})["data"] if email["id"] == id_]
    assert (entry["to"], entry["cc"]) == (to, cc)

    def event_types() -> set[str]:
        bodies = [json.loads(request.body) for request in receiver.received if id_ in request.body]
        return {address for body in bodies for address in body["data"]["to"]}

    assert until(lambda: event_types() == {*to, *cc})


def test_a_mail_is_listed_with_its_senders_name() -> None:
    sender_by_id = {send(**{"from": sender}): sender for sender in ("Acme <hello@acme.test>", "hello@acme.test")}
    emails: Any = resend.Emails.list({"limit": 2})["data"]
    assert {email["id"]: email["from"] for email in emails} == sender_by_id


def test_attachments_are_paginated() -> None:
    id_ = send(attachments=[{"filename": f"{n}.txt", "content": "QQ=="} for n in range(3)])

    def page(**query: Any) -> tuple[list[str], bool]:
        params: Any = query
        listing = resend.Emails.Attachments.list(id_, params)
        return [file["id"] for file in listing["data"]], listing["has_more"]

    assert page() == (["1", "2", "3"], False)
    assert page(limit=2) == (["1", "2"], True)
    assert page(limit=2, after="2") == (["3"], False)
    assert page(limit=1, before="3") == (["2"], True)
    with pytest.raises(ResendError, match="after must be an id of this list"):
        page(after="x")


# -- refusals ---------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[dict[str, Any], int, str, str]] = [
    ({"from": "nobody"}, 422, "invalid_from_address", "neither an email address"),
    ({"from": "Mallory <hello@acme.test>"}, 403, "validation_error", "display name"),
    ({"from": "hello@elsewhere.test"}, 403, "validation_error", "not a verified and approved domain"),
    ({"to": ["nobody"]}, 422, "validation_error", "not a valid email address"),
    ({"to": "suppressed@simulator.test"}, 403, "validation_error", "Suppressed recipients"),
    ({"to": [f"a{n}@simulator.test" for n in range(51)]}, 422, "validation_error", "the maximum is 50"),
    ({"subject": ""}, 422, "missing_required_field", "subject is missing"),
    ({"html": None, "text": None}, 422, "missing_required_field", "'html' and 'text' are missing"),
    ({"template": {"id": "tpl_welcome"}}, 422, "validation_error", "template"),
    ({"scheduled_at": "tomorrow at 9am"}, 422, "validation_error", "scheduled_at"),
    ({"scheduled_at": "in 9999 weeks"}, 422, "validation_error", "60 days"),
    ({"topic_id": "t"}, 422, "validation_error", "is not a category of the team"),
    ({"tags": [{"name": "a b", "value": "c"}]}, 422, "validation_error", "not a valid tag name"),
    ({"tags": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}, 422, "validation_error", "occurs twice"),
    ({"headers": {"DKIM-Signature": "v=1"}}, 422, "validation_error", "DKIM-Signature"),
    (
        {"attachments": [{"filename": "a.pdf", "path": "http://a.test"}]},
        422,
        "invalid_attachment",
        "fetching files is not supported",
    ),
    ({"attachments": [{"filename": "a.exe", "content": "AAAA"}]}, 422, "invalid_attachment", "'a.exe' is"),
    ({"sms": "yes"}, 422, "validation_error", "sms"),
]


@pytest.mark.parametrize(("fields", "status", "name", "words"), REFUSALS, ids=lambda value: str(value)[:40])
def test_refused_email_has_the_error_name_of_resend_and_our_message(
    fields: dict[str, Any], status: int, name: str, words: str
) -> None:
    failure = refused(**fields)
    assert (failure.code, failure.error_type) == (status, name)
    assert words in str(failure)


@pytest.mark.parametrize(
    ("key", "method", "path", "status", "name"),
    [
        (None, "GET", "/emails", 401, "missing_api_key"),
        ("hk_no", "GET", "/emails", 403, "invalid_api_key"),
        ("ACME_SEND", "GET", "/domains", 401, "restricted_api_key"),
        ("ACME", "GET", "/emails/eml_none", 404, "not_found"),
        ("ACME", "GET", "/nothing", 404, "not_found"),
        ("ACME", "PUT", "/emails", 405, "method_not_allowed"),
        ("ACME", "GET", "/emails?limit=0", 422, "validation_error"),
        ("SUSPENDED_MANAGE", "GET", "/domains", 403, "validation_error"),
    ],
)
def test_errors_have_resends_format(
    shared_service: Service, key: str | None, method: str, path: str, status: int, name: str
) -> None:
    answer = send_request(shared_service, method, path, key=key)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert (answer.json["statusCode"], answer.json["name"]) == (status, name)
    assert sorted(answer.json) == ["message", "name", "statusCode"]


def test_the_log_has_the_response_status() -> None:
    refused(subject="")
    until(lambda: 422 in [entry["response_status"] for entry in resend.Logs.list()["data"]])


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"", {}),
        (b'{"content": [ 0, 255 ]}', {"content": "AP8="}),
        (b'{"content":[]}', {"content": ""}),
        (b'{"content":[256]}', {"content": [256]}),
        (b'{"content":[1,]}', None),
        (b'{"content":[' + b"1," * CHUNK_BYTES + b"]}", None),
        (b'{"content":[' + b" " * CHUNK_BYTES + b",1]}", None),
        (
            b'{"content":[' + b"1," * CHUNK_BYTES + b"1]}",
            {"content": base64.b64encode(b"\1" * (CHUNK_BYTES + 1)).decode()},
        ),
        (b'{"numbers":[1,2]}', {"numbers": [1, 2]}),
        (rb'{"text":"\"content\":[1,2]","data":[1]}', {"text": '"content":[1,2]', "data": "AQ=="}),
        (b'{"a":"' + b'\\"' * 500_000, None),  # a string without an end is read once
        (b'"content"' + b" " * 500_000, "content"),
    ],
    ids=range(12),
)
def test_lists_of_octets_are_converted_to_base64(raw: bytes, value: Any) -> None:
    if value is None:
        with pytest.raises(InvalidJson):
            parse(raw)
    else:
        assert parse(raw) == value


NAMES: list[tuple[int, str, tuple[type[Refusal], ...]]] = [
    (401, "missing_api_key", (r.MissingApiKey,)),
    (401, "restricted_api_key", (r.InsufficientScope,)),
    (403, "invalid_api_key", (r.InvalidApiKey,)),
    (400, "invalid_idempotency_key", (r.InvalidIdempotencyKey,)),
    (409, "invalid_idempotent_request", (r.IdempotencyKeyReused,)),
    (409, "concurrent_idempotent_requests", (r.IdempotencyRequestInProgress,)),
    (422, "invalid_from_address", (r.InvalidFromAddress,)),
    (422, "invalid_attachment", (r.InvalidAttachment, r.AttachmentsTooLarge)),
    (422, "missing_required_field", (r.MissingBody,)),
    (422, "validation_error", (r.InvalidJson, r.InvalidEmail, r.AlreadySending, r.PayloadTooLarge)),
    (403, "validation_error", (r.FromDomainUnverified, r.DisplayNameNotApproved, r.KeyDomainScope)),
    (403, "validation_error", (r.RecipientNotAllowed, r.RecipientSuppressed, r.SandboxFromLocked)),
    (429, "rate_limit_exceeded", (r.RateLimitExceeded,)),
    (429, "monthly_quota_exceeded", (r.InsufficientCredit,)),
    (404, "not_found", (r.MessageNotFound, r.TemplateNotFound)),
    (405, "method_not_allowed", (r.MethodNotAllowed,)),
    (500, "internal_server_error", (r.InternalError, r.ServiceUnavailable)),
]


@pytest.mark.parametrize(("status", "name", "refusals"), NAMES)
def test_refusal_has_the_status_and_name_of_resend(status: int, name: str, refusals: tuple[type[Refusal], ...]) -> None:
    for refusal in refusals:
        answer = error(refusal("Why not."), make_request("POST", f"{PREFIX}/emails"), "http://a.test")
        assert json.loads(answer.body) == {"statusCode": status, "name": name, "message": "Why not."}
        assert (answer.status, answer.content_type) == (status, b"application/json")
        assert b"heliograph-should-retry" in dict(answer.headers)


def test_a_rate_limit_has_retry_after(shared_service: Service) -> None:
    slow = [send_request(shared_service, "GET", "/emails", key="SLOW") for _ in range(30)]
    limited = next(answer for answer in slow if answer.status == 429)
    assert (limited.json["name"], "retry-after" in limited.headers) == ("rate_limit_exceeded", True)


def test_an_unneeded_body_is_accepted(shared_service: Service) -> None:
    assert send_request(shared_service, "GET", "/emails", {}).status == 200
    id_ = send(scheduled_at="in 1 hour")
    assert send_request(shared_service, "POST", f"/emails/{id_}/cancel", b"").status == 200


# -- events -----------------------------------------------------------------------------------------------------


def test_a_webhook_receives_resends_format(receiver: Receiver) -> None:
    path = f"/{next(NUMBERS)}"
    hook = resend.Webhooks.create({"endpoint": receiver.url + path, "events": ["email.bounced", "email.opened"]})
    id_ = send(to=["bounced@simulator.test"], headers={"X-Tags": '["a"]'})
    (got,) = until(lambda: [request for request in receiver.received if request.path == path])
    headers = {name: got.headers[f"svix-{name}"] for name in ("id", "timestamp", "signature")}
    event: Any = resend.Webhooks.verify(
        {"payload": got.body, "headers": headers, "webhook_secret": hook["signing_secret"]}  # type: ignore[typeddict-item]
    )
    assert (event["type"], event["data"]["email_id"]) == ("email.bounced", id_)
    assert (event["data"]["to"], event["data"]["bounce"]["type"]) == (["bounced@simulator.test"], "Permanent")
    assert resend.Webhooks.get(hook["id"])["events"] == ["email.bounced"]
    assert resend.Webhooks.get_event(hook["id"], headers["id"])["payload"] == event
    until(lambda: resend.Webhooks.get_event(hook["id"], headers["id"])["status"] == "success")
    resend.Webhooks.remove(hook["id"])


def test_scheduled_and_canceled_events_reach_subscribers(shared_service: Service, receiver: Receiver) -> None:
    events_by_path = {f"/{next(NUMBERS)}": [name] for name in ("email.failed", "email.canceled", "email.scheduled")}
    requested: list[Any] = [
        {"endpoint": receiver.url + path, "events": events} for path, events in events_by_path.items()
    ]
    hooks = [resend.Webhooks.create(fields) for fields in requested]
    canceled = resend.Emails.cancel(send(scheduled_at="in 1 hour"))["id"]
    failed = send(to="failed@simulator.test")

    def events_received() -> dict[str, list[Any]]:
        deliveries = [
            (request.path, json.loads(request.body)) for request in receiver.received if request.path in events_by_path
        ]
        return {
            path: [(b["type"], b["data"]["email_id"]) for at, b in deliveries if at == path] for path in events_by_path
        }

    received = until(lambda: all((now := events_received()).values()) and now)
    expected = [("email.failed", failed), ("email.canceled", canceled), ("email.scheduled", canceled)]
    assert list(received.values()) == [[fields] for fields in expected]
    assert [resend.Webhooks.get(fields["id"])["events"] for fields in hooks] == list(events_by_path.values())
    scheduled = f"/compat/resend/webhooks/{hooks[2]['id']}/events"
    event = shared_service.get(scheduled).json["data"][0]["id"]
    until(lambda: shared_service.get(f"{scheduled}/{event}").json["status"] == "success")
    assert shared_service.post(f"{scheduled}/{event}/replay", {}).status == 200
    until(lambda: len(list(events_received().values())[2]) == 2)
    attempts = until(
        lambda: len((got := shared_service.get(f"{scheduled}/{event}/attempts").json)["data"]) == 2 and got
    )
    assert shared_service.get(f"{scheduled}/{event}/attempts?limit=1").json == attempts | {
        "has_more": True,
        "data": attempts["data"][:1],
    }
    assert shared_service.get(f"{scheduled}/{event}/attempts?after=1").json["data"] == attempts["data"][1:]
    for fields in hooks:
        resend.Webhooks.remove(fields["id"])


def test_user_and_password_of_an_endpoint_are_sent_and_not_shown(shared_service: Service, receiver: Receiver) -> None:
    path = f"/{next(NUMBERS)}"
    endpoint = receiver.url.replace("//", "//me:s3%63r3t@") + path
    hook: Any = resend.Webhooks.create({"endpoint": endpoint, "events": ["email.delivered"]})["id"]
    text = json.dumps(resend.Webhooks.get(hook)) + shared_service.get("/v1/webhooks").raw.decode()
    send()
    got = until(lambda: [request for request in receiver.received if request.path == path])[0]
    resend.Webhooks.remove(hook)
    assert got.headers["authorization"] == "Basic " + base64.b64encode(b"me:s3cr3t").decode()
    assert receiver.url + path in text and "me:" not in text and "cr3t" not in text


# -- Node -------------------------------------------------------------------------------------------------------


def run(*command: str) -> str:
    """Return a function that runs a program whose environment names our service."""
    url = str(resend.api_url)
    moved = {"RESEND_API_URL": url, "RESEND_BASE_URL": url, "RESEND_API_KEY": TOKENS["ACME"]}
    ran = subprocess.run(command, env=os.environ | moved, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("node"), "Resend's library for Node")


def test_the_node_client_gets_the_same_responses(records: ExistingRecords, node: Path) -> None:
    until(lambda: resend.Logs.list()["data"])
    ids = {"email": records.email, "webhook": records.webhook, "event": records.event}
    results = json.loads(run("node", shutil.copy("tests/compat/resend_calls.mjs", str(node)), json.dumps(ids)))
    assert list(results) == [*WORKS, *REFUSED]
    assert {name: answer["error"] for name, answer in results.items() if name in WORKS and answer["error"]} == {}
    for name, (_, kind, reason) in REFUSED.items():
        assert (results[name]["error"]["name"], reason in results[name]["error"]["message"]) == (kind, True), results[
            name
        ]


def test_a_python_program_is_switched_by_environment() -> None:
    assert run(sys.executable, "tests/compat/resend_program.py") == "email.delivered\n"


def test_a_node_program_is_switched_by_environment(node: Path) -> None:
    assert run("node", shutil.copy("tests/compat/resend_program.mjs", str(node))) == "email.delivered\n"


# -- Django -----------------------------------------------------------------------------------------------------


@pytest.fixture
def django(shared_service: Service) -> Iterator[None]:
    with anymail(RESEND_API_URL=f"{resend.api_url}/", RESEND_API_KEY=TOKENS["ACME"]):
        yield


def message(**more: Any) -> AnymailMessage:
    defaults = {"subject": "Hello", "body": "Hello", "from_email": "Acme <hello@acme.test>"}
    connection = get_connection("anymail.backends.resend.EmailBackend")
    return AnymailMessage(**defaults | {"connection": connection, "to": ["Ada <delivered@simulator.test>"]} | more)


@pytest.mark.usefixtures("django")
def test_django_sends_what_anymail_can(shared_service: Service) -> None:
    mail = message(cc=["Bo <bo@simulator.test>"], reply_to=["one@acme.test", "Two <two@acme.test>"])
    mail.attach_alternative("<p>Hello</p>", "text/html")
    mail.attach("a.pdf", PDF, "application/pdf")
    mail.tags, mail.metadata = ["receipt", "ü"], {"order": 17}
    mail.extra_headers["X-Own"] = "yes"
    cid = mail.attach_inline_image(b"\x89PNG\r\n\x1a\n", "logo.png")
    assert mail.send() == 1
    status = mail.anymail_status.recipients["delivered@simulator.test"]
    assert status.status == "queued"
    email = stored(shared_service, status.message_id)
    assert (email["cc"], email["attachments_count"]) == (["bo@simulator.test"], 2)
    assert json.loads(email["headers"]["X-Tags"]) == ["receipt", "ü"] and email["headers"]["X-Own"] == "yes"
    assert cid in [file["content_id"] for file in resend.Emails.Attachments.list(status.message_id)["data"]]


@pytest.mark.usefixtures("django")
def test_django_sends_to_many_one_by_one(shared_service: Service) -> None:
    addresses = [f"m{n}@simulator.test" for n in range(3)]
    mail = message(to=addresses)
    mail.merge_data, mail.merge_metadata = {}, {addresses[0]: {"order": 17}}
    mail.send()
    emails = [stored(shared_service, mail.anymail_status.recipients[to].message_id) for to in addresses]
    assert [email["to_addresses"] for email in emails] == [[to] for to in addresses]
    assert json.loads(emails[0]["headers"]["X-Metadata"]) == {"order": 17}


@pytest.mark.usefixtures("django")
def test_email_scheduled_by_django_is_sent_later() -> None:
    mail = message()
    mail.send_at = datetime.now(UTC) + timedelta(hours=1)
    mail.send()
    assert resend.Emails.get(mail.anymail_status.message_id)["last_event"] == "scheduled"


@pytest.mark.usefixtures("django")
def test_django_receives_the_refusal() -> None:
    with pytest.raises(AnymailAPIError, match="not a verified and approved domain"):
        message(from_email="hello@elsewhere.test").send()


def test_django_receives_events(receiver: Receiver) -> None:
    path = f"/{next(NUMBERS)}"
    hook = resend.Webhooks.create({"endpoint": receiver.url + path, "events": ["email.bounced"]})
    with anymail(RESEND_API_URL=f"{resend.api_url}/", RESEND_API_KEY=TOKENS["ACME"]):
        mail = message(to=["Bo <bounced@simulator.test>"])
        mail.tags, mail.metadata = ["receipt"], {"order": 17}
        mail.send()
    (got,) = until(lambda: [request for request in receiver.received if request.path == path])
    resend.Webhooks.remove(hook["id"])
    with anymail(RESEND_SIGNING_SECRET=hook["signing_secret"]):
        (event,) = track("resend", got.body.encode(), {"Content-Type": got.headers["content-type"], **got.headers})
    assert (event.event_type, event.reject_reason, event.recipient) == ("bounced", "bounced", "bounced@simulator.test")
    assert (event.message_id, event.event_id) == (mail.anymail_status.message_id, got.headers["svix-id"])
    assert (event.tags, event.metadata) == (["receipt"], {"order": 17})


@pytest.mark.parametrize("path", ["/emails", "/emails/receiving", "/logs"])
def test_a_malformed_after_is_refused(shared_service: Service, path: str) -> None:
    answer = send_request(shared_service, "GET", f"{path}?after=nope")
    assert (answer.status, answer.json["name"]) == (422, "validation_error")
    assert answer.json["message"].startswith("after must be an id that begins with ")
    assert send_request(shared_service, "GET", f"{path}?after=&before=").status == 200


def test_a_refused_endpoint_is_named_endpoint(shared_service: Service) -> None:
    refused = send_request(
        shared_service, "POST", "/webhooks", {"endpoint": "http://10.0.0.1/", "events": ["email.bounced"]}
    )
    assert (refused.status, refused.json["message"].partition(":")[0]) == (422, "endpoint")


def test_paging_continues_after_deleted_records(shared_service: Service, receiver: Receiver) -> None:
    hook = {"endpoint": receiver.url, "events": ["email.bounced"]}
    ids = [send_request(shared_service, "POST", "/webhooks", hook).json["id"] for _ in range(3)]
    send_request(shared_service, "DELETE", f"/webhooks/{ids[1]}")
    for query, expected in ((f"after={ids[1]}", [ids[0]]), (f"before={ids[1]}", [ids[2]])):
        webhooks = send_request(shared_service, "GET", f"/webhooks?{query}").json["data"]
        assert [webhook["id"] for webhook in webhooks if webhook["id"] in ids] == expected
    for id_ in (ids[0], ids[2]):
        send_request(shared_service, "DELETE", f"/webhooks/{id_}")
