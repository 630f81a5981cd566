"""Converts a refusal to an HTTP error: type, body and headers."""

from typing import Annotated, Any

import msgspec

from heliograph.domain import refusals as r
from heliograph.domain.field_docs import describe
from heliograph.domain.refusals import Refusal, all_refusals
from heliograph.web.status import status_of

ERROR_TYPE_BY_STATUS = {
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


def error_type(status: int, code: str) -> str:
    if code in IDEMPOTENCY_CODES:
        return "idempotency_error"
    return ERROR_TYPE_BY_STATUS.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


CODE = describe("Stable error code for programs to compare.", enum=[refusal.code for refusal in all_refusals()])
KIND = describe(
    "Kind of error, derived from the status and code.",
    enum=sorted({error_type(status_of(refusal), refusal.code) for refusal in all_refusals()}),
)
Message = Annotated[str, describe("What is wrong and how to fix it.")]
Param = Annotated[str | None, describe("The invalid field or header; null if the error concerns the whole request.")]
RequestId = Annotated[str, describe("Id of the request, as in X-Request-Id.")]
DocUrl = Annotated[str, describe("URL of the documentation of this code.")]


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    type: Annotated[str, KIND]
    code: Annotated[str, CODE]
    message: Message
    param: Param
    details: Annotated[dict[str, Any] | None, describe("Further data that some codes have.")]
    request_id: RequestId
    doc_url: DocUrl


class Error(msgspec.Struct, frozen=True, kw_only=True):
    error: Annotated[ErrorBody, describe("The error.")]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457, for `Accept: application/problem+json`."""

    type: DocUrl
    title: Annotated[str, describe("Meaning of the code.")]
    status: Annotated[int, describe("The HTTP status.")]
    detail: Message
    instance: Annotated[str, describe("This request, as a URN.")]
    code: Annotated[str, CODE]
    param: Param
    request_id: RequestId


def error_body(refusal: Refusal, request_id: str, base_url: str, *, problem: bool) -> bytes:
    error = to_error(refusal, request_id, base_url)
    if not problem:
        return msgspec.json.encode(Error(error=error))
    return msgspec.json.encode(
        Problem(
            type=error.doc_url,
            title=refusal.meaning(),
            status=status_of(type(refusal)),
            detail=error.message,
            instance=f"urn:heliograph:request:{request_id}",
            code=error.code,
            param=error.param,
            request_id=request_id,
        )
    )


def to_error(refusal: Refusal, request_id: str, base_url: str) -> ErrorBody:
    return ErrorBody(
        type=error_type(status_of(type(refusal)), refusal.code),
        code=refusal.code,
        message=refusal.message,
        param=refusal.param,
        details=refusal.details,
        request_id=request_id,
        doc_url=f"{base_url}/docs/errors#{refusal.code}",
    )


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
    headers.append((b"heliograph-should-retry", b"true" if should_retry(status, refusal.code) else b"false"))
    return headers


def should_retry(status: int, code: str) -> bool:
    """Return whether the same request, unchanged, may succeed later."""
    return status in (408, 429) or status >= 500 or code == "idempotency_request_in_progress"


def error_list() -> list[dict[str, Any]]:
    """Return every error code with its status, meaning and fix, for GET /v1/errors and the docs page."""
    return [
        {
            "code": refusal.code,
            "status": status_of(refusal),
            "type": error_type(status_of(refusal), refusal.code),
            "meaning": refusal.meaning(),
            "fix": refusal.fix,
        }
        for refusal in all_refusals()
    ]
