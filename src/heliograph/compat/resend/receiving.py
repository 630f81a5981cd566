"""Compatibility API for Resend, received emails: the team's inbound mail."""

from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.resend.codec import creation_time, cursor_params, list_response
from heliograph.compat.resend.files import attachment_json, file_link
from heliograph.domain.mail.file_links import RAW
from heliograph.domain.mail.smtp_to_request import parse_mailboxes
from heliograph.domain.refusals import InvalidRequest, ReceivedNotFound
from heliograph.inbound.policy.inbound_mail import ReceivedRecord
from heliograph.inbound.store.inbound_mail import AFTER_ANY_ID, InboundMailRow
from heliograph.web.request import Response
from heliograph.web.route import json_response, large_json_response


async def list_all(call: Call) -> Response:
    limit, after, before = cursor_params(call, "received")
    if before is not None:
        raise InvalidRequest("before: this list only supports after.", param="before")
    page = await call.context.store.inbound_mail.list_page(call.team, after or AFTER_ANY_ID, limit, call.reserve_memory)

    def render() -> dict[str, Any]:
        records = [msgspec.json.decode(record, type=ReceivedRecord) for record in page.records]
        return list_response([_email_json(call, record) for record in records], has_more=page.has_more)

    return await large_json_response(page.octets, render)


async def read(call: Call) -> Response:
    row, mail = await _find_mail(call)
    raw = file_link(call, mail.id, RAW) if row.raw else None
    texts = {"html": mail.html, "text": mail.text, "headers": dict(mail.headers), "raw": raw}
    body = {"object": "email", **_email_json(call, mail), **texts}
    return await large_json_response(len(f"{mail.html}{mail.text}"), lambda: body)


async def list_attachments(call: Call) -> Response:
    _, mail = await _find_mail(call)
    return json_response(list_response(_attachments_json(call, mail), has_more=False))


async def read_attachment(call: Call) -> Response:
    for file in (await _find_mail(call))[1].attachments:
        if file.id == call.params["attachment"]:
            return json_response({"object": "attachment", **attachment_json(call, call.params["id"], file.id, file)})
    raise ReceivedNotFound("The email has no such attachment.", param="attachment")


async def _find_mail(call: Call) -> tuple[InboundMailRow, ReceivedRecord]:
    store, id_ = call.context.store.inbound_mail, call.params["id"]
    row = await store.find_row(call.team, id_)
    mail = await store.get_record(call.team, row, call.reserve_memory) if row else None
    if row is None or mail is None:
        raise ReceivedNotFound(f"There is no inbound email {id_[:80]!r}. {ReceivedNotFound.fix}", param="id")
    return row, mail


def _attachments_json(call: Call, mail: ReceivedRecord) -> list[dict[str, Any]]:
    return [attachment_json(call, mail.id, file.id, file) for file in mail.attachments]


def _email_json(call: Call, mail: ReceivedRecord) -> dict[str, Any]:
    reply_to = next((value for name, value in mail.headers if name.lower() == "reply-to"), "")
    return {
        "id": mail.id,
        "from": mail.from_,
        "to": mail.to,
        "cc": mail.cc,
        "bcc": [],
        "reply_to": [address for _, address in parse_mailboxes(reply_to)],
        "subject": mail.subject,
        "message_id": mail.message_id,
        "created_at": creation_time(mail.id),
        "attachments": _attachments_json(call, mail),
    }
