"""POST /v1/whatsapp: response (spec 2.4) and each error of spec 7.3."""

import re

import pytest

from tests.api.sends import WHATSAPP, Body, assert_refused, without
from tests.service import Service

UNLISTED_PHONE = "+14155550199"


def test_send_returns_the_documented_record(shared_service: Service) -> None:
    answer = shared_service.post("/v1/whatsapp", WHATSAPP)
    assert answer.status == 202
    record = answer.json
    assert tuple(record) == ("id", "to", "status", "sandbox", "created_at")
    assert re.fullmatch("wam_[0-9A-HJKMNP-TV-Z]{26}", record["id"])
    assert without(record, "id", "created_at") == {"to": "+15005550006", "status": "sending", "sandbox": False}


ROWS: list[tuple[str, Body, int, str]] = [
    ("ACME", {"to": "14155550123"}, 400, "invalid_phone"),
    ("ACME", {"to": "+1 415 555 0123"}, 400, "invalid_phone"),
    ("ACME", {"template_id": None}, 400, "template_id_required"),
    ("ACME", {"template_id": "tpl_none"}, 404, "template_not_found"),
    ("ACME", {"template_id": "tpl_poor_whatsapp"}, 404, "template_not_found"),
    ("ACME", {"template_id": "tpl_welcome"}, 409, "wrong_template_channel"),
    ("ACME", {"template_id": "tpl_sms"}, 409, "wrong_template_channel"),
    ("ACME", {"variables": {}}, 422, "missing_variable"),
    ("ACME", {"variables": {"parcel": "x", "other": "y"}}, 422, "unknown_variable"),
    ("ACME", {"text": "raw text"}, 400, "invalid_request"),
    ("ACME", {"brand_domain_id": "dom_none"}, 404, "brand_domain_not_found"),
    ("ACME_PINNED", {"brand_domain_id": "dom_acme"}, 403, "key_domain_scope"),
    ("BARE", {"template_id": "tpl_bare_whatsapp", "variables": None}, 403, "no_approved_brand_domain"),
    ("SANDBOX", {"template_id": "tpl_none", "to": UNLISTED_PHONE}, 404, "template_not_found"),
    ("ACME", {"to": "+15005550007"}, 503, "no_carrier_available"),
    (
        "BROKE",
        {"to": UNLISTED_PHONE, "template_id": "tpl_broke_whatsapp", "variables": {"name": "x"}},
        400,
        "insufficient_credit",
    ),
]


@pytest.mark.parametrize(("key", "extra", "status", "code"), ROWS)
def test_a_send_is_refused(shared_service: Service, key: str, extra: Body, status: int, code: str) -> None:
    assert_refused(shared_service.post("/v1/whatsapp", WHATSAPP | extra, key=key), status, code)


def test_a_sandbox_team_reaches_only_allowed_recipients(shared_service: Service) -> None:
    body = {"template_id": "tpl_sandbox_whatsapp"}
    refused = shared_service.post("/v1/whatsapp", body | {"to": UNLISTED_PHONE}, key="SANDBOX")
    assert_refused(refused, 403, "recipient_not_allowed", "to")
    for to in ("+447400123456", "+15005550006"):
        assert shared_service.post("/v1/whatsapp", body | {"to": to}, key="SANDBOX").status == 202


def test_a_sandbox_team_without_a_domain_uses_the_platform_brand(shared_service: Service) -> None:
    body = {"to": "+15005550006", "template_id": "tpl_sandbox_whatsapp"}
    sent = shared_service.post("/v1/whatsapp?dry_run=true", body, key="SANDBOX").json["body"]
    rendered = shared_service.post("/v1/templates/tpl_sandbox_whatsapp/render", {}, key="SANDBOX").json["body"]
    assert sent == rendered == "Hello from Heliograph at sandbox.heliograph.test"


