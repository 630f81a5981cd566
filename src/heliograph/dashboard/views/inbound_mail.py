"""Inbound messages of a team: mail with attachments, SMS and WhatsApp. HTML is sandboxed, as in the test inbox."""

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.dashboard.page_request import Download, Page, PageNotFound, PageRequest, PageResponse
from heliograph.dashboard.views.previews import (
    embed_images,
    file_download,
    file_rows,
    find_inline_images,
    format_size,
    html_download,
)
from heliograph.inbound.policy.inbound_mail import ReceivedRecord, attachment_content
from heliograph.inbound.store.inbound_mail import AFTER_ANY_ID, InboundMailRow
from heliograph.storage.events import NEWEST
from heliograph.web.read_budget import run_large

PAGE_SIZE = 50
TAB_LABELS = {"email": "Email", "texts": "SMS and WhatsApp"}
PHONE_EVENT_TYPES = ("sms.received", "whatsapp.received")
VIEW_LABELS = {"reply": "Reply", "html": "HTML", "text": "Text", "headers": "Headers"}


class InboundRow(msgspec.Struct, frozen=True, kw_only=True):
    """A mail in the list, with the fields that the list shows."""

    id: str
    from_: str = msgspec.field(name="from")
    subject: str
    recipients: list[str]
    in_reply_to: str | None
    attachments: list[Any]


async def show(request: PageRequest) -> PageResponse:
    tab = request.query.get("tab", "email")
    if tab not in TAB_LABELS:
        raise PageNotFound
    before = request.query.get("before", "")
    items, next_cursor = await (_mail_page(request, before) if tab == "email" else _text_page(request, before))
    return Page(
        "received.html", {"tabs": TAB_LABELS, "tab": tab, "items": items, "older": next_cursor, "first": not before}
    )


async def _mail_page(request: PageRequest, before: str) -> tuple[Sequence[Any], str]:
    team, store = request.team.record.ref, request.store.inbound_mail
    rows = await store.list_newest(team, before or AFTER_ANY_ID, PAGE_SIZE + 1)
    await request.reserve_memory(sum(row.octets for row in rows[:PAGE_SIZE]))
    records = await store.get_records(team, [row.id for row in rows[:PAGE_SIZE]])
    record_by_id = {mail.id: mail for mail in (msgspec.json.decode(record, type=InboundRow) for record in records)}
    items = [(row, record_by_id[row.id]) for row in rows[:PAGE_SIZE] if row.id in record_by_id]
    return items, rows[PAGE_SIZE - 1].id if len(rows) > PAGE_SIZE else ""


async def _text_page(request: PageRequest, before: str) -> tuple[Sequence[Any], str]:
    """Return a page of inbound SMS and WhatsApp messages, which are stored as events, and the next page's cursor."""
    page = await request.store.events.newest(request.team.record.ref, PHONE_EVENT_TYPES, before or NEWEST, PAGE_SIZE)
    return [(event, msgspec.json.decode(event.detail or "{}")) for event in page.events], page.before or ""


async def show_mail(request: PageRequest) -> PageResponse:
    row, mail = await _find_mail(request)
    views = {
        name: label
        for name, label in VIEW_LABELS.items()
        if name == "headers" or {"reply": mail.reply_text, "html": mail.html, "text": mail.text}[name]
    }
    view = request.query.get("view", "")
    values = {
        "line": row,
        "mail": mail,
        "views": views,
        "view": view if view in views else next(iter(views)),
        "files": file_rows(mail.attachments),
        "size": format_size(row.size),
        "pictures": request.query.get("pictures") == "yes",
    }
    return Page("received_one.html", values, size=row.octets)


async def html_frame(request: PageRequest) -> PageResponse:
    """Return the HTML of a mail with its inline images, for a sandboxed iframe."""
    row, mail = await _find_mail(request)
    if (html := mail.html) is None:
        raise PageNotFound
    inline_images = find_inline_images(mail.attachments)
    raw = await request.store.inbound_mail.get_raw(row, request.reserve_memory) if inline_images else None

    def render_html() -> Download:
        images = [(file, (attachment_content(raw, file.id) if raw else None) or b"") for file in inline_images]
        return html_download(embed_images(html, images), allow_remote_images=request.query.get("pictures") == "yes")

    return await run_large(row.octets + (row.size if raw else 0), render_html)


async def download(request: PageRequest) -> PageResponse:
    row, _ = await _find_mail(request)
    return Download(await _raw_mail(request, row), "message/rfc822", f"{row.id}.eml")


async def attachment(request: PageRequest) -> PageResponse:
    row, mail = await _find_mail(request)
    file = next((item for item in mail.attachments if item.id == request.params["attachment"]), None)
    if file is None:
        raise PageNotFound
    body = await run_large(row.size, attachment_content, await _raw_mail(request, row), file.id)
    return file_download(request, file, body or b"")


async def _raw_mail(request: PageRequest, row: InboundMailRow) -> bytes:
    raw = await request.store.inbound_mail.get_raw(row, request.reserve_memory)
    if raw is None:
        raise PageNotFound("The original message is no longer stored.")
    return raw


async def _find_mail(request: PageRequest) -> tuple[InboundMailRow, ReceivedRecord]:
    team = request.team.record.ref
    row = await request.store.inbound_mail.find_row(team, request.params["id"])
    mail = await request.store.inbound_mail.get_record(team, row, request.reserve_memory) if row else None
    if row is None or mail is None:
        raise PageNotFound
    return row, mail
