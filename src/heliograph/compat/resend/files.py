"""Attachment downloads by signed links that are valid for an hour: Resend's clients download without a key."""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import pybase64

from heliograph.compat.call import Call
from heliograph.compat.resend.codec import PREFIX, FileLink
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.mail.file_links import LIVES_S, RAW, linked_team, sign_link
from heliograph.domain.refusals import MessageNotFound
from heliograph.domain.text import whole_number
from heliograph.inbound.policy.inbound_mail import attachment_in
from heliograph.storage.store import Store
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import answer_file

Hold = Callable[[int], Awaitable[None]]
ENDED = "This link has ended, or its file is no longer kept. Read the email again."


def link(call: Call, id_: str, file: str) -> FileLink:
    until_s = call.context.clock.now() // SECOND_MS + LIVES_S  # real time, even for a team with a test clock
    query = sign_link(call.context.reply_key, call.team, id_, file, until_s)
    url = f"{call.context.base_url}{PREFIX}/files/{id_}/{file}?{query}"
    return FileLink(download_url=url, expires_at=timestamp(until_s * SECOND_MS))


async def download(call: Call) -> Response:
    context, id_, file = call.context, call.params["id"], call.params["file"]
    query, now_s = call.request.loose_query(), context.clock.now() // SECOND_MS
    ref = linked_team(context.reply_key, query, id_, file, now_s)
    team = context.store.setup.current.teams_by_ref.get(ref) if ref is not None else None
    if team is None or team.record.suspended:
        raise MessageNotFound(ENDED, param="id")
    hold = partial(call.reads.hold, call.request, team.record.id)
    read = _sent if id_.startswith(PREFIXES["email"]) else _received
    content = await read(context.store, team.record.ref, id_, file, hold)
    if content is None:
        raise MessageNotFound(ENDED, param="id")
    return answer_file(content)


async def _received(store: Store, team: int, id_: str, file: str, hold: Hold) -> bytes | None:
    found = await store.received.find(team, id_)
    raw = await store.received.raw(found, hold) if found else None
    if not found or raw is None or file == RAW:
        return raw
    return await work(found.size, attachment_in, raw, file)


async def _sent(store: Store, team: int, id_: str, file: str, hold: Hold) -> bytes | None:
    facts = await store.messages.facts(team, id_, hold)
    if facts is None or facts.content is None:
        return None
    content = await work(facts.size, msgspec.json.decode, facts.content, type=EmailContent)
    one = dict(enumerate(content.attachments, 1)).get(whole_number(file, 3) or 0)
    if one is None or not one.blob:
        return pybase64.b64decode(one.base64) if one and one.base64 is not None else None
    await hold(one.size)
    try:
        return await store.attachments.get(one.blob)
    except OSError:
        return None
