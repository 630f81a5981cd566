"""Postmark's sending API: one mail or up to 500, direct or from a template, with the use case of /v1/emails."""

from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.accept.batch import Fates, send_batch
from heliograph.accept.context import Context
from heliograph.accept.email import EmailRecord, EmailRequest, Shown, prepare_email, send_email
from heliograph.accept.idempotency import send_once
from heliograph.compat.call import Call
from heliograph.compat.normalize import bare, given_as, shown, split_mailboxes, unwrapped
from heliograph.compat.postmark.codec import INACTIVE, word
from heliograph.domain import refusals as r
from heliograph.domain.exports.postmark import find_template, template_id
from heliograph.domain.limits import BATCH_MAX
from heliograph.domain.refusals import InvalidHeader, InvalidRequest, Refusal
from heliograph.domain.sending.acceptance import Acceptance, IdempotencyKey, Sent
from heliograph.domain.setup.records import Caller
from heliograph.templates.policy.values import only_declared
from heliograph.web.bodies import to_request
from heliograph.web.request import Response
from heliograph.web.route import answer_once
from heliograph.webhooks.policy.formats.postmark import TAG

TOO_MANY = 410
DROPPED = INACTIVE.replace("Found", "Message OK, but will not deliver to these", 1)


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
    """A mail. The last three fields are accepted and ignored: nothing is tracked, and there is one stream."""

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
    return await _send(call, given_as(PostmarkMail, call.json))


async def send_with_template(call: Call) -> Response:
    return await _send(call, given_as(PostmarkTemplate, call.json))


async def send_several(call: Call) -> Response:
    if not isinstance(call.json, list):
        raise InvalidRequest("The body must be a list of messages.")
    return await _send_all(call, call.json, PostmarkMail)


async def send_several_with_templates(call: Call) -> Response:
    return await _send_all(call, to_request(call.json, PostmarkTemplates).messages, PostmarkTemplate)


async def _send(call: Call, mail: PostmarkMail) -> Response:
    request, headers = _to_request(call.caller, mail)

    async def story(retry_key: IdempotencyKey | None) -> Sent[EmailRecord]:
        return await send_email(call.context, call.caller, request, retry_key, headers)

    sent = await send_once(call.context, call.caller.key.id, call.retry(), story)
    record = sent.record or msgspec.json.decode(sent.body, type=EmailRecord)  # a replayed response is stored as bytes
    return answer_once(sent, 200, msgspec.json.encode(_told(mail, request, record)))


async def _send_all(call: Call, messages: list[Any], kind: type[PostmarkMail]) -> Response:
    if len(messages) > BATCH_MAX:
        told = f"There are {len(messages)} messages, {BATCH_MAX} is the most."
        raise InvalidRequest(told, details={"code": TOO_MANY})
    given: dict[str, tuple[PostmarkMail, EmailRequest]] = {}  # by message id; prepared mails only

    async def prepare(context: Context, caller: Caller, mail: PostmarkMail) -> Acceptance:
        request, headers = _to_request(caller, mail)
        item = await prepare_email(context, caller, request, shown=headers)
        given[item.id] = mail, request
        return item

    def respond(_: str, told: Fates) -> bytes:
        return msgspec.json.encode(
            [word(one) if isinstance(one, Refusal) else _told(*given[one.id], one.made) for one in told]
        )

    sends = [partial(given_as, kind, message) for message in messages]
    done = await send_batch(
        call.context, call.caller, sends, prepare=prepare, strict=False, respond=respond, retry_key=None
    )
    return Response(200, done.body)


def _told(mail: PostmarkMail, request: EmailRequest, record: EmailRecord) -> dict[str, Any]:
    left = {*record.to_addresses, *record.cc, *record.bcc}
    dropped = [one for one in (*(request.to or ()), *(request.cc or ()), *(request.bcc or ())) if one not in left]
    return {
        "To": mail.to,
        "SubmittedAt": record.created_at,
        "MessageID": record.id,
        "ErrorCode": 0,
        "Message": DROPPED.format(", ".join(dropped)) if dropped else "OK",
    }


def _to_request(caller: Caller, mail: PostmarkMail) -> tuple[EmailRequest, Shown]:
    to, cc = split_mailboxes(mail.to, "to"), split_mailboxes(mail.cc, "cc")
    template: dict[str, Any] = {}
    if isinstance(mail, PostmarkTemplate):
        id_ = _template(caller, mail)
        variables = only_declared(caller.team.templates.get(id_), mail.template_model)
        template = {"template_id": id_, "variables": variables}
    request = EmailRequest(
        from_=mail.from_,
        to=bare(to),
        cc=bare(cc),
        bcc=bare(split_mailboxes(mail.bcc, "bcc")),
        reply_to=bare(split_mailboxes(mail.reply_to, "reply_to")) or None,
        subject=mail.subject,
        html=mail.html_body,
        text=mail.text_body,
        headers=_headers(mail.headers or []),
        attachments=[_attachment(file) for file in mail.attachments or []],
        tags={TAG: mail.tag} if mail.tag else None,
        metadata=mail.metadata,
        **template,
    )
    return request, replace(shown(to, cc), drop_suppressed=True)


def _template(caller: Caller, mail: PostmarkTemplate) -> str:
    given = mail.template_alias or mail.template_id
    if not given:
        raise r.TemplateNotFound(f"TemplateId and TemplateAlias are missing. {r.TemplateNotFound.fix}")
    found = find_template(caller.team.templates, str(given))
    return found.id if found else template_id(str(given))


def _headers(given: list[PostmarkHeader]) -> dict[str, str]:
    headers = {header.name: header.value for header in given}
    if len(headers) < len(given):
        raise InvalidHeader(f"A header is given twice. {InvalidHeader.fix}", param="Headers")
    return headers


def _attachment(file: PostmarkFile) -> dict[str, str | None]:
    return {
        "filename": file.name,
        "content": unwrapped(file.content),
        "content_type": file.content_type,
        "content_id": (file.content_id or "").removeprefix("cid:").strip("<>") or None,
    }
