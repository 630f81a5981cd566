"""Postal's sending API, with the use case of /v1/emails."""

import msgspec
import pybase64
from msgspec.structs import replace

from heliograph.accept.email import EmailRecord, EmailRequest, Shown, send_email
from heliograph.accept.idempotency import send_once
from heliograph.compat.call import Call
from heliograph.compat.normalize import bare, given_as, read_mailboxes, shown, unwrapped
from heliograph.compat.postal.codec import envelope
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.attachments import more_types
from heliograph.domain.mail.smtp_to_request import read_submitted
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, MissingBody
from heliograph.domain.sending import idempotency
from heliograph.domain.sending.idempotency import Retry
from heliograph.web.bodies import submitted_fields, to_request
from heliograph.web.read_budget import work
from heliograph.web.request import Response


class PostalFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    data: str
    content_type: str | None = None


class PostalMail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: list[str] | None = None
    cc: list[str] | None = None
    bcc: list[str] | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    sender: str | None = None  # ignored: our envelope sender matches bounces to messages
    subject: str | None = None
    tag: str | None = None
    reply_to: str | None = None
    plain_body: str | None = None
    html_body: str | None = None
    attachments: list[PostalFile] | None = None
    headers: dict[str, str] | None = None
    bounce: bool | None = None


class PostalRaw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: str | None = None
    mail_from: str | None = None  # ignored like `sender`
    rcpt_to: list[str] | None = None
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
    return _sent((await send_email(call.context, call.caller, request, None, shown(to, cc))).made)


async def send_raw(call: Call) -> Response:
    """Send a complete MIME message, parsed like one submitted by SMTP."""
    mail = given_as(PostalRaw, call.json)
    if not mail.data:
        raise MissingBody("data is missing. Send the whole mail in it, as base64.", param="data")
    try:
        raw = pybase64.b64decode(unwrapped(mail.data), validate=True)
    except ValueError:
        raise InvalidRequest("data is not base64. Send the whole mail in it.", param="data") from None
    recipients = [parse_address(one.address) for one in read_mailboxes(mail.rcpt_to or [], "rcpt_to")]
    if not recipients:
        raise InvalidEmail("rcpt_to is missing. Send at least one address.", param="rcpt_to")
    more = more_types(call.context.store.setup.current.platform, call.caller.team)
    found = await work(len(raw), read_submitted, raw, [one for one in recipients if one], more)
    fields = submitted_fields(found)
    request, names = to_request(fields, EmailRequest), Shown(to=found.to, cc=found.cc, alternatives=found.alternatives)
    key = idempotency.read_key(found.keys)
    sent = await send_once(
        call.context,
        call.caller.key.id,
        None if key is None else Retry(key, call.request.path, fields, len(raw)),
        lambda retry_key: send_email(call.context, call.caller, request, retry_key, names),
    )
    return _sent(sent.made)


def _sent(record: EmailRecord) -> Response:
    one = {"id": record.id, "token": record.id}
    messages = dict.fromkeys([*record.to_addresses, *record.cc, *record.bcc], one)
    return replace(envelope("success", {"message_id": record.id, "messages": messages}), made=record.id)
