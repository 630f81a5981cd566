"""Reads without sending (contract 12): render, and `dry_run` of each sending endpoint."""

from typing import Any

import pytest

from tests.api.sends import EMAIL, SENDS, SMS, VERIFY, WELCOME, WHATSAPP, Body, assert_refused, idle_me
from tests.service import Service

EMPTY = dict.fromkeys(("subject", "html", "text", "body", "segments", "encoding", "bounds"))


def rendered(service: Service, id_: str, body: Body, key: str = "ACME") -> Any:
    answer = service.post(f"/v1/templates/{id_}/render", body, key=key)
    assert answer.status == 200, answer.raw
    return answer.json


# -- render ------------------------------------------------------------------------------------------------


def test_email_template_is_rendered_in_all_parts(shared_service: Service) -> None:
    assert rendered(shared_service, "tpl_welcome", {"variables": {"name": "<Ada>"}}) == EMPTY | {
        "channel": "email",
        "subject": "Welcome, <Ada>",
        "html": "<p>Hi &lt;Ada&gt;, Acme here.</p>",
        "text": "Hi <Ada>, Acme here.",
        "price": "0.0000",
        "missing": [],
        "unknown": [],
    }


def test_an_sms_template(shared_service: Service) -> None:
    result = rendered(shared_service, "tpl_sms", {"variables": {"parcel": "A1"}, "to": "+14155550123"})
    assert result == EMPTY | {
        "channel": "sms",
        "body": "Acme: parcel A1 is on its way. ",
        "segments": 1,
        "encoding": "gsm7",
        "price": "0.0450",
        "missing": [],
        "unknown": [],
    }


def test_a_whatsapp_template(shared_service: Service) -> None:
    result = rendered(shared_service, "tpl_whatsapp", {"variables": {"parcel": "A1"}})
    assert (result["channel"], result["body"]) == ("whatsapp", "Acme: parcel A1 is on its way.")
    assert (result["segments"], result["encoding"], result["price"]) == (None, None, "0.0300")


@pytest.mark.parametrize(
    ("to", "note", "segments", "encoding", "price"),
    [
        (None, "", 1, "gsm7", "0.0450"),
        ("+447400123456", "", 1, "gsm7", "0.0350"),
        ("+4915112345678", "", 1, "gsm7", "0.0000"),
        ("+18765550123", "x" * 130, 2, "gsm7", "0.0900"),
        ("+447400123456", "ж" * 40, 2, "ucs2", "0.0700"),
        ("+4915112345678", "ж" * 40, 2, "ucs2", "0.0000"),
    ],
)
def test_the_price_is_the_total_for_the_country(
    shared_service: Service, to: str | None, note: str, segments: int, encoding: str, price: str
) -> None:
    result = rendered(shared_service, "tpl_sms", {"variables": {"parcel": "A1", "note": note}, "to": to})
    assert (result["segments"], result["encoding"], result["price"]) == (segments, encoding, price)


def test_missing_and_unknown_variables_are_reported_not_refused(shared_service: Service) -> None:
    result = rendered(shared_service, "tpl_sms", {"variables": {"other": 1, "brand.name": "x"}})
    assert (result["missing"], result["unknown"]) == (["parcel"], ["other", "brand.name"])
    assert result["body"] == "Acme: parcel  is on its way. "
    assert rendered(shared_service, "tpl_sms", {})["missing"] == ["parcel"]


@pytest.mark.parametrize(
    ("id_", "body", "status", "code"),
    [
        ("tpl_none", {}, 404, "template_not_found"),
        ("tpl_poor_sms", {}, 404, "template_not_found"),
        ("tpl_draft", {}, 404, "template_not_found"),
        ("tpl_sms", {"to": "123"}, 400, "invalid_phone"),
        ("tpl_sms", {"to": 1}, 400, "invalid_request"),
        ("tpl_sms", {"variables": []}, 400, "invalid_request"),
        ("tpl_sms", {"variables": {"parcel": [1]}}, 400, "invalid_request"),
        ("tpl_sms", {"surprise": 1}, 400, "invalid_request"),
    ],
)
def test_invalid_renders_are_refused(shared_service: Service, id_: str, body: Body, status: int, code: str) -> None:
    assert_refused(shared_service.post(f"/v1/templates/{id_}/render", body), status, code)


def test_repeated_values_cannot_exceed_the_size_limit(shared_service: Service) -> None:
    """60,000 characters eighteen times; an ampersand has five characters in HTML."""
    for value, status in (("a" * 60_000, 200), ("&" * 60_000, 400)):
        body = {"variables": {"name": value}}
        answer = shared_service.post("/v1/templates/tpl_many/render", body)
        assert (answer.status, answer.code) == (status, None if status == 200 else "body_too_long")
        assert (
            shared_service.post("/v1/emails?dry_run=true", WELCOME | body | {"template_id": "tpl_many"}).status
            == status
        )


# -- dry run -----------------------------------------------------------------------------------------------


def dry(service: Service, path: str, body: Body, key: str = "ACME") -> Any:
    answer = service.post(f"{path}?dry_run=true", body, key=key)
    assert answer.status == 200, answer.raw
    return answer.json


