"""Postal's sending API, by the use case of /v1/emails."""

from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.accept.email import EmailRequest, send_email
from heliograph.compat.call import Call
from heliograph.compat.given import bare, given_as, read_mailboxes, shown, unwrapped, worded
from heliograph.rules import refusals as r
from heliograph.rules.limits import EMAIL_BODY_MAX
from heliograph.rules.refusals import MissingApiKey, Refusal
from heliograph.web.bodies import parse_json
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.route import Route, answer
from heliograph.web.status import status_of
from heliograph.web.surface import Surface

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
}
OTHER = "ValidationError"
FIELDS = {"html": "html_body", "text": "plain_body", "filename": "name", "content": "data"}  # ours: Postal's
ANSWERED = 200  # Postal answers a refusal so, and says in the body that it is one


class PostalFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    data: str
    content_type: str | None = None


class PostalMail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: list[str] | None = None
    cc: list[str] | None = None
    bcc: list[str] | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    sender: str | None = None  # the envelope's sender is ours, by which bounces find their message
    subject: str | None = None
    tag: str | None = None
    reply_to: str | None = None
    plain_body: str | None = None
    html_body: str | None = None
    attachments: list[PostalFile] | None = None
    headers: dict[str, str] | None = None
    bounce: bool | None = None


async def send(call: Call) -> Response:
    mail = given_as(PostalMail, call.json)
    to, cc = read_mailboxes(mail.to or [], "to"), read_mailboxes(mail.cc or [], "cc")
    request = EmailRequest(
        from_=mail.from_,
        to=bare(to),
        cc=bare(cc),
        bcc=bare(read_mailboxes(mail.bcc or [], "bcc")),
        reply_to=bare(read_mailboxes([mail.reply_to], "reply_to")) if mail.reply_to else None,
        subject=mail.subject,
        html=mail.html_body,
        text=mail.plain_body,
        headers=mail.headers,
        attachments=[
            {"filename": file.name, "content": unwrapped(file.data), "content_type": file.content_type}
            for file in mail.attachments or []
        ],
        tags={"tag": mail.tag} if mail.tag else None,
    )
    record = (await send_email(call.context, call.caller, request, None, shown(to, cc))).made
    sent = {"id": record.id, "token": record.id}
    messages = dict.fromkeys([*record.to_addresses, *record.cc, *record.bcc], sent)
    return replace(_envelope("success", {"message_id": record.id, "messages": messages}), made=record.id)


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
    elif isinstance(refusal, r.InvalidEmail) and not refusal.details:
        code = "NoRecipients"
    kept = status if status in (404, 405, 413, 429) or status >= 500 else ANSWERED
    told = _envelope("error", {"code": code, "message": worded(refusal, FIELDS)})
    return Response(kept, told.body, error_headers(refusal))


def _envelope(status: str, data: dict[str, Any]) -> Response:
    return answer({"status": status, "time": 0.0, "flags": {}, "data": data})


POSTAL = Surface(
    prefix=PREFIX,
    routes=(
        Route(
            method="POST",
            path=f"{PREFIX}/api/v1/send/message",
            call=send,
            summary="POST /api/v1/send/message",
            scopes=("send",),
            body=PostalMail,
            body_max=EMAIL_BODY_MAX,
        ),
    ),
    token=token,
    check_media_type=Request.check_media_type,
    parse=parse_json,
    error=error,
)
