"""The documented order of checks (contract 2), in pairs: a request that violates two rules gets the first error.

Each table lists checks in order, with a change of the request that violates each. All pairs that one request can have
are sent; changes of the same field to different values exclude each other.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pybase64
import pytest

from tests.api.sends import EMAIL, SMS, VERIFY, WELCOME, WHATSAPP, Body, without
from tests.service import Service

Check = tuple[str, Body]  # code, change that violates the check

FILE = {"filename": "a.txt", "content": "YQ==", "content_type": "text/plain"}
LARGE = FILE | {"content": pybase64.b64encode(bytes(10 * 1024 * 1024 + 1)).decode()}
UNLISTED_PHONE = "+14155550199"


class Clash(Exception):
    """Raised if a request cannot have both changes."""


def merged(item: Body, two: Body) -> Body:
    """Apply both changes: lists and objects are merged, other values must be equal."""
    result = dict(item)
    for name, value in two.items():
        if name not in item:
            result[name] = value
        elif isinstance(value, list) and isinstance(item[name], list):
            result[name] = item[name] + value
        elif isinstance(value, dict) and isinstance(item[name], dict):
            result[name] = merged(item[name], value)
        elif item[name] != value:
            raise Clash
    return result


def replaced(base: Body, break_: Body) -> Body:
    result = base | break_
    if "variables" in break_ and isinstance(base.get("variables"), dict):
        result["variables"] = base["variables"] | break_["variables"]
    return result


SHAPE: Check = ("invalid_request", {"surprise": 1})

EMAIL_FIELDS: list[Check] = [
    SHAPE,
    ("mixed_send_mode", {"template_id": "tpl_welcome", "html": "x"}),
    ("missing_body", {"template_id": None, "text": None, "html": None}),
    ("missing_body", {"template_id": None, "subject": " "}),
    ("invalid_email", {"to": None}),
    ("invalid_email", {"cc": ["nobody"]}),
    ("too_many_recipients", {"bcc": ["a@example.com"] * 51}),
    ("invalid_tags", {"tags": {"a b": "x"}}),
    ("invalid_metadata", {"metadata": {"a": "x" * 5000}}),
    ("invalid_schedule", {"scheduled_at": "soon"}),
    ("subject_too_long", {"subject": "x" * 201}),
    ("invalid_subject", {"subject": "x\ny"}),
    ("invalid_header", {"headers": {"Subject": "x"}}),
    ("too_many_attachments", {"attachments": [FILE] * 21}),
    ("invalid_attachment", {"attachments": [FILE | {"content": "?"}]}),
    ("unsupported_attachment_type", {"attachments": [FILE | {"content_type": "a/b"}]}),
]
EMAIL_BLOCKED: Check = ("recipient_suppressed", {"cc": ["suppressed@simulator.test"]})
EMAIL_STRANGER: Check = ("recipient_not_allowed", {"cc": ["stranger@example.com"]})
EMAIL_NAMES: list[Check] = [
    ("display_name_id_not_found", {"from_display_id": "dn_none"}),
    ("display_name_id_wrong_domain", {"from_display_id": "dn_news"}),
    ("display_name_id_not_approved", {"from_display_id": "dn_pending"}),
    ("display_name_not_approved", {"from": "Evil <hello@acme.test>"}),
]
TEMPLATE: list[Check] = [
    ("template_not_found", {"template_id": "tpl_none"}),
    ("wrong_template_channel", {"template_id": "tpl_offer"}),
    ("missing_variable", {"variables": {"name": None, "parcel": None}}),
    ("unknown_variable", {"variables": {"extra": 1}}),
]
TEMPLATE_FIELDS = [SHAPE, *(check for check in EMAIL_FIELDS[4:] if "subject" not in check[1])]
BROKE_EMAIL = {"to": "a@example.com", "from": "a@broke.test", "template_id": "tpl_broke_email"}
BROKE_SMS = {"to": "+447400123456", "template_id": "tpl_broke_sms", "variables": {"name": "x"}}
BROKE_WHATSAPP = BROKE_SMS | {"template_id": "tpl_broke_whatsapp"}
PHONE: list[Check] = [
    SHAPE,
    ("invalid_phone", {"to": None}),
    ("invalid_phone", {"to": "123"}),
    ("invalid_tags", {"tags": {"a b": "x"}}),
    ("invalid_metadata", {"metadata": {"a": "x" * 5000}}),
    ("invalid_schedule", {"scheduled_at": "soon"}),
    ("template_id_required", {"template_id": None}),
    ("template_id_required", {"template_id": ""}),
]
BRAND: list[Check] = [("brand_domain_not_found", {"brand_domain_id": "dom_none"})]
LONG: Check = ("body_too_long", {"variables": {"note": "x" * 1600}})
SANDBOX_SMS = {"to": "+15005550006", "template_id": "tpl_sandbox_sms", "variables": {"parcel": "x"}}

# path, key, valid request, checks in order; for a check with the change {}, the key alone violates it
TABLES: dict[str, tuple[str, str, Body, list[Check]]] = {
    "emails, direct": (
        "/v1/emails",
        "ACME",
        EMAIL,
        [
            *EMAIL_FIELDS,
            ("invalid_from_address", {"from": "nobody"}),
            ("from_domain_unverified", {"from": "a@example.com"}),
            *EMAIL_NAMES,
            ("body_too_long", {"html": "x" * (5 * 1024 * 1024)}),  # the text has two more
            EMAIL_BLOCKED,
        ],
    ),
    "emails, pinned key": (
        "/v1/emails",
        "ACME_PINNED",
        EMAIL | {"from": "a@news.acme.test"},
        [*EMAIL_FIELDS, ("key_domain_scope", {"from": "Evil <a@acme.test>"}), EMAIL_NAMES[0], EMAIL_BLOCKED],
    ),
    "emails, no domain": (
        "/v1/emails",
        "BARE",
        EMAIL,
        [*EMAIL_FIELDS, ("no_approved_brand_domain", {}), ("", {"from": "nobody"}), ("", EMAIL_BLOCKED[1])],
    ),
    "emails, no domain, template": (
        "/v1/emails",
        "BARE",
        WELCOME,
        [*TEMPLATE_FIELDS, ("no_approved_brand_domain", {}), ("", {"from": "nobody"}), ("", TEMPLATE[0][1])],
    ),
    "emails, template": (
        "/v1/emails",
        "ACME",
        WELCOME,
        [
            *TEMPLATE_FIELDS,
            ("invalid_from_address", {"from": None}),
            *EMAIL_NAMES,
            *TEMPLATE,
            ("body_too_long", {"variables": {"name": "x" * (256 * 1024)}}),
            EMAIL_BLOCKED,
        ],
    ),
    "emails, sandbox": (
        "/v1/emails",
        "SANDBOX",
        without(EMAIL, "from"),
        [
            *EMAIL_FIELDS,
            ("invalid_from_address", {"from": "nobody"}),
            ("sandbox_from_locked", {"from": "Evil <a@acme.test>"}),
            EMAIL_NAMES[0],
            EMAIL_STRANGER,
            EMAIL_BLOCKED,
        ],
    ),
    "emails, sandbox template": (
        "/v1/emails",
        "SANDBOX",
        {"to": "delivered@simulator.test", "template_id": "tpl_sandbox_email"},
        [
            ("template_not_found", {"template_id": "tpl_welcome"}),
            ("wrong_template_channel", {"template_id": "tpl_sandbox_sms"}),
            EMAIL_STRANGER,
            EMAIL_BLOCKED,
        ],
    ),
    "emails, no credit": (
        "/v1/emails",
        "BROKE",
        BROKE_EMAIL,
        [
            *TEMPLATE_FIELDS,
            ("from_domain_unverified", {"from": "a@acme.test"}),
            ("template_not_found", {"template_id": "tpl_none"}),
            ("unknown_variable", {"variables": {"extra": 1}}),
            EMAIL_BLOCKED,
            ("insufficient_credit", {}),
        ],
    ),
    "sms": (
        "/v1/sms",
        "ACME",
        SMS,
        [*PHONE, *TEMPLATE, *BRAND, LONG, ("no_carrier_available", {"to": "+33612345678"})],
    ),
    "sms, no domain": (
        "/v1/sms",
        "BARE",
        {"to": "+15005550006", "template_id": "tpl_bare_sms"},
        [
            *PHONE,
            ("template_not_found", {"template_id": "tpl_none"}),
            ("wrong_template_channel", {"template_id": "tpl_bare_whatsapp"}),
            ("unknown_variable", {"variables": {"extra": 1}}),
            ("no_approved_brand_domain", {}),
            ("", {"brand_domain_id": "dom_none"}),
            ("", {"to": "+33612345678"}),
        ],
    ),
    "sms, pinned key": (
        "/v1/sms",
        "ACME_PINNED",
        SMS,
        [*PHONE, *TEMPLATE, ("key_domain_scope", {"brand_domain_id": "dom_acme"}), LONG],
    ),
    "sms, sandbox": (
        "/v1/sms",
        "SANDBOX",
        SANDBOX_SMS,
        [
            *PHONE,
            *TEMPLATE[2:],
            *BRAND,
            ("body_too_long", {"variables": {"parcel": "x" * 1600}}),
            ("recipient_not_allowed", {"to": "+33612345678"}),  # no carrier serves France either
        ],
    ),
    "sms, no credit": (
        "/v1/sms",
        "BROKE",
        BROKE_SMS,
        [
            *PHONE,
            *TEMPLATE[2:],
            *BRAND,
            ("body_too_long", {"variables": {"name": "x" * 1600}}),
            ("no_carrier_available", {"to": "+33612345678"}),
            ("insufficient_credit", {}),
        ],
    ),
    "whatsapp": (
        "/v1/whatsapp",
        "ACME",
        WHATSAPP,
        [
            *PHONE,
            TEMPLATE[0],
            ("wrong_template_channel", {"template_id": "tpl_sms"}),
            *TEMPLATE[2:],
            *BRAND,
            ("no_carrier_available", {"to": "+15005550007"}),
        ],
    ),
    "whatsapp, no domain": (
        "/v1/whatsapp",
        "BARE",
        {"to": "+15005550006", "template_id": "tpl_bare_whatsapp"},
        [
            *PHONE,
            ("template_not_found", {"template_id": "tpl_none"}),
            ("unknown_variable", {"variables": {"extra": 1}}),
            ("no_approved_brand_domain", {}),
            ("", {"to": "+15005550007"}),
        ],
    ),
    "whatsapp, pinned key": (
        "/v1/whatsapp",
        "ACME_PINNED",
        WHATSAPP,
        [
            *PHONE,
            *TEMPLATE[2:],
            ("key_domain_scope", {"brand_domain_id": "dom_acme"}),
            ("no_carrier_available", {"to": "+15005550007"}),
        ],
    ),
    "whatsapp, sandbox": (
        "/v1/whatsapp",
        "SANDBOX",
        {"to": "+15005550006", "template_id": "tpl_sandbox_whatsapp"},
        [
            *PHONE,
            ("unknown_variable", {"variables": {"extra": 1}}),
            *BRAND,
            ("recipient_not_allowed", {"to": UNLISTED_PHONE}),
        ],
    ),
    "whatsapp, no credit": (
        "/v1/whatsapp",
        "BROKE",
        BROKE_WHATSAPP,
        [
            *PHONE,
            *TEMPLATE[2:],
            *BRAND,
            ("no_carrier_available", {"to": "+15005550007"}),
            ("insufficient_credit", {}),
        ],
    ),
    "verify": (
        "/v1/verify",
        "BARE",
        VERIFY,
        [
            SHAPE,
            ("unsupported_channel", {"channel": "call"}),
            ("invalid_phone", {"to": None}),
            ("invalid_phone", {"to": "123"}),
            ("feature_not_on_plan", {}),
        ],
    ),
    "verify, sandbox without the feature": (
        "/v1/verify",
        "PLAIN",
        VERIFY,
        [("feature_not_on_plan", {}), ("", {"to": UNLISTED_PHONE})],
    ),
    "verify, sandbox": (
        "/v1/verify",
        "NARROW",
        VERIFY,
        [
            ("unsupported_channel", {"channel": "call"}),
            ("recipient_not_allowed", {"to": UNLISTED_PHONE}),  # the team does not allow verifications in this country
        ],
    ),
    "verify, no credit": (
        "/v1/verify",
        "BROKE",
        {"to": "+447400123456"},
        [
            ("unsupported_channel", {"channel": "call"}),
            ("invalid_phone", {"to": "123"}),
            ("verify_rate_limited", {"to": UNLISTED_PHONE}),
            ("insufficient_credit", {}),
        ],
    ),
    "verify check": (
        "/v1/verify/vrf_none/check",
        "ACME",
        {"code": "123456"},
        [SHAPE, ("invalid_code_format", {"code": "1"}), ("verification_not_found", {})],
    ),
}


def pairs(checks: list[Check]) -> Iterator[tuple[str, Body]]:
    """Yield each check alone, then with each later one. A change without a code only accompanies others."""
    for code, break_ in checks:
        if code:
            yield code, break_
    for (code, first), (_, second) in itertools.combinations(checks, 2):
        if code:
            try:
                yield code, merged(first, second)
            except Clash:
                pass


@pytest.mark.parametrize("table", TABLES)
def test_the_first_failing_check_determines_the_error(shared_service: Service, table: str) -> None:
    path, key, valid, checks = TABLES[table]
    failures = []
    for code, break_ in pairs(checks):
        answer = shared_service.post(path, replaced(valid, break_), key=key)
        if answer.code != code:
            failures.append(f"{str(break_)[:300]}: wanted {code}, got {answer.status} {answer.code}")
    assert failures == []


def test_attachment_sizes_are_checked_last(shared_service: Service) -> None:
    def code(**break_: Any) -> str | None:
        return shared_service.post("/v1/emails", EMAIL | break_).code

    odd = FILE | {"content_type": "a/b"}
    largest = [FILE | {"content": pybase64.b64encode(bytes(9 * 1024 * 1024)).decode()}] * 3
    assert code(attachments=[LARGE, odd]) == "unsupported_attachment_type"
    assert code(attachments=[*largest, LARGE][1:]) == "attachment_too_large"
    assert code(attachments=largest, **{"from": "nobody"}) == "attachments_too_large"


def test_marketing_limit_is_checked_before_credit(shared_service: Service) -> None:
    to = "+447400000201"
    assert shared_service.post("/v1/whatsapp", {"to": to, "template_id": "tpl_broke_free"}, key="BROKE").status == 202
    assert (
        shared_service.post("/v1/whatsapp", BROKE_WHATSAPP | {"to": to}, key="BROKE").code == "marketing_limit_reached"
    )


# -- the checks before the channel's own -------------------------------------------------------------------

REQUEST: Body = {"method": "POST", "path": "/v1/sms", "key": "ACME", "headers": {}, "body": SMS}
JSON_TYPE = {"Content-Type": "application/json"}
EVERY_REQUEST: list[Check] = [
    ("not_found", {"path": "/v1/nothing"}),
    ("method_not_allowed", {"method": "PUT"}),
    ("missing_api_key", {"key": None}),
    ("invalid_api_key", {"key": "hk_wrong"}),
    ("team_suspended", {"key": "SUSPENDED_MANAGE"}),  # the key also lacks the scope
    ("insufficient_scope", {"key": "ACME_MANAGE"}),
    ("unsupported_media_type", {"headers": {"Content-Type": "text/plain"}}),
    ("payload_too_large", {"body": b"?" * 65537}),  # no valid JSON either
    ("invalid_json", {"body": b"{"}),
    ("invalid_idempotency_key", {"headers": {"Idempotency-Key": "x" * 256}}),
    ("invalid_request", {"body": {"to": 1}}),
]


def test_request_checks_run_in_order(shared_service: Service) -> None:
    failures = []
    for code, break_ in pairs(EVERY_REQUEST):
        request = REQUEST | break_
        answer = shared_service.ask(
            request["method"], request["path"], request["body"], key=request["key"], headers=request["headers"]
        )
        if answer.code != code:
            failures.append(f"{str(break_)[:200]}: wanted {code}, got {answer.status} {answer.code}")
    assert failures == []


@pytest.mark.parametrize(
    ("break_", "code"), [(b"{", "idempotency_key_reused"), ({"to": 1}, "idempotency_key_reused"), ({}, None)]
)
def test_the_record_is_looked_up_after_json_and_before_validation(
    shared_service: Service, break_: Any, code: str | None
) -> None:
    headers = {"Idempotency-Key": "order of checks"}
    assert shared_service.post("/v1/sms", SMS, headers=headers).status == 202
    body = break_ if isinstance(break_, bytes) else SMS | break_
    answer = shared_service.post("/v1/sms", body, headers=headers)
    assert answer.code == ("invalid_json" if isinstance(break_, bytes) else code)


def test_scope_is_checked_before_the_rate_limit(shared_service: Service) -> None:
    answers = [shared_service.get("/v1/me", key="SLOW_MANAGE") for _ in range(6)]
    assert answers[-1].code == "rate_limit_exceeded"
    assert shared_service.post("/v1/sms", SMS, key="SLOW_MANAGE").code == "insufficient_scope"


def test_rate_limit_is_checked_before_the_media_type(shared_service: Service) -> None:
    headers = {"Content-Type": "text/plain"}
    codes = [shared_service.post("/v1/sms", SMS, key="SLOW_SMS", headers=headers).code for _ in range(6)]
    assert (codes[0], codes[-1]) == ("unsupported_media_type", "rate_limit_exceeded")
