"""Format of the compatibility API for Postal: errors and the response envelope."""

from typing import Any

from heliograph.compat.normalize import with_client_field_names
from heliograph.domain import refusals as r
from heliograph.domain.refusals import MissingApiKey, Refusal
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.route import json_response
from heliograph.web.status import status_of

PREFIX = "/compat/postal"
TOO_MANY_CODE_BY_FIELD = {"to": "TooManyToAddresses", "cc": "TooManyCCAddresses", "bcc": "TooManyBCCAddresses"}
CODE_BY_REFUSAL: dict[type[Refusal], str] = {
    r.MissingApiKey: "AccessDenied",
    r.InvalidApiKey: "InvalidServerAPIKey",
    r.WrongCell: "InvalidServerAPIKey",
    r.InsufficientScope: "AccessDenied",
    **dict.fromkeys((*r.NOT_PERMITTED, r.KeyLimitReached), "AccessDenied"),
    r.TeamSuspended: "ServerSuspended",
    r.MissingBody: "NoContent",
    r.InvalidFromAddress: "FromAddressMissing",
    r.NoApprovedBrandDomain: "UnauthenticatedFromAddress",
    r.FromDomainUnverified: "UnauthenticatedFromAddress",
    r.KeyDomainScope: "UnauthenticatedFromAddress",
    r.SandboxFromLocked: "UnauthenticatedFromAddress",
    r.MessageNotFound: "MessageNotFound",
}
DEFAULT_ERROR_CODE = "ValidationError"
# our field name → Postal's
CLIENT_FIELD_NAMES = {"html": "html_body", "text": "plain_body", "filename": "name", "content": "data"}
ERROR_STATUS = 200  # Postal's status for all errors; only the body shows the error


def token(request: Request) -> bytes:
    key = request.headers.get(b"x-server-api-key")
    if key is None:
        raise MissingApiKey("The header X-Server-API-Key is missing. Send an API key in this header.")
    return key


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    status = status_of(type(refusal))
    code = CODE_BY_REFUSAL.get(type(refusal), DEFAULT_ERROR_CODE)
    if isinstance(refusal, r.TooManyRecipients):
        code = TOO_MANY_CODE_BY_FIELD.get(refusal.param or "", DEFAULT_ERROR_CODE)
    elif isinstance(refusal, r.InvalidEmail) and not refusal.details and refusal.param != "reply_to":
        code = "NoRecipients"
    is_protocol_error = status in (404, 405, 413, 421, 429) and not isinstance(refusal, r.MessageNotFound)
    http_status = status if is_protocol_error or status >= 500 else ERROR_STATUS
    body = envelope("error", {"code": code, "message": with_client_field_names(refusal, CLIENT_FIELD_NAMES)})
    return Response(http_status, body.body, error_headers(refusal))


def envelope(status: str, data: Any) -> Response:
    return json_response({"status": status, "time": 0.0, "flags": {}, "data": data})
