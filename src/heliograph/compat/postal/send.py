"""Compatibility API for Postal, sending; calls the same use case as /v1/emails."""

import msgspec
import pybase64
from msgspec.structs import replace

from heliograph.accept.email import EmailRecord, EmailRequest, HeaderOverrides, send_email
from heliograph.accept.idempotency import send_once
from heliograph.compat.call import Call
from heliograph.compat.normalize import addresses_of, header_overrides, parse_request, read_mailboxes, unwrap_base64
from heliograph.compat.postal.codec import envelope
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.attachments import configured_extra_types
from heliograph.domain.mail.smtp_to_request import parse_submitted
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, MissingBody
from heliograph.domain.sending import idempotency
from heliograph.domain.sending.idempotency import KeyedRequest
from heliograph.web.bodies import submitted_fields, to_request
from heliograph.web.read_budget import run_large
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
    sender: str | None = None  # ignored: our own envelope sender is needed to match bounces to messages
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
    mail_from: str | None = None  # ignored for the same reason as PostalMail.sender
    rcpt_to: list[str] | None = None
    bounce: bool | None = None


async def send(call: Call) -> Response:
    mail = parse_request(PostalMail, call.json)
    to, cc = read_mailboxes(mail.to or [], "to"), read_mailboxes(mail.cc or [], "cc")
    request = EmailRequest(
        from_=mail.from_,
        to=addresses_of(to),
        cc=addresses_of(cc),
        bcc=addresses_of(read_mailboxes(mail.bcc or [], "bcc")),
        reply_to=addresses_of(read_mailboxes([mail.reply_to], "reply_to")) if mail.reply_to else None,
        subject=mail.subject,
        html=mail.html_body,
        text=mail.plain_body,
        headers=mail.headers,
        attachments=[
            {"filename": file.name, "content": unwrap_base64(file.data), "content_type": file.content_type}
            for file in mail.attachments or []
        ],
        tags={"tag": mail.tag} if mail.tag else None,
    )
    sent = await send_email(call.context, call.caller, request, None, header_overrides(to, cc))
    return _sent_response(sent.new_record)


async def send_raw(call: Call) -> Response:
    """Send a complete MIME message, parsed like one submitted by SMTP."""
    mail = parse_request(PostalRaw, call.json)
    if not mail.data:
        raise MissingBody("data is missing. Send the complete message as base64.", param="data")
    try:
        raw = pybase64.b64decode(unwrap_base64(mail.data), validate=True)
    except ValueError:
        raise InvalidRequest("data is not valid base64. Send the complete message as base64.", param="data") from None
    recipients = [parse_address(recipient.address) for recipient in read_mailboxes(mail.rcpt_to or [], "rcpt_to")]
    if not recipients:
        raise InvalidEmail("rcpt_to is missing. Send at least one address.", param="rcpt_to")
    extra_types = configured_extra_types(call.context.store.setup.current.platform, call.caller.team)
    submitted = await run_large(
        len(raw), parse_submitted, raw, [recipient for recipient in recipients if recipient], extra_types
    )
    fields = submitted_fields(submitted)
    request = to_request(fields, EmailRequest)
    header = HeaderOverrides(to=submitted.to, cc=submitted.cc, alternatives=submitted.alternatives)
    key = idempotency.parse_key(submitted.idempotency_keys)
    sent = await send_once(
        call.context,
        call.caller.key.id,
        None if key is None else KeyedRequest(key, call.request.path, fields, len(raw)),
        lambda idempotency_key: send_email(call.context, call.caller, request, idempotency_key, header),
    )
    return _sent_response(sent.new_record)


def _sent_response(record: EmailRecord) -> Response:
    entry = {"id": record.id, "token": record.id}
    messages = dict.fromkeys([*record.to_addresses, *record.cc, *record.bcc], entry)
    return replace(envelope("success", {"message_id": record.id, "messages": messages}), record_id=record.id)
