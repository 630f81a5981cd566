"""Errors (contract 1): format, types, problem+json, headers, and the list of all codes."""

import re

import pytest

from tests.api.sends import EMAIL, SENDS, SMS, Body, assert_refused
from tests.service import TOKENS, Answer, Service

REQUEST_ID = re.compile("req_[0-9A-HJKMNP-TV-Z]{26}")

# spec 7.1 to 7.4, then contract 1: code → status
CODES = {
    **dict.fromkeys(
        (
            *("invalid_email", "missing_body", "mixed_send_mode", "sandbox_from_locked", "invalid_from_address"),
            *("display_name_not_approved", "display_name_id_not_found", "display_name_id_wrong_domain"),
            *("display_name_id_not_approved", "unsupported_attachment_type", "invalid_phone", "body_too_long"),
            *("template_id_required", "insufficient_credit"),
            *("invalid_json", "invalid_request", "too_many_recipients", "subject_too_long", "invalid_subject"),
            *("too_many_attachments", "attachment_too_large", "attachments_too_large", "invalid_attachment"),
            *("invalid_idempotency_key", "unsupported_channel", "invalid_code_format"),
            *("invalid_tags", "invalid_metadata", "invalid_header", "invalid_schedule", "invalid_template"),
        ),
        400,
    ),
    **dict.fromkeys(("missing_api_key", "invalid_api_key", "invalid_signature"), 401),
    **dict.fromkeys(
        (
            *("from_domain_unverified", "key_domain_scope", "no_approved_brand_domain", "recipient_not_allowed"),
            *("recipient_suppressed", "feature_not_on_plan", "team_suspended", "insufficient_scope"),
            "direct_sends_paused",  # not in the spec
            "recipient_opted_out",
            "recipient_unsubscribed",
            "restricted_key_required",
            "callback_not_verified",
            *("channel_not_permitted", "sender_not_permitted", "template_not_permitted", "recipient_not_permitted"),
        ),
        403,
    ),
    **dict.fromkeys(
        (
            *("template_not_found", "verification_not_found", "not_found", "message_not_found", "batch_not_found"),
            *("suppression_not_found", "opt_out_not_found", "webhook_not_found", "brand_domain_not_found"),
            *("test_clock_not_found", "team_not_found", "unsubscribe_not_found", "approval_not_found"),
        ),
        404,
    ),
    **dict.fromkeys(("layout_not_found", "received_not_found"), 404),
    "method_not_allowed": 405,
    **dict.fromkeys(
        (
            *("wrong_template_channel", "idempotency_key_reused", "idempotency_request_in_progress"),
            *("already_sending", "already_decided", "verification_ended", "template_unavailable"),
        ),
        409,
    ),
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    **dict.fromkeys(("missing_variable", "unknown_variable", "list_too_long", "invalid_variable"), 422),
    **dict.fromkeys(
        (
            *("rate_limit_exceeded", "verify_rate_limited", "marketing_limit_reached", "sandbox_limit_reached"),
            "key_limit_reached",
            "storage_limit_reached",
        ),
        429,
    ),
    "wrong_cell": 421,
    "internal_error": 500,
    **dict.fromkeys(("no_carrier_available", "service_unavailable"), 503),
}
TYPES = {
    **dict.fromkeys((400, 413, 415, 421, 422), "invalid_request_error"),
    401: "authentication_error",
    403: "permission_error",
    **dict.fromkeys((404, 405), "not_found_error"),
    409: "conflict_error",
    429: "rate_limit_error",
    **dict.fromkeys((500, 503), "api_error"),
}


def type_of(code: str) -> str:
    is_once = code in ("idempotency_key_reused", "idempotency_request_in_progress")
    return "idempotency_error" if is_once else TYPES[CODES[code]]


def test_the_list_has_every_code_of_spec_and_contract(shared_service: Service) -> None:
    answer = shared_service.get("/v1/errors", key=None)
    entries = {entry["code"]: entry for entry in answer.json["data"]}
    assert {code: entry["status"] for code, entry in entries.items()} == CODES
    for code, entry in entries.items():
        assert entry["type"] == type_of(code)
        assert entry["meaning"] and entry["fix"]


def test_every_doc_url_has_an_anchor(shared_service: Service) -> None:
    page = shared_service.get("/docs/errors", key=None).raw.decode()
    for code in CODES:
        assert f'id="{code}"' in page


# a request for each status and type
REQUEST_BY_CODE: dict[str, tuple[str, str, Body | bytes | None, str | None]] = {
    "invalid_request": ("POST", "/v1/sms", {"surprise": 1}, "ACME"),
    "payload_too_large": ("POST", "/v1/sms", b" " * 65537, "ACME"),
    "missing_variable": ("POST", "/v1/sms", SMS | {"variables": {}}, "ACME"),
    "missing_api_key": ("POST", "/v1/sms", SMS, None),
    "invalid_api_key": ("POST", "/v1/sms", SMS, "hk_wrong"),
    "team_suspended": ("POST", "/v1/sms", SMS, "SUSPENDED"),
    "insufficient_scope": ("POST", "/v1/sms", SMS, "ACME_MANAGE"),
    "template_not_found": ("POST", "/v1/sms", SMS | {"template_id": "tpl_none"}, "ACME"),
    "message_not_found": ("GET", "/v1/sms/sms_none", None, "ACME"),
    "batch_not_found": ("GET", "/v1/batches/bat_none", None, "ACME"),
    "suppression_not_found": ("DELETE", "/v1/suppressions/never@example.com", None, "ACME"),
    "verification_not_found": ("GET", "/v1/verify/vrf_none", None, "ACME"),
    "not_found": ("GET", "/v2/sms", None, "ACME"),
    "method_not_allowed": ("PUT", "/v1/sms", SMS, "ACME"),
    "wrong_template_channel": ("POST", "/v1/sms", SMS | {"template_id": "tpl_welcome"}, "ACME"),
    "no_carrier_available": ("POST", "/v1/sms", SMS | {"to": "+15005550007"}, "ACME"),
    "recipient_suppressed": ("POST", "/v1/emails", EMAIL | {"to": "gone@example.com"}, "ACME"),
}


