"""Attachment downloads by signed links that are valid for an hour, because Resend's clients download without a key."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pybase64

from heliograph.compat.call import Call
from heliograph.compat.resend.codec import PREFIX
from heliograph.domain.delivery.content import EmailContent, File
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.mail.file_links import RAW, VALID_S, sign_link, verify_link
from heliograph.domain.refusals import MessageNotFound
from heliograph.domain.text import parse_int
from heliograph.inbound.policy.inbound_mail import AttachmentRecord, attachment_content
from heliograph.storage.store import Store
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import file_response

ReserveMemory = Callable[[int], Awaitable[None]]
EXPIRED_MESSAGE = "This link has expired, or the file is no longer stored. Get the email again for a new link."


def attachment_json(call: Call, id_: str, file_id: str, file: File | AttachmentRecord) -> dict[str, Any]:
    return {
        "id": file_id,
        "filename": file.filename,
        "size": file.size,
        "content_type": file.content_type,
        "content_disposition": "inline" if file.content_id else "attachment",
        "content_id": file.content_id,
        **file_link(call, id_, file_id),
    }


def file_link(call: Call, id_: str, file: str) -> dict[str, str]:
    """Return the link to a file of the email `id_`, and its expiry. `file`: id of an attachment, or RAW."""
    until_s = call.context.clock.now() // SECOND_MS + VALID_S  # real time, even for a team with a test clock
    query = sign_link(call.context.reply_key, call.team, id_, file, until_s)
    url = f"{call.context.base_url}{PREFIX}/files/{id_}/{file}?{query}"
    return {"download_url": url, "expires_at": timestamp(until_s * SECOND_MS)}


async def download(call: Call) -> Response:
    context, id_, file = call.context, call.params["id"], call.params["file"]
    query, now_s = call.request.unchecked_query(), context.clock.now() // SECOND_MS
    ref = verify_link(context.reply_key, query, id_, file, now_s)
    team = context.store.setup.current.teams_by_ref.get(ref) if ref is not None else None
    if team is None or team.record.suspended:
        raise MessageNotFound(EXPIRED_MESSAGE, param="id")
    reserve = partial(call.read_budget.reserve, call.request, team.record.id)
    read_file = _sent_file if id_.startswith(PREFIXES["email"]) else _received_file
    content = await read_file(context.store, team.record.ref, id_, file, reserve)
    if content is None:
        raise MessageNotFound(EXPIRED_MESSAGE, param="id")
    return file_response(content)


async def _received_file(store: Store, team: int, id_: str, file: str, reserve: ReserveMemory) -> bytes | None:
    row = await store.inbound_mail.find_row(team, id_)
    raw = await store.inbound_mail.get_raw(row, reserve) if row else None
    if not row or raw is None or file == RAW:
        return raw
    return await run_large(row.size, attachment_content, raw, file)


async def _sent_file(store: Store, team: int, id_: str, file: str, reserve: ReserveMemory) -> bytes | None:
    row = await store.messages.get_row(team, id_, reserve)
    if row is None or row.content is None:
        return None
    content = await run_large(row.size, msgspec.json.decode, row.content, type=EmailContent)
    attachment = dict(enumerate(content.attachments, 1)).get(parse_int(file, 3) or 0)
    if attachment is None or not attachment.blob:
        return pybase64.b64decode(attachment.base64) if attachment and attachment.base64 is not None else None
    await reserve(attachment.size)
    try:
        return await store.attachments.get(attachment.blob)
    except OSError:
        return None
