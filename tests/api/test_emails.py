"""POST /v1/emails: response (spec 2.1), names and recipients (spec 4.1.1, 4.1.2), and each error of spec 7.1."""

import re
from typing import Any

import pytest

from tests.api.sends import EMAIL, WELCOME, Body, assert_refused, without
from tests.service import Service

FIELDS = (
    *("id", "to", "to_addresses", "cc", "bcc", "reply_to", "from", "subject", "recipient_count"),
    *("attachments_count", "status", "sandbox", "created_at"),
)
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
FILE = {"filename": "a.txt", "content": "YQ==", "content_type": "text/plain"}
SANDBOXED = without(EMAIL, "from")


def addresses(count: int) -> list[str]:
    return [f"delivered+{i}@simulator.test" for i in range(count)]


# -- what is accepted --------------------------------------------------------------------------------------


def test_a_record_has_every_field(shared_service: Service) -> None:
    answer = shared_service.post("/v1/emails", EMAIL)
    assert answer.status == 202
    record = answer.json
    assert tuple(record) == FIELDS
    assert re.fullmatch("eml_[0-9A-HJKMNP-TV-Z]{26}", record["id"])
    assert TIME.fullmatch(record["created_at"])
    assert without(record, "id", "created_at") == {
        "to": "delivered@simulator.test",
        "to_addresses": ["delivered@simulator.test"],
        "cc": [],
        "bcc": [],
        "reply_to": None,
        "from": "hello@acme.test",
        "subject": "Hello",
        "recipient_count": 1,
        "attachments_count": 0,
        "status": "sending",
        "sandbox": False,
    }


def test_email_with_every_field_is_accepted(shared_service: Service) -> None:
    to, cc, bcc = addresses(2), ["Delivered@simulator.test"], ["delivered+b@simulator.test"]
    extra = {"to": to, "cc": cc, "bcc": bcc, "reply_to": "Ask@acme.test", "attachments": [FILE], "html": "<p>Hi"}
    record = shared_service.post("/v1/emails", EMAIL | extra).json
    assert (record["to"], record["to_addresses"], record["cc"], record["bcc"]) == (to[0], to, cc, bcc)
    assert (record["reply_to"], record["recipient_count"], record["attachments_count"]) == ("Ask@acme.test", 4, 1)


def test_repeated_addresses_stay_and_count(shared_service: Service) -> None:
    twice = ["delivered@simulator.test", "DELIVERED@simulator.test"]
    answer = shared_service.post("/v1/emails", EMAIL | {"to": twice, "cc": twice})
    assert (answer.json["to_addresses"], answer.json["cc"], answer.json["recipient_count"]) == (twice, twice, 4)
    record = shared_service.get(f"/v1/emails/{answer.json['id']}").json
    assert [(r["address"], r["kind"]) for r in record["recipients"]] == [("delivered@simulator.test", "to")]


def test_a_template_sets_the_subject(shared_service: Service) -> None:
    response = shared_service.post("/v1/emails", WELCOME)
    assert (response.status, response.json["subject"]) == (202, "Welcome, Ada")


@pytest.mark.parametrize(
    "variables",
    [{"name": "Ada"}, {"customer.name": "Ada"}, {"customer": {"name": "Ada"}}, {"name": "Ada", "customer.name": "Ada"}],
)
def test_variable_names_may_be_nested_dotted_or_short(shared_service: Service, variables: Body) -> None:
    response = shared_service.post("/v1/emails", WELCOME | {"variables": variables})
    assert (response.status, response.json["subject"]) == (202, "Welcome, Ada")


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (1.5, "1.5"), (True, "true"), ("{{brand.name}}",) * 2])
def test_values_are_converted_to_text_and_not_reparsed(shared_service: Service, value: Any, text: str) -> None:
    response = shared_service.post("/v1/emails", WELCOME | {"variables": {"name": value}})
    assert (response.status, response.json["subject"]) == (202, f"Welcome, {text}")


@pytest.mark.parametrize(
    "extra",
    [
        {"to": addresses(50)},
        {"to": addresses(20), "cc": addresses(20), "bcc": addresses(10)},
        {"subject": "é" * 200},
        {"html": "", "text": " "},
        {"attachments": [FILE] * 20},
        {"cc": [], "bcc": [], "attachments": []},
        {"to": "ünï@exämple.com"},
        {"to": "o'hara+x@example.com"},
    ],
)
def test_limits_are_inclusive(shared_service: Service, extra: Body) -> None:
    answer = shared_service.post("/v1/emails", EMAIL | extra)
    assert answer.status == 202, answer.raw


