"""Resend's emails: send, read, list, reschedule and cancel, with the use cases of /v1/emails."""

from functools import partial
from typing import Any

import msgspec

from heliograph.accept import scheduled
from heliograph.accept.batch import Fates, send_batch
from heliograph.accept.context import Context
from heliograph.accept.email import EmailRecord, EmailRequest, Shown, prepare_email, send_email
from heliograph.accept.idempotency import send_once
from heliograph.accept.scheduled import RescheduleRequest
from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as, own_sender, worded
from heliograph.compat.resend.codec import FIELDS, attachment, counted, ends, listed
from heliograph.compat.resend.files import link
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.outcome import Own
from heliograph.domain.exports.resend import find_template
from heliograph.domain.ids import PREFIXES, parse_timestamp
from heliograph.domain.mail.address import name_addr, parse_name_addr
from heliograph.domain.refusals import (
    InvalidAttachment,
    InvalidRequest,
    InvalidTags,
    MessageNotFound,
    Refusal,
)
from heliograph.domain.sending.acceptance import Acceptance, IdempotencyKey, Sent
from heliograph.domain.sending.relative_times import in_full
from heliograph.domain.sending.send_options import read_record, with_name
from heliograph.domain.setup.records import Caller, Template
from heliograph.storage.search.message_search import MessageLine, MessageRow, RecipientLine, Search
from heliograph.templates.policy.values import only_declared
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_of, answer_once

BATCH_MAX = 100
KEY_MAX = 256  # maximum characters of an Idempotency-Key
FILE_FIELDS = ("filename", "content", "content_type", "content_id")
NO_VALUE = "true"  # value of a tag that only has a name
_TOLD: dict[Own, str] = {"canceled": "canceled", "suppressed": "suppressed"}  # our failure reason → Resend's state
NAME_KEPT = 256  # maximum characters of a recipient's name in lists and events


class ResendTag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: str = NO_VALUE


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


