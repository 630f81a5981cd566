"""Test inbox: messages delivered by simulators, as their recipients would see them. Only this page shows codes."""

import base64
from email import message_from_bytes
from email.policy import compat32
from typing import Any

import msgspec

from heliograph.accept.verify_start import code_message_text
from heliograph.dashboard.page_request import Download, Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.views import live
from heliograph.dashboard.views.previews import (
    embed_images,
    file_download,
    file_rows,
    find_inline_images,
    format_size,
    html_download,
)
from heliograph.domain.delivery.content import CONTENT_TYPE_BY_CHANNEL, EmailContent, File, SmsContent, WhatsappContent
from heliograph.domain.delivery.magic_recipients import magic_code
from heliograph.domain.delivery.routing import simulator_ids
from heliograph.domain.limits import KIB, SCAN_COST_FACTOR
from heliograph.domain.mail.inbox_inspection import check_link, find_links, find_message_code, first_link
from heliograph.domain.phones.gsm import count_segments
from heliograph.domain.setup.records import Channel
from heliograph.domain.text import parse_int
from heliograph.manage import inbox
from heliograph.storage.inbox import CHANNELS, CodeRow, InboxItem, InboxSearch
from heliograph.templates.policy.mail_clients import ALL_CLIENTS, FEATURES, find_unsupported_features
from heliograph.web.read_budget import run_large

TAB_LABELS = {"": "All", "email": "Email", "sms": "SMS", "whatsapp": "WhatsApp", "verification": "Codes"}
VIEW_LABELS = {
    "html": "HTML",
    "text": "Text",
    "headers": "Headers",
    "source": "Source",
    "links": "Links",
    "check": "HTML check",
}
SOURCE_MAX = 200 * KIB  # maximum bytes of a mail's source on the page; the download is complete

Content = EmailContent | SmsContent | WhatsappContent


class CodeView(msgspec.Struct, frozen=True, kw_only=True):
    verification: CodeRow
    code: str | None = None  # the fixed code of a magic phone number; None for other numbers or if expired
    text: str = ""
    segments: Any = None


# -- list ------------------------------------------------------------------------------------------------------------


async def show(request: PageRequest) -> PageResponse:
    tab = request.query.get("channel", "")
    if tab not in TAB_LABELS:
        raise PageNotFound
    text, unread = request.query.get("q", "").strip(), "unread" in request.query
    team, before = request.team.record.ref, request.query.get("before", "")
    inbox_search = InboxSearch(text=text.lower(), before=before, unread=unread)
    live_url = "" if "before" in request.query else await live.team_stream_url(request, "inbox")
    values = {"tabs": TAB_LABELS, "tab": tab, "q": text, "unread": unread, "live": live_url, "first": not before}
    if tab == "verification":
        codes = await request.store.inbox.list_codes(team, inbox_search)
        tab_values = {
            "page": codes,
            "lines": [_code_view(request, verification) for verification in codes.rows],
            "sizes": {},
        }
    else:
        channels: list[Channel] = [channel for channel in CHANNELS if tab in ("", channel)]
        messages_page = await request.store.inbox.list_messages(team, channels, list_simulators(request), inbox_search)
        sizes = await request.store.inbox.get_sizes(messages_page.rows)
        tab_values = {
            "page": messages_page,
            "lines": messages_page.rows,
            "sizes": {id_: format_size(size) for id_, size in sizes.items()},
        }
    return Page("inbox.html", values | tab_values)


async def clear(request: PageRequest) -> PageResponse:
    await inbox.clear(request.store, request.actor, request.team.record)
    return Redirect(
        f"{request.team_path}/inbox", "Everything was deleted from the test inbox. The messages themselves are kept."
    )


def list_simulators(request: PageRequest) -> list[str]:
    return simulator_ids(request.setup.carriers)


def _code_view(request: PageRequest, verification: CodeRow) -> CodeView:
    """Return a verification code as the inbox shows it; for developers with its message, while it is pending."""
    if verification.magic:
        return CodeView(verification=verification, code=magic_code(verification.phone))
    if verification.status != "pending" or not request.has_role("developer"):
        return CodeView(verification=verification)
    text = code_message_text(request.context, request.caller, verification) or ""
    return CodeView(verification=verification, text=text, segments=count_segments(text))


# -- one message -----------------------------------------------------------------------------------------------------


async def show_message(request: PageRequest) -> PageResponse:
    item, content = await _find_message(request)
    if not item.opened and request.has_role("developer"):
        await request.store.inbox.set_opened(request.team.record.ref, request.params["id"], opened=True)
    values: dict[str, Any] = {
        "id": request.params["id"],
        "item": item,
        "content": content,
        "segments": count_segments(content.body) if isinstance(content, SmsContent) else None,
        "pictures": request.query.get("pictures") == "yes",
        "phone": request.query.get("width") == "phone",
        "can_change": request.has_role("developer"),
    }
    if isinstance(content, EmailContent):
        values |= await run_large(SCAN_COST_FACTOR * item.size, _inspect_mail, request, item, content)
        values |= await _mail_source(request, item) if values["view"] in ("headers", "source") else {}
    elif content:
        links = [check_link(url) for url in find_links(None, content.body)]
        code, main_link = find_message_code(None, content.body, None), first_link([link.url for link in links])
        values |= {"code": code, "first": main_link, "links": links}
    return Page("inbox_item.html", values, size=item.size)