def test_sandbox_has_the_platform_sender(shared_service: Service) -> None:
    sender = "hello@sandbox.heliograph.test"
    for extra in ({}, {"from": sender}, {"from": f"Heliograph <{sender}>"}, {"to": "Me@Example.com"}):
        answer = shared_service.post("/v1/emails", SANDBOXED | extra, key="SANDBOX")
        assert (answer.status, answer.json["from"], answer.json["sandbox"]) == (202, sender, True)


def test_a_pinned_key_sends_for_its_domain(shared_service: Service) -> None:
    answer = shared_service.post("/v1/emails", EMAIL | {"from": "a@news.acme.test"}, key="ACME_PINNED")
    assert answer.status == 202


# -- the display name (spec 4.1.1), seen in the From header of a dry run -----------------------------------


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({"from": "hello@acme.test"}, "Acme <hello@acme.test>"),
        ({"from": "Hello@ACME.test"}, "Acme <Hello@ACME.test>"),
        ({"from": "Acme <hello@acme.test>"}, "Acme <hello@acme.test>"),
        ({"from": '"Acme" <hello@acme.test>'}, "Acme <hello@acme.test>"),
        ({"from": "acme  SUPPORT <hello@acme.test>"}, "Acme Support <hello@acme.test>"),
        ({"from": "hello@acme.test", "from_display_id": "dn_support"}, "Acme Support <hello@acme.test>"),
        ({"from": "acme support <hello@acme.test>", "from_display_id": "dn_support"}, "Acme Support <hello@acme.test>"),
        ({"from": "The News <hello@acme.test>"}, "The News <hello@acme.test>"),
        ({"from": "a@news.acme.test", "from_display_id": "dn_news"}, "The News <a@news.acme.test>"),
    ],
)
def test_the_from_header_has_an_approved_name(shared_service: Service, given: Body, header: str) -> None:
    answer = shared_service.post("/v1/emails?dry_run=true", EMAIL | given)
    assert (answer.status, answer.json.get("from")) == (200, header)


# -- suppression (spec 4.1.2) ------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["gone@example.com", "GONE@Example.COM"])
@pytest.mark.parametrize("field", ["to", "cc"])
def test_a_suppressed_recipient_refuses_the_send(shared_service: Service, field: str, address: str) -> None:
    before = shared_service.get("/v1/me").json["email_quota"]
    answer = shared_service.post("/v1/emails", EMAIL | {field: ["someone@example.com", address]})
    assert_refused(answer, 403, "recipient_suppressed", field)
    assert answer.json["error"]["message"] == f"Suppressed recipients: {address}"
    assert answer.json["error"]["details"] == {"addresses": [address]}
    assert shared_service.get("/v1/me").json["email_quota"] == before


def test_a_suppressed_bcc_is_dropped_silently(shared_service: Service) -> None:
    bcc = ["Gone@example.com", "delivered+b@simulator.test", "suppressed@simulator.test"]
    answer = shared_service.post("/v1/emails", EMAIL | {"bcc": bcc})
    assert (answer.status, answer.json["bcc"], answer.json["recipient_count"]) == (202, [bcc[1]], 2)
    response = shared_service.get(f"/v1/emails/{answer.json['id']}")
    assert b"gone@example.com" not in response.raw.lower()


def test_a_refusal_never_names_a_bcc_address(shared_service: Service) -> None:
    for key, bcc in (("ACME", "canary@@x"), ("SANDBOX", "canary@example.com")):
        body = {"to": "delivered@simulator.test", "subject": "x", "text": "x", "bcc": [bcc]}
        answer = shared_service.post("/v1/emails", body | ({"from": "a@acme.test"} if key == "ACME" else {}), key=key)
        assert answer.status in (400, 403)
        assert b"canary" not in answer.raw


# -- each row of the error tables --------------------------------------------------------------------------

