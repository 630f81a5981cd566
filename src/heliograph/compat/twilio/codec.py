"""Format of the compatibility API for Twilio: Basic auth with our key, form bodies, errors, two time formats."""

import binascii
from base64 import b64decode
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec

from heliograph.compat.normalize import with_client_field_names
from heliograph.domain import refusals as r
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.refusals import Refusal
from heliograph.web.errors import error_headers
from heliograph.web.forms import check_content_type, read_form
from heliograph.web.request import Request, Response
from heliograph.web.status import status_of

PREFIX = "/compat/twilio"
VERIFY = f"{PREFIX}/v2/Services"
VERSION = "2010-04-01"  # version of the Messages API, in its paths


# refusal → Twilio's (status, code); others keep our status, and their code is 20000 plus the status
CODE_BY_REFUSAL: dict[type[Refusal], tuple[int, int]] = {
    r.MissingApiKey: (401, 20003),
    r.InvalidApiKey: (401, 20003),
    r.WrongCell: (421, 20003),
    r.InsufficientScope: (403, 20003),
    r.TeamSuspended: (403, 20005),
    r.InsufficientCredit: (400, 20005),
    r.MethodNotAllowed: (405, 20004),
    r.InvalidRequest: (400, 20001),
    r.InvalidPhone: (400, 21211),
    r.InvalidEmail: (400, 60200),
    r.RecipientNotAllowed: (403, 21608),
    r.RecipientSuppressed: (400, 21610),
    r.RecipientOptedOut: (400, 21610),
    r.NoCarrierAvailable: (503, 21612),
    r.BodyTooLong: (400, 21617),
    r.InvalidSchedule: (400, 35111),
    r.TemplateIdRequired: (400, 21654),
    r.TemplateNotFound: (400, 21655),
    r.WrongTemplateChannel: (400, 21655),
    r.TemplateUnavailable: (400, 63040),
    r.MissingVariable: (400, 21656),
    r.UnknownVariable: (400, 21656),
    r.ListTooLong: (400, 21656),
    r.InvalidVariable: (400, 21656),
    r.UnsupportedChannel: (403, 60223),
    r.InvalidCodeFormat: (400, 60200),
    r.VerifyRateLimited: (429, 60203),
    r.VerificationNotFound: (404, 20404),
}
CODE_BY_DETAIL = {  # detail or parameter of a refusal → Twilio's (status, code), if one refusal has several codes there
    "country": (403, 60410),
    "checks": (429, 60202),
    "StatusCallback": (400, 21609),
    "ContentVariables": (400, 21656),
}
CLIENT_FIELD_NAMES = {  # our field name → Twilio's
    "to": "To",
    "channel": "Channel",
    "code": "Code",
    "locale": "Locale",
    "template_id": "ContentSid",
    "variables": "ContentVariables",
    "scheduled_at": "SendAt",
    "expires_at": "ValidityPeriod",
}
INVALID_PARAMETER = (400, 60200)  # (status, code) of Twilio Verify for an invalid phone number


def token(request: Request) -> bytes:
    scheme, separator, _, password = _credentials(request)
    if scheme != b"basic" or not separator:
        raise r.MissingApiKey("Use Basic auth with any account SID as the user name and your key hk_… as the password.")
    return password


def account_sid(request: Request) -> str:
    """Return the account SID in the request, which responses repeat."""
    return _credentials(request)[2].decode("utf-8", "replace")


def _credentials(request: Request) -> tuple[bytes, bytes, bytes, bytes]:
    """Return scheme (lower case), separator (empty if missing), user and password of the Authorization header."""
    scheme, _, encoded = request.headers.get(b"authorization", b"").partition(b" ")
    try:
        user, separator, password = b64decode(encoded.strip(), validate=True).partition(b":")
    except binascii.Error:
        user = separator = password = b""
    return scheme.lower(), separator, user, password


def parse(raw: bytes) -> dict[str, str]:
    return read_form("", raw)[0]


def check_media_type(request: Request) -> None:
    check_content_type(request.headers.get(b"content-type", b"").decode("latin-1"), files=False)


# path segment of an unsupported call (the last match counts) → reason
UNSUPPORTED = {
    "Services": "Each team is one service: any VA… SID refers to it. Change its settings in the dashboard.",
    "Attempts": "Not supported here. List verifications in the dashboard or with GET /v1/verify.",
    "RateLimits": "Not supported here. The team's limits are in the dashboard.",
    "MessagingConfigurations": "Not supported here. The team's senders are in the dashboard.",
    "Webhooks": "Not supported here. Create webhooks in the dashboard or with POST /v1/webhooks.",
    "Templates": "Not supported here. List templates in the dashboard or with GET /v1/templates.",
    "SafeList": "Not supported: the team's limits apply to every number. They are in the dashboard.",
    "Entities": "Not supported: one-time codes are the only factor.",
    "AccessTokens": "Not supported: one-time codes are the only factor.",
    "Forms": "Not supported: one-time codes are the only factor.",
    "Media": "Media are not supported: messages are text only.",
    "Feedback": "Feedback is not supported: the carrier reports the result of a message.",
    "Accounts": "Not supported here. GET /v1/me returns the team.",
    "Balance": "Not supported here. GET /v1/me returns the team's credit.",
    "Usage": "Not supported here. Usage is in the dashboard.",
    "IncomingPhoneNumbers": "Not supported: numbers belong to carriers, which an operator configures.",
    "Calls": "Voice calls are not supported.",
}


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    """Return a refusal in Twilio's error format.

    The body has no `type` and `title`, because Twilio's libraries would then expect another format.
    """
    status = status_of(type(refusal))
    status, code = CODE_BY_REFUSAL.get(type(refusal), (status, 20000 + status))
    for name in (*(refusal.details or {}), refusal.param):
        status, code = CODE_BY_DETAIL.get(name or "", (status, code))
    if isinstance(refusal, r.InvalidPhone) and request.path.startswith(VERIFY):
        status, code = INVALID_PARAMETER
    code = (refusal.details or {}).get("code", code)
    doc = f"{base_url}/docs/errors#{refusal.code}"
    message = with_client_field_names(refusal, CLIENT_FIELD_NAMES)
    if isinstance(refusal, r.NotFound | r.MethodNotAllowed):
        message = unsupported_reason(request.path) or message
    body: dict[str, Any] = {"code": code, "message": message, "more_info": doc, "status": status}
    return Response(status, msgspec.json.encode(body), error_headers(refusal))


def unsupported_reason(path: str) -> str | None:
    parts = [part.removesuffix(".json") for part in path.split("/")]
    return next((UNSUPPORTED[part] for part in reversed(parts) if part in UNSUPPORTED), None)


def iso_time(ms: int) -> str:
    """Return a time in Verify's format, without milliseconds, which Twilio's library cannot parse."""
    return f"{_to_datetime(ms):%Y-%m-%dT%H:%M:%SZ}"


def mail_time(ms: int | None) -> str | None:
    """Return a time in the format of the Messages API, as in the Date header of a mail."""
    return None if ms is None else format_datetime(_to_datetime(ms))


def _to_datetime(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // SECOND_MS, UTC)