def _inspect_mail(request: PageRequest, item: InboxItem, content: EmailContent) -> dict[str, Any]:
    """Return the page's values of a mail: views, code, links, HTML problems, files. Slow for a large mail."""
    links = [check_link(url) for url in find_links(content.html, content.text)]
    views = {
        name: label
        for name, label in VIEW_LABELS.items()
        if (name not in ("html", "check") or content.html) and (name != "text" or content.text)
    }
    view = request.query.get("view", next(iter(views)))
    return {
        "views": views,
        "view": view if view in views else next(iter(views)),
        "code": find_message_code(content.subject, content.text, content.html),
        "first": first_link([link.url for link in links]),
        "links": links,
        "wrong_links": sum(link.verdict != "ok" for link in links),
        "findings": find_unsupported_features(content.html) if content.html else [],
        "features": len(FEATURES),
        "clients": ALL_CLIENTS,
        # `item.size` already includes attachments that are stored in the content
        "size": format_size(item.size + sum(file.size for file in content.attachments if file.blob)),
        "files": file_rows(content.attachments),
    }


async def _mail_source(request: PageRequest, item: InboxItem) -> dict[str, Any]:
    mail = await request.tools.render_eml(request.params["id"], item.content or "", request.reserve_memory)
    header_bytes = mail[: mail.find(b"\r\n\r\n") + 2]
    headers = [
        (name, " ".join(str(value).split()))
        for name, value in message_from_bytes(header_bytes, policy=compat32).items()
    ]
    source = mail[:SOURCE_MAX].decode("utf-8", "replace")
    return {"headers": headers, "source": source, "is_cut": len(mail) > SOURCE_MAX, "whole": format_size(len(mail))}


async def html_frame(request: PageRequest) -> PageResponse:
    """Return the HTML of a mail with its inline images, for a sandboxed iframe."""
    item, content = await _find_message(request)
    if not isinstance(content, EmailContent) or (html := content.html) is None:
        raise PageNotFound
    inline_images = find_inline_images(content.attachments)
    await request.reserve_memory(sum(file.size for file in inline_images if file.blob))
    images = [(file, await _read_attachment(request, file)) for file in inline_images]

    def render_html() -> Download:
        return html_download(embed_images(html, images), allow_remote_images=request.query.get("pictures") == "yes")

    return await run_large(item.size + sum(file.size for file in inline_images), render_html)


async def download(request: PageRequest) -> PageResponse:
    item, content = await _find_message(request)
    if not isinstance(content, EmailContent) or item.content is None:
        raise PageNotFound
    id_ = request.params["id"]
    mail = await request.tools.render_eml(id_, item.content, request.reserve_memory)
    return Download(mail, "message/rfc822", f"{id_}.eml")


async def attachment(request: PageRequest) -> PageResponse:
    _, content = await _find_message(request)
    index = parse_int(request.params["number"], 3)
    files = content.attachments if isinstance(content, EmailContent) else []
    if index is None or index >= len(files):
        raise PageNotFound
    file = files[index]
    await request.reserve_memory(file.size)
    return file_download(request, file, await _read_attachment(request, file))


async def _read_attachment(request: PageRequest, file: File) -> bytes:
    if file.base64 is not None:
        return base64.b64decode(file.base64)
    try:
        return await request.store.attachments.get(file.blob or "")
    except OSError:
        raise PageNotFound("The attachment is no longer stored.") from None


async def delete(request: PageRequest) -> PageResponse:
    id_ = request.params["id"]
    if not await inbox.delete(request.store, request.actor, request.team.record, id_):
        raise PageNotFound
    return Redirect(f"{request.team_path}/inbox", "Deleted from the test inbox. The message itself is kept.")


async def mark_unread(request: PageRequest) -> PageResponse:
    await _find_item(request)
    await request.store.inbox.set_opened(request.team.record.ref, request.params["id"], opened=False)
    return Redirect(f"{request.team_path}/inbox", "Marked as unread.")


async def _find_item(request: PageRequest) -> InboxItem:
    item = await request.store.inbox.get_message(
        request.team.record.ref, request.params["id"], list_simulators(request), request.reserve_memory
    )
    if item is None:
        raise PageNotFound
    return item


async def _find_message(request: PageRequest) -> tuple[InboxItem, Content | None]:
    item = await _find_item(request)
    if item.content is None:
        return item, None
    return item, await run_large(
        item.size, msgspec.json.decode, item.content, type=CONTENT_TYPE_BY_CHANNEL[item.channel]
    )
