"""Compatibility API for Postmark, sending: one mail or up to 500, direct or from a template.

Calls the same use case as /v1/emails.
"""

from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.accept.batch import SendResults, send_batch
from heliograph.accept.context import Context
from heliograph.accept.email import EmailRecord, EmailRequest, HeaderOverrides, prepare_email, send_email
from heliograph.accept.idempotency import send_once
from heliograph.compat.call import Call
from heliograph.compat.normalize import addresses_of, header_overrides, parse_request, split_mailboxes, unwrap_base64
from heliograph.compat.postmark.codec import INACTIVE_MESSAGE, to_error
from heliograph.domain import refusals as r
from heliograph.domain.exports.postmark import find_template, template_id
from heliograph.domain.limits import BATCH_MAX
from heliograph.domain.refusals import InvalidHeader, InvalidRequest, Refusal
from heliograph.domain.sending.acceptance import Acceptance
from heliograph.domain.setup.records import Caller
from heliograph.templates.policy.values import keep_declared
from heliograph.web.bodies import to_request
from heliograph.web.request import Response
from heliograph.web.route import send_response
from heliograph.webhooks.policy.formats.postmark import TAG

TOO_MANY_CODE = 410
DROPPED_MESSAGE = INACTIVE_MESSAGE.replace("Found", "Message OK, but will not deliver to these", 1)


class PostmarkHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    name: str
    value: str = ""


class PostmarkFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    name: str
    content: str
    content_type: str | None = None
    content_id: str | None = msgspec.field(default=None, name="ContentID")
    content_length: int | None = None


class PostmarkMail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    """A mail. Tracking fields are ignored. A message stream with the name of a category selects the category."""

    from_: str | None = msgspec.field(default=None, name="From")
    to: str | None = None
    cc: str | None = None
    bcc: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    html_body: str | None = None
    text_body: str | None = None
    headers: list[PostmarkHeader] | None = None
    attachments: list[PostmarkFile] | None = None
    tag: str | None = None
    metadata: dict[str, Any] | None = None
    track_opens: bool | None = None
    track_links: str | None = None
    message_stream: str | None = None


class PostmarkTemplate(PostmarkMail, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    template_id: int | str | None = None
    template_alias: str | None = None
    template_model: dict[str, Any] | None = None
    inline_css: bool | None = None  # accepted and ignored


class PostmarkTemplates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    messages: list[Any]


async def send(call: Call) -> Response:
    return await _send(call, parse_request(PostmarkMail, call.json))


async def send_with_template(call: Call) -> Response:
    return await _send(call, parse_request(PostmarkTemplate, call.json))


async def send_several(call: Call) -> Response:
    if not isinstance(call.json, list):
        raise InvalidRequest("The body must be a list of messages.")
    return await _send_all(call, call.json, PostmarkMail)


async def send_several_with_templates(call: Call) -> Response:
    return await _send_all(call, to_request(call.json, PostmarkTemplates).messages, PostmarkTemplate)


async def _send(call: Call, mail: PostmarkMail) -> Response:
    request, headers = _to_request(call.caller, mail)
    sent = await send_once(
        call.context,
        call.caller.key.id,
        call.keyed_request(),
        lambda idempotency_key: send_email(call.context, call.caller, request, idempotency_key, headers),
    )
    record = sent.record or msgspec.json.decode(sent.body, type=EmailRecord)  # a replayed response is stored as bytes
    return send_response(sent, 200, msgspec.json.encode(_result(mail, request, record)))


async def _send_all(call: Call, messages: list[Any], request_type: type[PostmarkMail]) -> Response:
    if len(messages) > BATCH_MAX:
        reason = f"There are {len(messages)} messages; the maximum is {BATCH_MAX}."
        raise InvalidRequest(reason, details={"code": TOO_MANY_CODE})
    prepared: dict[str, tuple[PostmarkMail, EmailRequest]] = {}  # message id → mail and request, for valid mails only

    async def prepare(context: Context, caller: Caller, mail: PostmarkMail) -> Acceptance:
        request, headers = _to_request(caller, mail)
        item = await prepare_email(context, caller, request, header_overrides=headers)
        prepared[item.id] = mail, request
        return item

    def respond(_: str, results: SendResults) -> bytes:
        return msgspec.json.encode(
            [
                to_error(result) if isinstance(result, Refusal) else _result(*prepared[result.id], result.new_record)
                for result in results
            ]
        )

    parsers = [partial(parse_request, request_type, message) for message in messages]
    sent = await send_batch(
        call.context, call.caller, parsers, prepare=prepare, strict=False, respond=respond, idempotency_key=None
    )
    return Response(200, sent.body)


def _result(mail: PostmarkMail, request: EmailRequest, record: EmailRecord) -> dict[str, Any]:
    remaining = {*record.to_addresses, *record.cc, *record.bcc}
    dropped_addresses = [
        address
        for address in (*(request.to or ()), *(request.cc or ()), *(request.bcc or ()))
        if address not in remaining
    ]
    return {
        "To": mail.to,
        "SubmittedAt": record.created_at,
        "MessageID": record.id,
        "ErrorCode": 0,
        "Message": DROPPED_MESSAGE.format(", ".join(dropped_addresses)) if dropped_addresses else "OK",
    }


def _to_request(caller: Caller, mail: PostmarkMail) -> tuple[EmailRequest, HeaderOverrides]:
    to, cc = split_mailboxes(mail.to, "to"), split_mailboxes(mail.cc, "cc")
    template: dict[str, Any] = {}
    if isinstance(mail, PostmarkTemplate):
        id_ = _template_id(caller, mail)
        variables = keep_declared(caller.team.templates.get(id_), mail.template_model)
        template = {"template_id": id_, "variables": variables}
    request = EmailRequest(
        from_=mail.from_,
        to=addresses_of(to),
        cc=addresses_of(cc),
        bcc=addresses_of(split_mailboxes(mail.bcc, "bcc")),
        reply_to=addresses_of(split_mailboxes(mail.reply_to, "reply_to")) or None,
        subject=mail.subject,
        html=mail.html_body,
        text=mail.text_body,
        headers=_headers(mail.headers or []),
        attachments=[_attachment(file) for file in mail.attachments or []],
        category=mail.message_stream if mail.message_stream in caller.team.record.categories else None,
        tags={TAG: mail.tag} if mail.tag else None,
        metadata=mail.metadata,
        **template,
    )
    return request, replace(header_overrides(to, cc), drop_suppressed=True)


def _template_id(caller: Caller, mail: PostmarkTemplate) -> str:
    name = mail.template_alias or mail.template_id
    if not name:
        raise r.TemplateNotFound(f"TemplateId and TemplateAlias are missing. {r.TemplateNotFound.fix}")
    template = find_template(caller.team.templates, str(name))
    return template.id if template else template_id(str(name))


def _headers(items: list[PostmarkHeader]) -> dict[str, str]:
    headers = {header.name: header.value for header in items}
    if len(headers) < len(items):
        raise InvalidHeader(f"A header occurs twice. {InvalidHeader.fix}", param="Headers")
    return headers


def _attachment(file: PostmarkFile) -> dict[str, str | None]:
    return {
        "filename": file.name,
        "content": unwrap_base64(file.content),
        "content_type": file.content_type,
        "content_id": (file.content_id or "").removeprefix("cid:").strip("<>") or None,
    }
