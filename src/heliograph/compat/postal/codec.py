"""Postal's API format: errors and the response envelope."""

from typing import Any

from heliograph.compat.normalize import worded
from heliograph.domain import refusals as r
from heliograph.domain.refusals import MissingApiKey, Refusal
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.route import answer
from heliograph.web.status import status_of

PREFIX = "/compat/postal"
TOO_MANY = {"to": "TooManyToAddresses", "cc": "TooManyCCAddresses", "bcc": "TooManyBCCAddresses"}
CODES: dict[type[Refusal], str] = {
    r.MissingApiKey: "AccessDenied",
    r.InvalidApiKey: "InvalidServerAPIKey",
    r.InsufficientScope: "AccessDenied",
    r.TeamSuspended: "ServerSuspended",
    r.MissingBody: "NoContent",
    r.InvalidFromAddress: "FromAddressMissing",
    r.NoApprovedBrandDomain: "UnauthenticatedFromAddress",
    r.FromDomainUnverified: "UnauthenticatedFromAddress",
    r.KeyDomainScope: "UnauthenticatedFromAddress",
    r.SandboxFromLocked: "UnauthenticatedFromAddress",
    r.MessageNotFound: "MessageNotFound",
}
OTHER = "ValidationError"
FIELDS = {"html": "html_body", "text": "plain_body", "filename": "name", "content": "data"}  # our name → Postal's
ANSWERED = 200  # Postal's HTTP status for refusals; the body reports the error


def token(request: Request) -> bytes:
    given = request.headers.get(b"x-server-api-key")
    if given is None:
        raise MissingApiKey("X-Server-API-Key is missing. Send an API key in it.")
    return given


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    status = status_of(type(refusal))
    code = CODES.get(type(refusal), OTHER)
    if isinstance(refusal, r.TooManyRecipients):
        code = TOO_MANY.get(refusal.param or "", OTHER)
    elif isinstance(refusal, r.InvalidEmail) and not refusal.details and refusal.param != "reply_to":
        code = "NoRecipients"
    is_called_wrongly = status in (404, 405, 413, 429) and not isinstance(refusal, r.MessageNotFound)
    kept = status if is_called_wrongly or status >= 500 else ANSWERED
    told = envelope("error", {"code": code, "message": worded(refusal, FIELDS)})
    return Response(kept, told.body, error_headers(refusal))


def envelope(status: str, data: Any) -> Response:
    return answer({"status": status, "time": 0.0, "flags": {}, "data": data})
