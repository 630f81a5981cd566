"""From a refusal to an HTTP error: its body, type and headers."""

from typing import Any

import msgspec

from heliograph.rules import refusals as r
from heliograph.rules.refusals import Refusal, all_refusals
from heliograph.web.status import status_of

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
IDEMPOTENCY_CODES = ("idempotency_key_reused", "idempotency_request_in_progress")

JSON = b"application/json"
PROBLEM = b"application/problem+json"


def type_of(status: int, code: str) -> str:
    if code in IDEMPOTENCY_CODES:
        return "idempotency_error"
    return TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def error_body(refusal: Refusal, request_id: str, base_url: str, *, problem: bool) -> bytes:
    status = status_of(type(refusal))
    doc_url = f"{base_url}/docs/errors#{refusal.code}"
    body: dict[str, Any]
    if problem:
        body = {
            "type": doc_url,
            "title": refusal.meaning(),
            "status": status,
            "detail": refusal.message,
            "instance": f"urn:heliograph:request:{request_id}",
            "code": refusal.code,
            "param": refusal.param,
            "request_id": request_id,
        }
    else:
        body = {
            "error": {
                "type": type_of(status, refusal.code),
                "code": refusal.code,
                "message": refusal.message,
                "param": refusal.param,
                "details": refusal.details,
                "request_id": request_id,
                "doc_url": doc_url,
            }
        }
    return msgspec.json.encode(body)


def error_headers(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    headers = []
    status = status_of(type(refusal))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(refusal, r.MethodNotAllowed) and refusal.details:
        headers.append((b"allow", ", ".join(refusal.details["allow"]).encode()))
    retry_after = refusal.retry_after
    if retry_after is None and (status in (429, 500, 503) or refusal.code == "idempotency_request_in_progress"):
        retry_after = 1
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % retry_after))
    return headers


def error_list() -> list[dict[str, Any]]:
    """Every code with its status, meaning and fix, for GET /v1/errors and the docs page."""
    return [
        {
            "code": refusal.code,
            "status": status_of(refusal),
            "type": type_of(status_of(refusal), refusal.code),
            "meaning": refusal.meaning(),
            "fix": refusal.fix,
        }
        for refusal in all_refusals()
    ]
