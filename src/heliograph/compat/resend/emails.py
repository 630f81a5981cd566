"""Compatibility API for Resend, emails: send, read, list, reschedule and cancel.

Calls the same use cases as /v1/emails.
"""

from functools import partial
from typing import Any

import msgspec

from heliograph.accept import scheduled
from heliograph.accept.batch import SendResults, send_batch
from heliograph.accept.context import Context
from heliograph.accept.email import EmailRecord, EmailRequest, HeaderOverrides, prepare_email, send_email
from heliograph.accept.idempotency import send_once
from heliograph.accept.scheduled import RescheduleRequest
from heliograph.compat.call import Call
from heliograph.compat.normalize import default_sender, parse_request, with_client_field_names
from heliograph.compat.resend.codec import CLIENT_FIELD_NAMES, cursor_params, list_response, paginate
from heliograph.compat.resend.files import attachment_json
from heliograph.domain.delivery.content import EmailContent, File
from heliograph.domain.delivery.outcome import LocalReason
from heliograph.domain.exports.resend import find_template
from heliograph.domain.ids import PREFIXES, parse_timestamp
from heliograph.domain.mail.address import format_name_addr, parse_name_addr
from heliograph.domain.refusals import InvalidAttachment, InvalidRequest, InvalidTags, MessageNotFound, Refusal
from heliograph.domain.sending.acceptance import Acceptance, IdempotencyKey, SendResult
from heliograph.domain.sending.relative_times import resolve_relative_time
from heliograph.domain.sending.send_options import decode_record, to_name_addr
from heliograph.domain.setup.records import Caller, Template
from heliograph.storage.search.message_search import MessageListRow, MessageRow, RecipientDetails, Search
from heliograph.templates.policy.values import keep_declared
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import json_response, large_json_response, send_response

BATCH_MAX = 100
IDEMPOTENCY_KEY_MAX = 256  # maximum characters
FILE_FIELDS = ("filename", "content", "content_type", "content_id")
DEFAULT_TAG_VALUE = "true"  # value of a tag that has only a name
# our failure reason → Resend's state
_EVENT_BY_REASON: dict[LocalReason, str] = {"canceled": "canceled", "suppressed": "suppressed"}
NAME_MAX = 256  # maximum characters of a recipient's name in lists and events


class ResendTag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: str = DEFAULT_TAG_VALUE


class ResendTemplateUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    variables: dict[str, Any] | None = None


class ResendEmail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All fields that Resend's clients can send."""

    from_: str | None = msgspec.field(default=None, name="from")
    to: str | list[str] | None = None
    cc: str | list[str] | None = None
    bcc: str | list[str] | None = None
    reply_to: str | list[str] | None = None
    subject: str | None = None
    html: str | None = None
    text: str | None = None
    template: ResendTemplateUse | None = None
    headers: dict[str, str] | None = None
    tags: list[ResendTag] | None = None
    scheduled_at: str | None = None
    attachments: list[Any] | None = None
    topic_id: str | None = None


class ResendReschedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scheduled_at: str
    id: str | None = None  # resend-python repeats the path's id here


# -- sending ----------------------------------------------------------------------------------------------------


async def send(call: Call) -> Response:
    async def submit(idempotency_key: IdempotencyKey | None) -> SendResult[EmailRecord]:
        request, header_overrides = _to_email(call, call.json)
        return await send_email(call.context, call.caller, request, idempotency_key, header_overrides)

    sent = await send_once(call.context, call.caller.key.id, call.keyed_request(IDEMPOTENCY_KEY_MAX), submit)
    return send_response(sent, 200, msgspec.json.encode({"id": sent.id}))


async def send_several(call: Call) -> Response:
    mode = call.request.headers.get(b"x-batch-validation", b"strict").decode("latin-1")
    if mode not in ("strict", "permissive"):
        raise InvalidRequest("x-batch-validation must be strict or permissive.", param="x-batch-validation")
    if not isinstance(call.json, list) or not 1 <= len(call.json) <= BATCH_MAX:
        raise InvalidRequest(f"The body must be a list of 1 to {BATCH_MAX} emails.")

    async def submit(idempotency_key: IdempotencyKey | None) -> SendResult[SendResults]:
        return await send_batch(
            call.context,
            call.caller,
            [partial(_to_email, call, email) for email in call.json],
            prepare=_prepare,
            strict=mode == "strict",
            respond=lambda _, results: _batch_response(results, with_errors=mode == "permissive"),
            idempotency_key=idempotency_key,
        )

    return send_response(
        await send_once(call.context, call.caller.key.id, call.keyed_request(IDEMPOTENCY_KEY_MAX), submit), 200
    )


async def _prepare(context: Context, caller: Caller, mail: tuple[EmailRequest, HeaderOverrides]) -> Acceptance:
    return await prepare_email(context, caller, mail[0], header_overrides=mail[1])


