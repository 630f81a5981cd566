"""From a refusal to an HTTP error: the only place that knows which status a code has."""

from typing import Any

import msgspec

from heliograph.rules import refusals as r
from heliograph.rules.refusals import Refusal, all_refusals

STATUS: dict[type[Refusal], int] = {
    r.MissingApiKey: 401,
    r.InvalidApiKey: 401,
    r.TeamSuspended: 403,
    r.InsufficientScope: 403,
    r.RateLimitExceeded: 429,
    r.NotFound: 404,
    r.MethodNotAllowed: 405,
    r.PayloadTooLarge: 413,
    r.UnsupportedMediaType: 415,
    r.IdempotencyKeyReused: 409,
    r.IdempotencyRequestInProgress: 409,
    r.DirectSendsPaused: 403,
    r.NoApprovedBrandDomain: 403,
    r.FromDomainUnverified: 403,
    r.KeyDomainScope: 403,
    r.RecipientNotAllowed: 403,
    r.RecipientSuppressed: 403,
    r.TemplateNotFound: 404,
    r.WrongTemplateChannel: 409,
    r.MissingVariable: 422,
    r.UnknownVariable: 422,
    r.BrandDomainNotFound: 404,
    r.NoCarrierAvailable: 503,
    r.MarketingLimitReached: 429,
    r.SandboxLimitReached: 429,
    r.FeatureNotOnPlan: 403,
    r.VerifyRateLimited: 429,
    r.VerificationNotFound: 404,
    r.MessageNotFound: 404,
    r.SuppressionNotFound: 404,
    r.WebhookNotFound: 404,
    r.InternalError: 500,
    r.ServiceUnavailable: 503,
}
DEFAULT_STATUS = 400  # what is wrong with the request itself

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


def status_of(refusal: type[Refusal]) -> int:
    return STATUS.get(refusal, DEFAULT_STATUS)


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