def test_dry_run_of_an_email_returns_recipients_content_and_price(shared_service: Service) -> None:
    extra = {
        "to": ["a@example.com", "b@example.com"],
        "bcc": ["gone@example.com", "c@example.com"],
        "reply_to": "r@acme.test",
        "from_display_id": "dn_support",
    }
    assert dry(shared_service, "/v1/emails", WELCOME | extra) == {
        "dry_run": True,
        "from": "Acme Support <hello@acme.test>",
        "to": ["a@example.com", "b@example.com"],
        "cc": [],
        "bcc": ["c@example.com"],
        "reply_to": "r@acme.test",
        "recipient_count": 3,
        "subject": "Welcome, Ada",
        "html": "<p>Hi Ada, Acme here.</p>",
        "text": "Hi Ada, Acme here.",
        "attachments_count": 0,
        "template_version": 1,
        "layout_version": None,
        "locale": "en",
        "price": "0.0000",
        "sandbox": False,
    }


def test_dry_run_of_an_sms_returns_text_segments_and_price(shared_service: Service) -> None:
    result = dry(shared_service, "/v1/sms", SMS | {"to": "+447400123456"})
    assert (result["dry_run"], result["to"], result["country"]) == (True, "+447400123456", "GB")
    assert (result["body"], result["encoding"], result["segments"]) == ("Acme: parcel A1 is on its way. ", "gsm7", 1)
    assert (result["price"], result["sandbox"], result["template_version"]) == ("0.0350", False, 1)


def test_dry_run_of_a_whatsapp_message_returns_parameters_and_price(shared_service: Service) -> None:
    result = dry(shared_service, "/v1/whatsapp", WHATSAPP | {"to": "+14155550123"})
    assert (result["template"], result["language"], result["parameters"]) == ("parcel", "en", ["A1"])
    assert (result["body"], result["price"]) == ("Acme: parcel A1 is on its way.", "0.0300")


def test_dry_run_of_a_verification_returns_channel_and_price(shared_service: Service) -> None:
    result = dry(shared_service, "/v1/verify", VERIFY | {"to": "+14155550124"})
    assert result == {
        "dry_run": True,
        "to": "+14155550124",
        "channel": "sms",
        "country": "US",
        "locale": "en",
        "price": "0.0500",
        "sandbox": False,
    }


@pytest.mark.parametrize("to", ["+15005550006", "+15005551050"])
def test_magic_recipients_cost_nothing(shared_service: Service, to: str) -> None:
    for path in ("/v1/sms", "/v1/whatsapp", "/v1/verify"):
        assert dry(shared_service, path, SENDS[path] | {"to": to})["price"] == "0.0000"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/emails", EMAIL | {"to": "gone@example.com"}, "recipient_suppressed"),
        ("/v1/emails", EMAIL | {"from": "a@example.com"}, "from_domain_unverified"),
        ("/v1/sms", SMS | {"variables": {}}, "missing_variable"),
        ("/v1/sms", SMS | {"to": "+33612345678"}, "no_carrier_available"),
        ("/v1/whatsapp", WHATSAPP | {"template_id": "tpl_sms"}, "wrong_template_channel"),
        ("/v1/verify", VERIFY | {"channel": "call"}, "unsupported_channel"),
    ],
)
def test_a_dry_run_returns_the_errors_of_the_send(shared_service: Service, path: str, body: Body, code: str) -> None:
    assert shared_service.post(f"{path}?dry_run=true", body).code == code


def test_a_dry_run_checks_credit(shared_service: Service) -> None:
    sms = {"to": "+447400123456", "template_id": "tpl_broke_sms", "variables": {"name": "x"}}
    sends = {
        "/v1/emails": {"to": "a@example.com", "from": "a@broke.test", "template_id": "tpl_broke_email"},
        "/v1/sms": sms,
        "/v1/whatsapp": sms | {"template_id": "tpl_broke_whatsapp"},
        "/v1/verify": {"to": "+447400123456"},
    }
    for path, body in sends.items():
        answer = shared_service.post(f"{path}?dry_run=true", body, key="BROKE")
        assert_refused(answer, 400, "insufficient_credit")


def test_a_dry_run_checks_velocity_limits(shared_service: Service) -> None:
    answer = shared_service.post("/v1/verify?dry_run=true", {"to": "+14155550100"}, key="NARROW")
    assert_refused(answer, 429, "verify_rate_limited")


def test_a_dry_run_and_a_rendering_write_nothing(shared_service: Service) -> None:
    def stored_state() -> Any:
        newest = [shared_service.get(f"{path}?limit=1").json["data"] for path in SENDS]
        return idle_me(shared_service, "ACME"), [[item["id"] for item in page] for page in newest]

    before = stored_state()
    for path, body in SENDS.items():
        to = "someone@example.com" if path == "/v1/emails" else "+14155550124"
        for _ in range(3):
            dry(shared_service, path, body | {"to": to})
    rendered(shared_service, "tpl_sms", {"to": "+14155550124"})
    assert stored_state() == before


def test_dry_run_false_sends(shared_service: Service) -> None:
    for path, body in SENDS.items():
        assert shared_service.post(f"{path}?dry_run=false", body).status == 202