def _batch_response(results: SendResults, *, with_errors: bool) -> bytes:
    errors = [
        {"index": n, "message": with_client_field_names(result, CLIENT_FIELD_NAMES)}
        for n, result in enumerate(results)
        if isinstance(result, Refusal)
    ]
    body = {"data": [{"id": result.id} for result in results if not isinstance(result, Refusal)]}
    return msgspec.json.encode(body | ({"errors": errors} if with_errors else {}))


def _to_email(call: Call, value: Any) -> tuple[EmailRequest, HeaderOverrides]:
    """Return the mail as a request to /v1/emails, and the headers with names. The use case validates the request."""
    email, now = parse_request(ResendEmail, value), call.context.clock.team_now(call.team)
    template_use = email.template
    template = find_template(call.caller.team.templates, template_use.id) if template_use else None
    defaults = template or Template(id=template_use.id if template_use else "", team="", channel="email", name="")
    request = EmailRequest(
        from_=email.from_ or (defaults.sender or default_sender(call.caller) if template_use else None),
        to=_addresses(email.to),
        cc=_addresses(email.cc),
        bcc=_addresses(email.bcc),
        reply_to=_addresses(email.reply_to) or _addresses(list(defaults.reply_to)) or None,
        subject=None if template_use else email.subject,
        html=email.html,
        text=email.text,
        template_id=defaults.id if template_use else None,
        variables=keep_declared(template, _lower_names(template_use.variables))
        if template_use and template_use.variables
        else None,
        headers=email.headers,
        category=email.topic_id or None,
        tags=_tags(email.tags) if email.tags else None,
        scheduled_at=resolve_relative_time(email.scheduled_at, now) if email.scheduled_at is not None else None,
        attachments=[_attachment_fields(item, f"attachments[{n}]") for n, item in enumerate(email.attachments or [])]
        or None,
    )
    sender = format_name_addr(*_mailboxes(request.from_)[0]) if request.from_ else None
    header_overrides = HeaderOverrides(
        to=_with_names(email.to),
        cc=_with_names(email.cc),
        subject=email.subject if template_use else None,
        sender=sender,
        named=[
            format_name_addr(name, address)
            for name, address in (*_mailboxes(email.to), *_mailboxes(email.cc))
            if 0 < len(name) <= NAME_MAX
        ],
    )
    return request, header_overrides


def _mailboxes(value: str | list[str] | None) -> list[tuple[str, str]]:
    """Return (name, address) pairs. Invalid addresses are included, and refused by the use case."""
    texts = [value] if isinstance(value, str) else value or []
    parsed = [(text, parse_name_addr(text)) for text in texts]
    return [(mailbox[0] or "", mailbox[1].original) if mailbox else ("", text) for text, mailbox in parsed]


def _addresses(value: str | list[str] | None) -> list[str]:
    return [address for _, address in _mailboxes(value)]


def _with_names(value: str | list[str] | None) -> list[str]:
    return [format_name_addr(name, address) for name, address in _mailboxes(value)]


def _lower_names(variables: dict[str, Any]) -> dict[str, Any]:
    """Return the variables with lower-case names, because Resend allows capital letters and we do not."""
    lowered = {name.lower(): _lower_item_names(value) for name, value in variables.items()}
    if len(lowered) < len(variables):
        raise InvalidRequest("A variable occurs twice, in upper and lower case.", param="template")
    return lowered


def _lower_item_names(value: Any) -> Any:
    return (
        [_lower_names(item) if isinstance(item, dict) else item for item in value] if isinstance(value, list) else value
    )


def _tags(items: list[ResendTag]) -> dict[str, str]:
    tags = {tag.name: tag.value for tag in items}
    if len(tags) < len(items):
        raise InvalidTags("A tag name occurs twice. Tag names must be unique.", param="tags")
    return tags


def _attachment_fields(item: Any, path: str) -> Any:
    if not isinstance(item, dict):
        return item
    if item.get("path") is not None:
        reason = "fetching files is not supported. Send the file as content."
        raise InvalidAttachment(f"{path}.path: {reason}", param=f"{path}.path")
    content = item.get("content")
    if isinstance(content, dict) and content.get("type") == "Buffer":  # a Buffer of Node, encoded as JSON
        content = content.get("data")
    if not isinstance(content, str | None):  # lists of octets have already been converted to base64
        raise InvalidAttachment(f"{path}.content is not a valid file. {InvalidAttachment.fix}", param=f"{path}.content")
    fields = {"content_id": item.get("inline_content_id"), **item, "content": content}
    return {name: fields[name] for name in FILE_FIELDS if fields.get(name) is not None}


# -- sent emails ------------------------------------------------------------------------------------------------