LIVE = "ACME"
ROWS: list[tuple[str, Body, int, str, str | None]] = [
    # key, difference from a valid direct send, status, code, param
    (LIVE, {"to": "nobody"}, 400, "invalid_email", "to"),
    (LIVE, {"to": []}, 400, "invalid_email", "to"),
    (LIVE, {"to": ""}, 400, "invalid_email", "to"),
    (LIVE, {"to": None}, 400, "invalid_email", "to"),
    (LIVE, {"to": "Ada <ada@example.com>"}, 400, "invalid_email", "to"),
    (LIVE, {"to": '"a b"@example.com'}, 400, "invalid_email", "to"),
    (LIVE, {"to": "a@[127.0.0.1]"}, 400, "invalid_email", "to"),
    (LIVE, {"to": "a@example.com\n"}, 400, "invalid_email", "to"),
    (LIVE, {"to": "a@example.com, b@example.com"}, 400, "invalid_email", "to"),
    (LIVE, {"to": "a" * 65 + "@example.com"}, 400, "invalid_email", "to"),
    (LIVE, {"cc": ["x@@y"]}, 400, "invalid_email", "cc"),
    (LIVE, {"bcc": ["x y@z.test"]}, 400, "invalid_email", "bcc"),
    (LIVE, {"reply_to": "a@b"}, 400, "invalid_email", "reply_to"),
    (LIVE, {"reply_to": "Ada <ada@example.com>"}, 400, "invalid_email", "reply_to"),
    (LIVE, {"subject": None}, 400, "missing_body", "subject"),
    (LIVE, {"subject": ""}, 400, "missing_body", "subject"),
    (LIVE, {"subject": " \t\u3000\n"}, 400, "missing_body", "subject"),
    (LIVE, {"text": "", "html": ""}, 400, "missing_body", None),
    (LIVE, {"text": ""}, 400, "missing_body", None),
    (LIVE, {"text": None}, 400, "missing_body", None),
    (LIVE, {"subject": None, "text": None}, 400, "missing_body", "subject"),
    (LIVE, {"template_id": "tpl_welcome"}, 400, "mixed_send_mode", None),
    (LIVE, {"template_id": "tpl_welcome", "subject": None}, 400, "mixed_send_mode", None),
    (LIVE, {"template_id": "tpl_welcome", "subject": "", "text": None}, 400, "mixed_send_mode", None),
    ("SANDBOX", {}, 400, "sandbox_from_locked", "from"),
    (LIVE, {"from": None}, 400, "invalid_from_address", "from"),
    (LIVE, {"from": "Acme"}, 400, "invalid_from_address", "from"),
    (LIVE, {"from": "Acme <hello@acme.test> x"}, 400, "invalid_from_address", "from"),
    (LIVE, {"from": "Acme\r\nBcc: x@y.test <hello@acme.test>"}, 400, "invalid_from_address", "from"),
    ("SANDBOX", {"from": "not an address"}, 400, "invalid_from_address", "from"),
    (LIVE, {"from": "Evil <hello@acme.test>"}, 400, "display_name_not_approved", "from"),
    (LIVE, {"from": "ACME <hello@acme.test>"}, 400, "display_name_not_approved", "from"),
    (LIVE, {"from": "Acme Pending <hello@acme.test>"}, 400, "display_name_not_approved", "from"),
    (LIVE, {"from": "Аcme Support <hello@acme.test>"}, 400, "display_name_not_approved", "from"),
    (
        LIVE,
        {"from": "The News <hello@acme.test>", "from_display_id": "dn_support"},
        400,
        "display_name_not_approved",
        "from",
    ),
    (LIVE, {"from_display_id": "dn_none"}, 400, "display_name_id_not_found", "from_display_id"),
    (LIVE, {"from_display_id": ""}, 400, "display_name_id_not_found", "from_display_id"),
    (LIVE, {"from_display_id": "dn_news"}, 400, "display_name_id_wrong_domain", "from_display_id"),
    (LIVE, {"from_display_id": "dn_pending"}, 400, "display_name_id_not_approved", "from_display_id"),
    ("BROKE", {"from": "a@broke.test", "from_display_id": "dn_support"}, 400, "display_name_id_not_found", None),
    (LIVE, {"attachments": [FILE | {"content_type": "text/html"}]}, 400, "unsupported_attachment_type", None),
    (LIVE, {"from": "a@example.com"}, 403, "from_domain_unverified", "from"),
    (LIVE, {"from": "a@sub.acme.test"}, 403, "from_domain_unverified", "from"),
    (LIVE, {"from": "a@unapproved.acme.test"}, 403, "from_domain_unverified", "from"),
    (LIVE, {"from": "a@broke.test"}, 403, "from_domain_unverified", "from"),
    ("ACME_PINNED", {}, 403, "key_domain_scope", "from"),
    ("BARE", {}, 403, "no_approved_brand_domain", None),
    ("SANDBOX", {"from": None, "to": "stranger@example.com"}, 403, "recipient_not_allowed", "to"),
    ("SANDBOX", {"from": None, "cc": ["stranger@example.com"]}, 403, "recipient_not_allowed", "cc"),
    ("SANDBOX", {"from": None, "to": "other@simulator.test"}, 403, "recipient_not_allowed", "to"),
    (LIVE, {"to": "gone@example.com"}, 403, "recipient_suppressed", "to"),
    (LIVE, {"to": "suppressed+x@simulator.test"}, 403, "recipient_suppressed", "to"),
    (LIVE, {"to": addresses(51)}, 400, "too_many_recipients", "to"),
    (LIVE, {"cc": addresses(51)}, 400, "too_many_recipients", "cc"),
    (LIVE, {"bcc": addresses(51)}, 400, "too_many_recipients", "bcc"),
    (
        LIVE,
        {"to": addresses(20), "cc": addresses(20), "bcc": ["gone@example.com"] * 11},
        400,
        "too_many_recipients",
        None,
    ),
    (LIVE, {"subject": "é" * 201}, 400, "subject_too_long", "subject"),
    (LIVE, {"subject": "two\nlines"}, 400, "invalid_subject", "subject"),
    (LIVE, {"subject": "x\r\nBcc: a@b.test"}, 400, "invalid_subject", "subject"),
    (LIVE, {"subject": "x\x85y"}, 400, "invalid_subject", "subject"),
    (LIVE, {"subject": "x\0y"}, 400, "invalid_subject", "subject"),
    (LIVE, {"to": "a\0@example.com"}, 400, "invalid_email", "to"),
    (LIVE, {"headers": {"X-A": "\0"}}, 400, "invalid_header", "headers"),
    (LIVE, {"text": "x\0y"}, 400, "invalid_request", "text"),
    (LIVE, {"subject": "x\u2028y"}, 400, "invalid_subject", "subject"),
    (LIVE, {"variables": {"name": "Ada"}}, 400, "invalid_request", "variables"),
]


