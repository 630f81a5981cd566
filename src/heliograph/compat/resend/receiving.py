"""Resend's received emails: mail that came in for the team, and its files, by links that live for an hour."""

from functools import partial
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.resend.shape import PREFIX, FileLink, attachment, ends, listed, made_at
from heliograph.rules.ids import timestamp
from heliograph.rules.limits import SECOND_MS
from heliograph.rules.mail.incoming import AttachmentRecord, ReceivedRecord, attachment_in
from heliograph.rules.mail.links import LIVES_S, RAW, linked_team, sign_link
from heliograph.rules.mail.submitted import read_addresses
from heliograph.rules.refusals import InvalidRequest, ReceivedNotFound
from heliograph.storage.received import LAST, ReceivedLine
from heliograph.web.reading import work
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_file, answer_of


async def list_all(call: Call) -> Response:
    limit, after, before = ends(call)
    if before is not None:
        raise InvalidRequest("before: this list is read with after only.", param="before")
    page = await call.context.store.received.page(call.team, after or LAST, limit, call.hold)

    def make() -> dict[str, Any]:
        records = [msgspec.json.decode(record, type=ReceivedRecord) for record in page.records]
        return listed([_email(call, record) for record in records], has_more=page.has_more)

    return await answer_of(page.octets, make)


async def read(call: Call) -> Response:
    found, whole = await _whole(call)
    raw = _link(call, whole.id, RAW) if found.raw else None
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


async def download(call: Call) -> Response:
    """Answer the bytes of a file to whoever has a link to it."""
    context, id_, file = call.context, call.params["id"], call.params["file"]
    now_s = context.clock.now() // SECOND_MS
    ref = linked_team(context.reply_key, call.request.loose_query(), id_, file, now_s)
    team = context.store.setup.current.teams_by_ref.get(-1 if ref is None else ref)
    found = await context.store.received.find(team.record.ref, id_) if team else None
    content = None
    if team and found:
        content = await context.store.received.raw(found, partial(call.reads.hold, call.request, team.record.id))
        if content is not None and file != RAW:
            content = await work(found.size, attachment_in, content, file)
    if content is None:
        raise ReceivedNotFound("This link has ended, or its file is no longer kept. Read the email again.", param="id")
    return answer_file(content)


async def _whole(call: Call) -> tuple[ReceivedLine, ReceivedRecord]:
    store, id_ = call.context.store.received, call.params["id"]
    found = await store.find(call.team, id_)
    whole = await store.whole(call.team, found, call.hold) if found else None
    if found is None or whole is None:
        raise ReceivedNotFound(f"No mail {id_[:80]!r} was received. {ReceivedNotFound.fix}", param="id")
    return found, whole


def _link(call: Call, id_: str, file: str) -> FileLink:
    until_s = call.context.clock.now() // SECOND_MS + LIVES_S  # real time, also of a team with a test clock
    query = sign_link(call.context.reply_key, call.team, id_, file, until_s)
    url = f"{call.context.base_url}{PREFIX}/files/{id_}/{file}?{query}"
    return FileLink(download_url=url, expires_at=timestamp(until_s * SECOND_MS))


def _file(call: Call, id_: str, file: AttachmentRecord) -> dict[str, Any]:
    return attachment(file.id, file, _link(call, id_, file.id))


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