@pytest.mark.parametrize("value", ["", " ", "a\nb", "a\rb", "a\tb", "a\u2028b", "a     b"])
def test_values_that_meta_does_not_accept_are_refused(shared_service: Service, value: str) -> None:
    body = WHATSAPP | {"template_id": "tpl_branded", "variables": {"parcel": "4711", "place": value}}
    for path in ("/v1/whatsapp", "/v1/whatsapp?dry_run=true"):
        refused = shared_service.post(path, body)
        assert_refused(refused, 400, "invalid_request", "variables")
        assert refused.json["error"]["details"] == {"variables": ["place"]}


@pytest.mark.parametrize(("place", "status"), [(None, 202), ("here", 202), ("", 400)])
def test_an_optional_value_may_be_absent_and_not_empty(shared_service: Service, place: str | None, status: int) -> None:
    variables = {"parcel": "4711"} | ({} if place is None else {"place": place})
    sent = shared_service.post("/v1/whatsapp", WHATSAPP | {"template_id": "tpl_optional", "variables": variables})
    assert sent.status == status, sent.raw


def test_four_consecutive_spaces_are_refused(shared_service: Service) -> None:
    body = WHATSAPP | {"variables": {"parcel": "a    b"}}
    assert shared_service.post("/v1/whatsapp", body).status == 202


@pytest.mark.parametrize(("domain", "brand"), [("dom_acme", "Acme"), ("dom_acme_news", "Acme News")])
def test_the_brand_fills_its_position(shared_service: Service, domain: str, brand: str) -> None:
    variables = {"parcel": "42", "place": "home"}
    body = {"to": "+15005550006", "template_id": "tpl_branded", "brand_domain_id": domain, "variables": variables}
    preview = shared_service.post("/v1/whatsapp?dry_run=true", body).json
    assert (preview["parameters"], preview["body"]) == (["42", brand, "home"], f"Parcel 42 of {brand} is at home.")
    assert shared_service.post("/v1/whatsapp", body).status == 202
    rendered = shared_service.post("/v1/templates/tpl_branded/render", {"variables": body["variables"]}).json
    assert (rendered["missing"], rendered["unknown"]) == ([], [])


@pytest.mark.parametrize(
    ("given", "status", "code", "names"),
    [
        ({"parcel": "42", "place": "x", "brand.name": "PayPal"}, 422, "unknown_variable", ["brand.name"]),
        ({"parcel": "42", "place": "x", "customer": {"brand": {"name": "P"}}}, 422, "unknown_variable", ["brand.name"]),
        ({"brand": {"name": "PayPal"}}, 422, "missing_variable", ["parcel", "place"]),
    ],
)
def test_a_caller_does_not_name_the_brand(
    shared_service: Service, given: Body, status: int, code: str, names: list[str]
) -> None:
    body = {"to": "+15005550006", "template_id": "tpl_branded", "variables": given}
    answer = shared_service.post("/v1/whatsapp", body)
    assert_refused(answer, status, code, "variables")
    assert answer.json["error"]["details"] == {"variables": names}


def test_marketing_is_limited_for_each_recipient(shared_service: Service) -> None:
    offer = {"template_id": "tpl_offer", "to": "+447400000017"}
    assert [shared_service.post("/v1/whatsapp", offer).status for _ in range(2)] == [202, 202]
    answer = shared_service.post("/v1/whatsapp", offer)
    assert_refused(answer, 429, "marketing_limit_reached", "to")
    assert 86_000 < int(answer.headers["retry-after"]) <= 86_400
    assert shared_service.post("/v1/whatsapp", offer | {"to": "+447400000018"}).status == 202
    utility = WHATSAPP | {"to": offer["to"]}
    assert shared_service.post("/v1/whatsapp", utility).status == 202


def test_magic_recipients_have_no_marketing_limit(shared_service: Service) -> None:
    offer = {"template_id": "tpl_offer", "to": "+15005550006"}
    assert {shared_service.post("/v1/whatsapp", offer).status for _ in range(4)} == {202}
