"""What all of Postmark's answers share: its key, its errors, and the words that its clients read."""

from typing import Any

import msgspec

from heliograph.compat.given import worded
from heliograph.rules import refusals as r
from heliograph.rules.refusals import MissingApiKey, Refusal
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.status import status_of

PREFIX = "/compat/postmark"
INVALID = 300  # whatever is wrong with a mail and has no code of its own
CODES: dict[type[Refusal], int] = {
    r.MissingApiKey: 10,
    r.InvalidApiKey: 10,
    r.InsufficientScope: 10,
    r.ServiceUnavailable: 100,
    r.NoApprovedBrandDomain: 400,
    r.FromDomainUnverified: 400,
    r.KeyDomainScope: 400,
    r.SandboxFromLocked: 400,
    r.InvalidJson: 402,
    r.InvalidRequest: 403,
    r.MissingVariable: 403,
    r.UnknownVariable: 403,
    r.InsufficientCredit: 405,
    r.DirectSendsPaused: 405,
    r.RecipientSuppressed: 406,
    r.UnsupportedMediaType: 409,
    r.UnsupportedAttachmentType: 411,
    r.RecipientNotAllowed: 412,
    r.TeamSuspended: 413,
    r.RateLimitExceeded: 429,
    r.TemplateNotFound: 1101,
    r.WrongTemplateChannel: 1101,
}
FIELDS = {  # ours: Postmark's
    **{name: name.title() for name in ("to", "cc", "bcc", "from", "subject", "headers", "metadata", "attachments")},
    "reply_to": "ReplyTo",
    "html": "HtmlBody",
    "text": "TextBody",
    "tags": "Tag",
    "filename": "Name",
    "content": "Content",
    "content_type": "ContentType",
    "content_id": "ContentID",
    "template_id": "TemplateAlias",
    "variables": "TemplateModel",
}
STATUS = {10: 401, 100: 503, 429: 429}  # by code; all else that is wrong with a mail is 422
KEPT_STATUS = (404, 405, 413, 500)
# Its clients read who it was from these very words.
INACTIVE = (
    "Found inactive addresses: {}. Inactive recipients are ones that have generated a hard bounce, a spam complaint, "
    "or a manual suppression."
)
REFUSED = f"You tried to send to recipient(s) that have been marked as inactive. {INACTIVE}"


def token(request: Request) -> bytes:
    given = request.headers.get(b"x-postmark-server-token")
    if given is None:
        raise MissingApiKey("X-Postmark-Server-Token is missing. Send an API key in it.")
    return given


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    told, status = word(refusal), status_of(type(refusal))
    if told["ErrorCode"] != INVALID or status not in KEPT_STATUS:
        status = STATUS.get(told["ErrorCode"], 422)
    return Response(status, msgspec.json.encode(told), error_headers(refusal))


def word(refusal: Refusal) -> dict[str, Any]:
    details = refusal.details or {}
    code, told = details.get("code") or CODES.get(type(refusal), INVALID), worded(refusal, FIELDS)
    if isinstance(refusal, r.RecipientSuppressed):
        told = REFUSED.format(", ".join(details["addresses"]))
    elif "address" in details:
        field = (refusal.param or "").rpartition(".")[2]  # of a batch it says which mail's, too
        told = f"Invalid '{field.replace('_', '-').title()}' address: '{details['address']}'."
    return {"ErrorCode": code, "Message": told}