def provoke(service: Service, code: str, **headers: str) -> Answer:
    method, path, body, key = REQUEST_BY_CODE[code]
    answer = service.ask(method, path, body, key=key, headers=headers)
    assert answer.status == CODES[code]
    return answer


@pytest.mark.parametrize("code", REQUEST_BY_CODE)
def test_error_response_has_the_documented_fields(shared_service: Service, code: str) -> None:
    answer = provoke(shared_service, code)
    assert answer.headers["content-type"] == "application/json"
    assert tuple(answer.json) == ("error",)
    error = answer.json["error"]
    assert tuple(error) == ("type", "code", "message", "param", "details", "request_id", "doc_url")
    assert (error["code"], error["type"]) == (code, type_of(code))
    assert REQUEST_ID.fullmatch(error["request_id"])
    assert error["request_id"] == answer.headers["x-request-id"]
    base = f"http://127.0.0.1:{shared_service.ports[-1]}"
    assert error["doc_url"] == f"{base}/docs/errors#{code}"
    assert len(error["message"]) > 20


@pytest.mark.parametrize("accept", ["application/problem+json", "text/html, Application/Problem+JSON;q=0.9"])
@pytest.mark.parametrize("code", REQUEST_BY_CODE)
def test_error_is_problem_json_if_accepted(shared_service: Service, code: str, accept: str) -> None:
    answer = provoke(shared_service, code, Accept=accept)
    plain = provoke(shared_service, code).json["error"]
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert {"type", "title", "status", "detail", "instance", "code", "param", "request_id"} <= problem.keys()
    assert (problem["type"], problem["detail"]) == (plain["doc_url"], plain["message"])
    assert (problem["status"], problem["code"], problem["param"]) == (CODES[code], code, plain["param"])
    assert problem["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "accept",
    [
        "application/problem+json;q=0",
        "application/problem+json; Q=0.000, application/json",
        "application/json, application/problem+json;q=0.5",
        "application/problem+jsonp",
    ],
)
def test_problem_json_is_returned_only_if_preferred(shared_service: Service, accept: str) -> None:
    answer = shared_service.get("/v1/nothing", headers={"Accept": accept})
    assert (answer.status, answer.headers["content-type"], answer.code) == (404, "application/json", "not_found")


def test_a_success_is_never_problem_json(shared_service: Service) -> None:
    answer = shared_service.post("/v1/sms", SMS, headers={"Accept": "application/problem+json"})
    assert (answer.status, answer.headers["content-type"]) == (202, "application/json")


@pytest.mark.parametrize("path", [*SENDS, "/v1/me", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/x"])
def test_every_answer_has_its_own_request_id(shared_service: Service, path: str) -> None:
    ids = {shared_service.get(path).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2
    assert all(map(REQUEST_ID.fullmatch, ids))


@pytest.mark.parametrize("code", ["missing_api_key", "invalid_api_key"])
def test_both_401s_ask_for_a_bearer(shared_service: Service, code: str) -> None:
    assert provoke(shared_service, code).headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/emails", "GET, HEAD, POST"),
        ("/v1/emails/eml_x", "GET, HEAD, PATCH"),
        ("/v1/verify/vrf_x/check", "POST"),
        ("/v1/suppressions/a@b.test", "DELETE, GET, HEAD"),
        ("/v1/me", "GET, HEAD"),
        ("/healthz", "GET, HEAD"),
    ],
)
def test_a_405_lists_the_allowed_methods(shared_service: Service, path: str, allow: str) -> None:
    answer = shared_service.ask("PUT", path)
    assert_refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/emails/", "/v1/emails/a/b", "/v1/verify/x/checks", "//v1/me"]
)
def test_unknown_routes_return_404(shared_service: Service, path: str) -> None:
    assert_refused(shared_service.get(path), 404, "not_found")


# -- the key -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic YTpi", TOKENS["ACME"], f"Token {TOKENS['ACME']}"])
def test_another_scheme_is_a_missing_key(shared_service: Service, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    assert_refused(shared_service.get("/v1/me", key=None, headers=headers), 401, "missing_api_key")


def test_every_invalid_key_gets_the_same_body(shared_service: Service) -> None:
    valid = TOKENS["ACME"]
    invalid = [
        "hk_",
        "x",
        valid[:-1],
        valid + "0",
        valid[:-1] + ("0" if valid[-1] != "0" else "1"),
        valid.lower(),
        "hk_é",
    ]
    bodies = set()
    for token in invalid:
        answer = shared_service.get("/v1/me", key=None, headers={"Authorization": f"Bearer {token}"})
        assert_refused(answer, 401, "invalid_api_key")
        bodies.add(answer.raw.replace(answer.headers["x-request-id"].encode(), b""))
    assert len(bodies) == 1


def test_bearer_is_case_insensitive(shared_service: Service) -> None:
    for word in ("bearer", "BEARER"):
        assert (
            shared_service.get("/v1/me", key=None, headers={"Authorization": f"{word} {TOKENS['ACME']}"}).status == 200
        )


@pytest.mark.parametrize("code", ["no_carrier_available"])
def test_retry_after_is_a_whole_number(shared_service: Service, code: str) -> None:
    assert int(provoke(shared_service, code).headers["retry-after"]) >= 1
