"""Resend's received emails: the team's inbound mail."""

from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.resend.codec import attachment, ends, listed, made_at
from heliograph.compat.resend.files import link
from heliograph.domain.mail.file_links import RAW
from heliograph.domain.mail.smtp_to_request import read_addresses
from heliograph.domain.refusals import InvalidRequest, ReceivedNotFound
from heliograph.inbound.policy.inbound_mail import AttachmentRecord, ReceivedRecord
from heliograph.inbound.store.inbound_mail import LAST, ReceivedLine
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_of


async def list_all(call: Call) -> Response:
    limit, after, before = ends(call, "received")
    if before is not None:
        raise InvalidRequest("before: this list is read with after only.", param="before")
    page = await call.context.store.received.page(call.team, after or LAST, limit, call.hold)

    def make() -> dict[str, Any]:
        records = [msgspec.json.decode(record, type=ReceivedRecord) for record in page.records]
        return listed([_email(call, record) for record in records], has_more=page.has_more)

    return await answer_of(page.octets, make)


async def read(call: Call) -> Response:
    found, whole = await _whole(call)
    raw = link(call, whole.id, RAW) if found.raw else None
    texts = {"html": whole.html, "text": whole.text, "headers": dict(whole.headers), "raw": raw}
    told = {"object": "email", **_email(call, whole), **texts}
    return await answer_of(len(f"{whole.html}{whole.text}"), lambda: told)


async def list_attachments(call: Call) -> Response:
    _, whole = await _whole(call)
    return answer(listed([_file(call, whole.id, file) for file in whole.attachments], has_more=False))


async def read_attachment(call: Call) -> Response:
    for file in (await _whole(call))[1].attachments:
        if file.id == call.params["attachment"]:
            return answer({"object": "attachment", **_file(call, call.params["id"], file)})
    raise ReceivedNotFound("The email has no such attachment.", param="attachment")


async def _whole(call: Call) -> tuple[ReceivedLine, ReceivedRecord]:
    store, id_ = call.context.store.received, call.params["id"]
    found = await store.find(call.team, id_)
    whole = await store.whole(call.team, found, call.hold) if found else None
    if found is None or whole is None:
        raise ReceivedNotFound(f"No mail {id_[:80]!r} was received. {ReceivedNotFound.fix}", param="id")
    return found, whole


def _file(call: Call, id_: str, file: AttachmentRecord) -> dict[str, Any]:
    return attachment(file.id, file, link(call, id_, file.id))


def _email(call: Call, one: ReceivedRecord) -> dict[str, Any]:
    answer_to = next((value for name, value in one.headers if name.lower() == "reply-to"), "")
    return {
        "id": one.id,
        "from": one.from_,
        "to": one.to,
        "cc": one.cc,
        "bcc": [],
        "reply_to": [address for _, address in read_addresses(answer_to)],
        "subject": one.subject,
        "message_id": one.message_id,
        "created_at": made_at(one.id),
        "attachments": [_file(call, one.id, file) for file in one.attachments],
    }
