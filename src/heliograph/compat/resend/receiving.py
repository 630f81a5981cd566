"""Resend's received emails: mail that came in for the team. Files have no links: `/v1/received` has their bytes."""

from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.resend.shape import attachment, ends, listed, made_at
from heliograph.rules.mail.incoming import ReceivedRecord
from heliograph.rules.mail.submitted import read_addresses
from heliograph.rules.refusals import InvalidRequest, ReceivedNotFound
from heliograph.storage.received import LAST
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_of


async def list_all(call: Call) -> Response:
    limit, after, before = ends(call)
    if before is not None:
        raise InvalidRequest("before: this list is read with after only.", param="before")
    page = await call.context.store.received.page(call.team, after or LAST, limit, call.hold)

    def make() -> dict[str, Any]:
        records = [msgspec.json.decode(record, type=ReceivedRecord) for record in page.records]
        return listed([_email(record) for record in records], has_more=page.has_more)

    return await answer_of(page.octets, make)


async def read(call: Call) -> Response:
    whole = await _whole(call)
    texts = {"html": whole.html, "text": whole.text, "headers": dict(whole.headers), "raw": None}
    return await answer_of(len(f"{whole.html}{whole.text}"), lambda: {"object": "email", **_email(whole), **texts})


async def list_attachments(call: Call) -> Response:
    whole = await _whole(call)
    return answer(listed([attachment(file.id, file) for file in whole.attachments], has_more=False))


async def read_attachment(call: Call) -> Response:
    for file in (await _whole(call)).attachments:
        if file.id == call.params["attachment"]:
            return answer({"object": "attachment", **attachment(file.id, file)})
    raise ReceivedNotFound("The email has no such attachment.", param="attachment")


async def _whole(call: Call) -> ReceivedRecord:
    store, id_ = call.context.store.received, call.params["id"]
    found = await store.find(call.team, id_)
    whole = await store.whole(call.team, found, call.hold) if found else None
    if whole is None:
        raise ReceivedNotFound(f"No mail {id_[:80]!r} was received. {ReceivedNotFound.fix}", param="id")
    return whole


def _email(one: ReceivedRecord) -> dict[str, Any]:
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
        "attachments": [attachment(file.id, file) for file in one.attachments],
    }