class ResendMove(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scheduled_at: str
    id: str | None = None  # resend-python repeats the id of the path


# -- sending ----------------------------------------------------------------------------------------------------


async def send(call: Call) -> Response:
    async def story(retry_key: IdempotencyKey | None) -> Sent[EmailRecord]:
        request, shown = _to_email(call, call.json)
        return await send_email(call.context, call.caller, request, retry_key, shown)

    sent = await send_once(call.context, call.caller.key.id, call.retry(KEY_MAX), story)
    return answer_once(sent, 200, msgspec.json.encode({"id": sent.id}))


async def send_several(call: Call) -> Response:
    mode = call.request.headers.get(b"x-batch-validation", b"strict").decode("latin-1")
    if mode not in ("strict", "permissive"):
        raise InvalidRequest("x-batch-validation is strict or permissive.", param="x-batch-validation")
    if not isinstance(call.json, list) or not 1 <= len(call.json) <= BATCH_MAX:
        raise InvalidRequest(f"The body must be a list of 1 to {BATCH_MAX} emails.")

    async def story(retry_key: IdempotencyKey | None) -> Sent[Fates]:
        return await send_batch(
            call.context,
            call.caller,
            [partial(_to_email, call, given) for given in call.json],
            prepare=_prepare,
            strict=mode == "strict",
            respond=lambda _, told: _made(told, with_errors=mode == "permissive"),
            retry_key=retry_key,
        )

    return answer_once(await send_once(call.context, call.caller.key.id, call.retry(KEY_MAX), story), 200)


async def _prepare(context: Context, caller: Caller, mail: tuple[EmailRequest, Shown]) -> Acceptance:
    return await prepare_email(context, caller, mail[0], shown=mail[1])


def _made(told: Fates, *, with_errors: bool) -> bytes:
    errors = [{"index": n, "message": worded(one, FIELDS)} for n, one in enumerate(told) if isinstance(one, Refusal)]
    made = {"data": [{"id": one.id} for one in told if not isinstance(one, Refusal)]}
    return msgspec.json.encode(made | ({"errors": errors} if with_errors else {}))


def _to_email(call: Call, value: Any) -> tuple[EmailRequest, Shown]:
    """Return the mail as a /v1/emails request, and its recipients with names; the use case validates the mail."""
    given, now = given_as(ResendEmail, value), call.context.clock.of(call.team)
    if given.topic_id is not None:
        raise InvalidRequest("topic_id: this service has no topics. Leave it out.", param="topic_id")
    use = given.template
    template = find_template(call.caller.team.templates, use.id) if use else None
    own = template or Template(id=use.id if use else "", team="", channel="email", name="")
    request = EmailRequest(
        from_=given.from_ or (own.sender or own_sender(call.caller) if use else None),
        to=_bare(given.to),
        cc=_bare(given.cc),
        bcc=_bare(given.bcc),
        reply_to=_bare(given.reply_to) or _bare(list(own.reply_to)) or None,
        subject=None if use else given.subject,
        html=given.html,
        text=given.text,
        template_id=own.id if use else None,
        variables=only_declared(template, _lowered(use.variables)) if use and use.variables else None,
        headers=given.headers,
        tags=_tags(given.tags) if given.tags else None,
        scheduled_at=in_full(given.scheduled_at, now) if given.scheduled_at is not None else None,
        attachments=[_file(item, f"attachments[{n}]") for n, item in enumerate(given.attachments or [])] or None,
    )
    sender = name_addr(*_mailboxes(request.from_)[0]) if request.from_ else None
    shown = Shown(
        to=_named(given.to),
        cc=_named(given.cc),
        subject=given.subject if use else None,
        sender=sender,
        named=[
            name_addr(name, address)
            for name, address in (*_mailboxes(given.to), *_mailboxes(given.cc))
            if 0 < len(name) <= NAME_KEPT
        ],
    )
    return request, shown


def _mailboxes(given: str | list[str] | None) -> list[tuple[str, str]]:
    """Return (name, address) pairs; invalid addresses are kept for the use case to refuse."""
    texts = [given] if isinstance(given, str) else given or []
    parsed = [(text, parse_name_addr(text)) for text in texts]
    return [(found[0] or "", found[1].given) if found else ("", text) for text, found in parsed]


def _bare(given: str | list[str] | None) -> list[str]:
    return [address for _, address in _mailboxes(given)]


def _named(given: str | list[str] | None) -> list[str]:
    return [name_addr(name, address) for name, address in _mailboxes(given)]


def _lowered(variables: dict[str, Any]) -> dict[str, Any]:
    """Return the variables with lower-case names, as ours are; Resend allows capitals."""
    lowered = {name.lower(): _lowered_items(value) for name, value in variables.items()}
    if len(lowered) < len(variables):
        raise InvalidRequest("A variable is given twice, in capital and small letters.", param="template")
    return lowered


def _lowered_items(value: Any) -> Any:
    return [_lowered(item) if isinstance(item, dict) else item for item in value] if isinstance(value, list) else value


def _tags(given: list[ResendTag]) -> dict[str, str]:
    tags = {tag.name: tag.value for tag in given}
    if len(tags) < len(given):
        raise InvalidTags("A tag's name is given twice. Send each once.", param="tags")
    return tags


def _file(item: Any, where: str) -> Any:
    if not isinstance(item, dict):
        return item
    if item.get("path") is not None:
        why = "this service fetches no files. Send the file itself as content."
        raise InvalidAttachment(f"{where}.path: {why}", param=f"{where}.path")
    content = item.get("content")
    if isinstance(content, dict) and content.get("type") == "Buffer":  # a Buffer as Node encodes it in JSON
        content = content.get("data")
    if not isinstance(content, str | None):  # lists of octets are already base64 here
        raise InvalidAttachment(f"{where}.content is not a file. {InvalidAttachment.fix}", param=f"{where}.content")
    named = {"content_id": item.get("inline_content_id"), **item, "content": content}
    return {name: named[name] for name in FILE_FIELDS if named.get(name) is not None}


# -- sent emails ------------------------------------------------------------------------------------------------


async def read(call: Call) -> Response:
    facts, content = await _found(call)
    recipients = await _recipients(call, facts)
    told: dict[str, Any] = {"html": content.html, "text": content.text}
    if facts.content is not None:  # the content has the recipients' names
        sender = name_addr(content.from_name, content.from_address)
        told |= {"from": sender, "to": content.to, "cc": content.cc or None}
    return await answer_of(facts.size, lambda: _email(call, facts, recipients) | told)


async def list_all(call: Call) -> Response:
    limit, after, before = ends(call, "email")
    wanted = Search(limit=limit, channel="email", before=after or before, oldest_first=before is not None)
    found = await call.context.store.messages.search(call.team, wanted)
    lines = found.lines[::-1] if before else found.lines
    told = [(line, await _recipients(call, line)) for line in lines]
    octets = sum(len(line.record) for line in lines)
    await call.hold(octets)
    return await answer_of(
        octets, lambda: listed([_email(call, *one) for one in told], has_more=found.after is not None)
    )


async def list_attachments(call: Call) -> Response:
    _, content = await _found(call)
    id_ = call.params["id"]
    files = [attachment(str(n), file, link(call, id_, str(n))) for n, file in enumerate(content.attachments, 1)]
    return answer(counted(call, files))


async def read_attachment(call: Call) -> Response:
    _, content = await _found(call)
    for n, file in enumerate(content.attachments, 1):
        if str(n) == call.params["attachment"]:
            return answer({"object": "attachment", **attachment(str(n), file, link(call, call.params["id"], str(n)))})
    raise MessageNotFound("The email has no such attachment.", param="attachment")


async def move(call: Call) -> Response:
    given = given_as(ResendMove, call.json)
    wanted = RescheduleRequest(scheduled_at=in_full(given.scheduled_at, call.context.clock.of(call.team)))
    await scheduled.reschedule(call.context, call.caller, "email", call.params["id"], wanted)
    return answer({"object": "email", "id": call.params["id"]})


async def cancel(call: Call) -> Response:
    await scheduled.cancel(call.context, call.caller, "email", call.params["id"])
    return answer({"object": "email", "id": call.params["id"]})


async def _found(call: Call) -> tuple[MessageRow, EmailContent]:
    id_ = call.params["id"]
    is_email, store = id_.startswith(PREFIXES["email"]), call.context.store
    facts = await store.messages.facts(call.team, id_, call.hold) if is_email else None
    if facts is None:
        raise MessageNotFound(f"No email {id_[:80]!r}. {MessageNotFound.fix}", param="id")
    if facts.content is None:  # deleted by retention
        return facts, EmailContent(from_name="", from_address="", to=[], subject="")
    return facts, await work(facts.size, msgspec.json.decode, facts.content, type=EmailContent)


async def _recipients(call: Call, line: MessageRow | MessageLine) -> list[RecipientLine]:
    """Return the recipients of a failed message, which hold the reason; empty for other states."""
    if line.status != "failed":
        return []
    found = await call.context.store.messages.get(call.team, line.id)
    return found.recipients if found else []


def _email(call: Call, found: MessageRow | MessageLine, recipients: list[RecipientLine]) -> dict[str, Any]:
    record = read_record(found.record)
    replies = record.reply_to_addresses or [record.reply_to] if record.reply_to else None
    return {
        "object": "email",
        "id": found.id,
        "message_id": f"<{found.id}@{record.from_.rpartition('@')[2].lower()}>",
        "to": [with_name(address, record.named) for address in record.to_addresses],
        "from": record.sender_id or record.from_,
        "created_at": record.created_at,
        "subject": record.subject,
        "html": None,
        "text": None,
        "cc": [with_name(address, record.named) for address in record.cc] or None,
        "bcc": record.bcc or None,
        "reply_to": replies,
        "last_event": _last_event(found.status, record.scheduled_at, recipients, call.context.clock.of(call.team)),
        "scheduled_at": record.scheduled_at,
        "tags": [{"name": name, "value": value} for name, value in record.tags.items()],
    }


def _last_event(status: str, due_at: str | None, recipients: list[RecipientLine], now: int) -> str:
    if status == "queued":
        return "scheduled" if due_at and (parse_timestamp(due_at) or 0) > now else "queued"
    if status == "failed":
        reasons = [msgspec.json.decode(one.detail).get("reason") for one in recipients if one.detail]
        return next((_TOLD[reason] for reason in reasons if reason in _TOLD), "failed")
    return "sent" if status == "sending" else status
