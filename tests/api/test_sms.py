"""POST /v1/sms: response (spec 2.3) and each error of spec 7.2."""

import re

import pytest

from tests.api.sends import SMS, Body, assert_refused, without
from tests.service import Service

UNLISTED_PHONE = "+14155550199"


def test_send_returns_the_documented_record(shared_service: Service) -> None:
    answer = shared_service.post("/v1/sms", SMS)
    assert answer.status == 202
    record = answer.json
    assert tuple(record) == ("id", "to", "status", "sandbox", "created_at")
    assert re.fullmatch("sms_[0-9A-HJKMNP-TV-Z]{26}", record["id"])
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z", record["created_at"])
    assert without(record, "id", "created_at") == {"to": "+15005550006", "status": "sending", "sandbox": False}


def test_sandbox_recipients_are_restricted(shared_service: Service) -> None:
    for to in ("+15005550006", "+447400123456"):
        body = {"to": to, "template_id": "tpl_sandbox_sms", "variables": {"parcel": 7}}
        answer = shared_service.post("/v1/sms", body, key="SANDBOX")
        assert (answer.status, answer.json["sandbox"]) == (202, True)


@pytest.mark.parametrize(
    ("key", "extra", "body"),
    [
        ("ACME", {}, "Acme: parcel A1 is on its way. "),
        ("ACME", {"brand_domain_id": "dom_acme_news"}, "Acme News: parcel A1 is on its way. "),
        ("ACME_PINNED", {}, "Acme News: parcel A1 is on its way. "),
        ("ACME_PINNED", {"brand_domain_id": "dom_acme_news"}, "Acme News: parcel A1 is on its way. "),
    ],
)
def test_brand_of_the_message(shared_service: Service, key: str, extra: Body, body: str) -> None:
    answer = shared_service.post("/v1/sms?dry_run=true", SMS | extra, key=key)
    assert (answer.status, answer.json.get("body")) == (200, body)


def test_a_body_has_at_most_1600_characters(shared_service: Service) -> None:
    fixed = len("Acme: parcel A1 is on its way. ")
    for length, status in ((1600, 202), (1601, 400)):
        note = "x" * (length - fixed)
        answer = shared_service.post("/v1/sms", SMS | {"variables": {"parcel": "A1", "note": note}})
        assert answer.status == status
        assert answer.code in (None, "body_too_long")


ROWS: list[tuple[str, Body, int, str]] = [
    *[
        ("ACME", {"to": to}, 400, "invalid_phone")
        for to in (
            *("14155550123", "4155550123", "+1 415 555 0123", "+1-415-555-0123", "+0123456789", "", "+", "++1415555"),
            *("+123456", "+1234567890123456", "+1415555012a", "+١٤١٥٥٥٥٠١٢٣", "+14155550123\n", " +14155550123", None),
        )
    ],
    ("ACME", {"template_id": None}, 400, "template_id_required"),
    ("ACME", {"template_id": ""}, 400, "template_id_required"),
    ("ACME", {"template_id": "tpl_none"}, 404, "template_not_found"),
    ("ACME", {"template_id": "tpl_poor_sms"}, 404, "template_not_found"),
    ("ACME", {"template_id": "tpl_welcome"}, 409, "wrong_template_channel"),
    ("ACME", {"template_id": "tpl_whatsapp"}, 409, "wrong_template_channel"),
    ("ACME", {"variables": None}, 422, "missing_variable"),
    ("ACME", {"variables": {"note": "x"}}, 422, "missing_variable"),
    ("ACME", {"variables": {"parcel": "x", "other": "y"}}, 422, "unknown_variable"),
    ("ACME", {"variables": {"parcel": "x", "note": "y" * 1600}}, 400, "body_too_long"),
    ("ACME", {"brand_domain_id": "dom_none"}, 404, "brand_domain_not_found"),
    ("ACME", {"brand_domain_id": "dom_acme_new"}, 404, "brand_domain_not_found"),
    ("ACME", {"brand_domain_id": "dom_broke"}, 404, "brand_domain_not_found"),
    ("ACME_PINNED", {"brand_domain_id": "dom_acme"}, 403, "key_domain_scope"),
    ("BARE", {"template_id": "tpl_bare_sms", "variables": None}, 403, "no_approved_brand_domain"),
    ("SANDBOX", {"template_id": "tpl_sandbox_sms", "to": UNLISTED_PHONE}, 403, "recipient_not_allowed"),
    ("ACME", {"to": "+33612345678"}, 503, "no_carrier_available"),
    ("ACME", {"to": "+15005550007"}, 503, "no_carrier_available"),
    (
        "BROKE",
        {"to": UNLISTED_PHONE, "template_id": "tpl_broke_sms", "variables": {"name": "x"}},
        400,
        "insufficient_credit",
    ),
]


@pytest.mark.parametrize(("key", "extra", "status", "code"), ROWS)
def test_a_send_is_refused(shared_service: Service, key: str, extra: Body, status: int, code: str) -> None:
    answer = shared_service.post("/v1/sms", SMS | extra, key=key)
    assert_refused(answer, status, code)
    if status == 503:
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u2003", "\u200b", "\u3164 \u2800", "\ufeff"])
def test_an_empty_text_is_not_sent(shared_service: Service, text: str) -> None:
    body = {"to": "+15005550006", "template_id": "tpl_udh_sms", "variables": {"text": text}}
    for path in ("/v1/sms", "/v1/sms?dry_run=true"):
        assert_refused(shared_service.post(path, body, key="UDH"), 400, "invalid_request", "variables")
    several = shared_service.post("/v1/sms/batch", {"messages": [body]}, key="UDH")
    assert_refused(several, 400, "invalid_request", "messages[0].variables")