@pytest.mark.parametrize(("key", "extra", "status", "code", "param"), ROWS, ids=[f"{r[3]}-{r[0]}" for r in ROWS])
def test_direct_sends_are_refused(
    shared_service: Service, key: str, extra: Body, status: int, code: str, param: str | None
) -> None:
    assert_refused(shared_service.post("/v1/emails", EMAIL | extra, key=key), status, code, param)


TEMPLATE_ROWS: list[tuple[Body, int, str, list[str] | None]] = [
    # difference from a valid template send, status, code, details.variables
    ({"template_id": "tpl_none"}, 404, "template_not_found", None),
    ({"template_id": "tpl_draft", "variables": {}}, 404, "template_not_found", None),
    ({"template_id": "tpl_broke_email", "variables": {}}, 404, "template_not_found", None),
    ({"template_id": ""}, 404, "template_not_found", None),
    ({"template_id": "tpl_sms"}, 409, "wrong_template_channel", None),
    ({"template_id": "tpl_whatsapp"}, 409, "wrong_template_channel", None),
    ({"variables": {}}, 422, "missing_variable", ["name"]),
    ({"variables": None}, 422, "missing_variable", ["name"]),
    ({"variables": {"name": None}}, 422, "missing_variable", ["name"]),
    ({"variables": {"name": "x", "a": 1, "b": 2}}, 422, "unknown_variable", ["a", "b"]),
    ({"variables": {"name": "x", "brand.name": "Evil"}}, 422, "unknown_variable", ["brand.name"]),
    ({"variables": {"name": "x", "brand": {"name": "Evil"}}}, 422, "unknown_variable", ["brand.name"]),
    ({"variables": {"name": "two\nlines"}}, 400, "invalid_subject", None),
    ({"variables": {"name": "a", "customer.name": "b"}}, 400, "invalid_request", None),
    ({"variables": {"name": ["a"]}}, 400, "invalid_request", None),
    ({"variables": {"name": {}}}, 400, "invalid_request", None),
    ({"variables": {"name": "x", "a": {}}}, 422, "unknown_variable", ["a"]),
]


@pytest.mark.parametrize(("extra", "status", "code", "names"), TEMPLATE_ROWS)
def test_template_sends_are_refused(
    shared_service: Service, extra: Body, status: int, code: str, names: list[str] | None
) -> None:
    answer = shared_service.post("/v1/emails", WELCOME | extra)
    assert_refused(answer, status, code)
    if names is not None:
        assert answer.json["error"]["details"] == {"variables": names}


def test_a_send_above_the_quota_needs_credit(shared_service: Service) -> None:
    body = {"to": "a@example.com", "from": "a@broke.test", "template_id": "tpl_broke_email"}
    assert_refused(shared_service.post("/v1/emails", body, key="BROKE"), 400, "insufficient_credit")