async def read(call: Call) -> Response:
    row, content = await _find_email(call)
    recipients = await _failed_recipients(call, row)
    body: dict[str, Any] = {"html": content.html, "text": content.text}
    if row.content is not None:  # the content has the recipients' names
        sender = format_name_addr(content.from_name, content.from_address)
        body |= {"from": sender, "to": content.to, "cc": content.cc or None}
    return await large_json_response(row.size, lambda: _email_json(call, row, recipients) | body)


async def list_all(call: Call) -> Response:
    limit, after, before = cursor_params(call, "email")
    search = Search(limit=limit, channel="email", before=after or before, oldest_first=before is not None)
    page = await call.context.store.messages.search(call.team, search)
    rows = page.rows[::-1] if before else page.rows
    items = [(row, await _failed_recipients(call, row)) for row in rows]
    octets = sum(len(row.record) for row in rows)
    await call.reserve_memory(octets)
    return await large_json_response(
        octets, lambda: list_response([_email_json(call, *item) for item in items], has_more=page.after is not None)
    )


async def list_attachments(call: Call) -> Response:
    _, content = await _find_email(call)
    files = [_attachment_json(call, n, file) for n, file in enumerate(content.attachments, 1)]
    return json_response(paginate(call, files))


async def read_attachment(call: Call) -> Response:
    _, content = await _find_email(call)
    for n, file in enumerate(content.attachments, 1):
        if str(n) == call.params["attachment"]:
            return json_response({"object": "attachment", **_attachment_json(call, n, file)})
    raise MessageNotFound("The email has no such attachment.", param="attachment")


def _attachment_json(call: Call, number: int, file: File) -> dict[str, Any]:
    return attachment_json(call, call.params["id"], str(number), file)


async def reschedule(call: Call) -> Response:
    body = parse_request(ResendReschedule, call.json)
    request = RescheduleRequest(
        scheduled_at=resolve_relative_time(body.scheduled_at, call.context.clock.team_now(call.team))
    )
    await scheduled.reschedule(call.context, call.caller, "email", call.params["id"], request)
    return json_response({"object": "email", "id": call.params["id"]})


async def cancel(call: Call) -> Response:
    await scheduled.cancel(call.context, call.caller, "email", call.params["id"])
    return json_response({"object": "email", "id": call.params["id"]})


async def _find_email(call: Call) -> tuple[MessageRow, EmailContent]:
    id_ = call.params["id"]
    is_email, store = id_.startswith(PREFIXES["email"]), call.context.store
    row = await store.messages.get_row(call.team, id_, call.reserve_memory) if is_email else None
    if row is None:
        raise MessageNotFound(f"No email {id_[:80]!r}. {MessageNotFound.fix}", param="id")
    if row.content is None:  # the content was deleted by retention
        return row, EmailContent(from_name="", from_address="", to=[], subject="")
    return row, await run_large(row.size, msgspec.json.decode, row.content, type=EmailContent)


async def _failed_recipients(call: Call, row: MessageRow | MessageListRow) -> list[RecipientDetails]:
    """Return the recipients of a failed message, whose details contain the reason; empty if it has not failed."""
    if row.status != "failed":
        return []
    message = await call.context.store.messages.get(call.team, row.id)
    return message.recipients if message else []


def _email_json(call: Call, row: MessageRow | MessageListRow, recipients: list[RecipientDetails]) -> dict[str, Any]:
    record = decode_record(row.record)
    reply_to = record.reply_to_addresses or [record.reply_to] if record.reply_to else None
    return {
        "object": "email",
        "id": row.id,
        "message_id": f"<{row.id}@{record.from_.rpartition('@')[2].lower()}>",
        "to": [to_name_addr(address, record.named) for address in record.to_addresses],
        "from": record.sender_id or record.from_,
        "created_at": record.created_at,
        "subject": record.subject,
        "html": None,
        "text": None,
        "cc": [to_name_addr(address, record.named) for address in record.cc] or None,
        "bcc": record.bcc or None,
        "reply_to": reply_to,
        "last_event": _last_event(row.status, record.scheduled_at, recipients, call.context.clock.team_now(call.team)),
        "scheduled_at": record.scheduled_at,
        "tags": [{"name": name, "value": value} for name, value in record.tags.items()],
    }


def _last_event(status: str, due_at: str | None, recipients: list[RecipientDetails], now: int) -> str:
    if status == "queued":
        return "scheduled" if due_at and (parse_timestamp(due_at) or 0) > now else "queued"
    if status == "failed":
        reasons = [msgspec.json.decode(recipient.detail).get("reason") for recipient in recipients if recipient.detail]
        return next((_EVENT_BY_REASON[reason] for reason in reasons if reason in _EVENT_BY_REASON), "failed")
    return "sent" if status == "sending" else status
