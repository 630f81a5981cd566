"""Test inbox: messages that simulators delivered, as recipients would see them. No other page shows codes."""

import base64
from email import message_from_bytes
from email.policy import compat32
from typing import Any

import msgspec

from heliograph.accept.verify_start import inbox_text
from heliograph.dashboard.page_request import Answer, Download, Gone, Page, Redirect, Visit
from heliograph.dashboard.views import live
from heliograph.dashboard.views.previews import (
    framed,
    in_bytes,
    listed,
    pictures_in,
    shown_or_saved,
    with_pictures,
)
from heliograph.domain.delivery.content import CONTENTS, EmailContent, File, SmsContent, WhatsappContent
from heliograph.domain.delivery.magic_recipients import magic_code
from heliograph.domain.delivery.routing import simulator_ids
from heliograph.domain.limits import KIB, PARSED
from heliograph.domain.mail.inbox_inspection import check_link, code_in, find_links, first_link
from heliograph.domain.phones.gsm import segment
from heliograph.domain.setup.records import Channel
from heliograph.domain.text import whole_number
from heliograph.manage import inbox
from heliograph.storage.inbox import CHANNELS, CodeLine, InboxItem, InboxSearch
from heliograph.templates.policy.mail_clients import ALL, FEATURES, check_html
from heliograph.web.read_budget import work

TABS = {"": "All", "email": "Email", "sms": "SMS", "whatsapp": "WhatsApp", "verification": "Codes"}
VIEWS = {
    "html": "HTML",
    "text": "Text",
    "headers": "Headers",
    "source": "Source",
    "links": "Links",
    "check": "HTML check",
}
SOURCE_MAX = 200 * KIB  # bytes of a mail's source that the page shows; the download is complete

Content = EmailContent | SmsContent | WhatsappContent


class Code(msgspec.Struct, frozen=True, kw_only=True):
    line: CodeLine
    code: str | None = None  # fixed code of a magic number; None for other numbers, or if no code is valid
    text: str = ""
    segments: Any = None


# -- list ------------------------------------------------------------------------------------------------------------


async def show(visit: Visit) -> Answer:
    tab = visit.query.get("channel", "")
    if tab not in TABS:
        raise Gone
    text, unread = visit.query.get("q", "").strip(), "unread" in visit.query
    team, before = visit.team.record.ref, visit.query.get("before", "")
    wanted = InboxSearch(text=text.lower(), before=before, unread=unread)
    stream = "" if "before" in visit.query else await live.team_stream_address(visit, "inbox")
    values = {"tabs": TABS, "tab": tab, "q": text, "unread": unread, "live": stream, "first": not before}
    if tab == "verification":
        codes = await visit.store.inbox.codes(team, wanted)
        shown = {"page": codes, "lines": [_code(visit, line) for line in codes.lines], "sizes": {}}
    else:
        channels: list[Channel] = [channel for channel in CHANNELS if tab in ("", channel)]
        found = await visit.store.inbox.messages(team, channels, simulators(visit), wanted)
        sizes = await visit.store.inbox.sizes(found.lines)
        shown = {"page": found, "lines": found.lines, "sizes": {id_: in_bytes(size) for id_, size in sizes.items()}}
    return Page("inbox.html", values | shown)


async def clear(visit: Visit) -> Answer:
    await inbox.clear(visit.store, visit.actor, visit.team.record)
    return Redirect(f"{visit.base}/inbox", "The test inbox is empty. The messages themselves are kept.")


def simulators(visit: Visit) -> list[str]:
    """Return the ids of the simulator carriers."""
    return simulator_ids(visit.setup.carriers)


def _code(visit: Visit, line: CodeLine) -> Code:
    """Return the code for display. Its text is available to developers until the verification ends."""
    if line.magic:
        return Code(line=line, code=magic_code(line.phone))
    if line.status != "pending" or not visit.may("developer"):
        return Code(line=line)
    text = inbox_text(visit.context, visit.caller, line.id, line.added)
    return Code(line=line, text=text, segments=segment(text))


# -- one message -----------------------------------------------------------------------------------------------------


async def show_one(visit: Visit) -> Answer:
    item, content = await _read(visit)
    if not item.opened and visit.may("developer"):
        await visit.store.inbox.mark(visit.team.record.ref, visit.params["id"], opened=True)
    values: dict[str, Any] = {
        "id": visit.params["id"],
        "item": item,
        "content": content,
        "segments": segment(content.body) if isinstance(content, SmsContent) else None,
        "pictures": visit.query.get("pictures") == "yes",
        "phone": visit.query.get("width") == "phone",
        "can_change": visit.may("developer"),
    }
    if isinstance(content, EmailContent):
        values |= await work(PARSED * item.size, _looked_at, visit, item, content)
        values |= await _source(visit, item) if values["view"] in ("headers", "source") else {}
    elif content:
        links = [check_link(url) for url in find_links(None, content.body)]
        code, first = code_in(None, content.body, None), first_link([link.url for link in links])
        values |= {"code": code, "first": first, "links": links}
    return Page("inbox_item.html", values, size=item.size)


def _looked_at(visit: Visit, item: InboxItem, content: EmailContent) -> dict[str, Any]:
    """Return the page's values for a mail: views, code, links, HTML findings, files. Slow for a large mail."""
    links = [check_link(url) for url in find_links(content.html, content.text)]
    views = {
        name: label
        for name, label in VIEWS.items()
        if (name not in ("html", "check") or content.html) and (name != "text" or content.text)
    }
    view = visit.query.get("view", next(iter(views)))
    return {
        "views": views,
        "view": view if view in views else next(iter(views)),
        "code": code_in(content.subject, content.text, content.html),
        "first": first_link([link.url for link in links]),
        "links": links,
        "wrong_links": sum(link.verdict != "ok" for link in links),
        "findings": check_html(content.html) if content.html else [],
        "features": len(FEATURES),
        "clients": ALL,
        # `item.size` already includes small attachments, as in the list.
        "size": in_bytes(item.size + sum(file.size for file in content.attachments if file.blob)),
        "files": listed(content.attachments),
    }


async def _source(visit: Visit, item: InboxItem) -> dict[str, Any]:
    mail = await visit.tools.eml(visit.params["id"], item.content or "", visit.hold)
    head = mail[: mail.find(b"\r\n\r\n") + 2]
    headers = [
        (name, " ".join(str(value).split())) for name, value in message_from_bytes(head, policy=compat32).items()
    ]
    cut = mail[:SOURCE_MAX].decode("utf-8", "replace")
    return {"headers": headers, "source": cut, "is_cut": len(mail) > SOURCE_MAX, "whole": in_bytes(len(mail))}


async def frame(visit: Visit) -> Answer:
    """Return the HTML of a mail with its inline images, for a sandboxed iframe."""
    item, content = await _read(visit)
    if not isinstance(content, EmailContent) or (html := content.html) is None:
        raise Gone
    inline = pictures_in(content.attachments)
    await visit.hold(sum(file.size for file in inline if file.blob))
    files = [(file, await _bytes_of(visit, file)) for file in inline]

    def show() -> Download:
        return framed(with_pictures(html, files), images=visit.query.get("pictures") == "yes")

    return await work(item.size + sum(file.size for file in inline), show)


async def download(visit: Visit) -> Answer:
    item, content = await _read(visit)
    if not isinstance(content, EmailContent) or item.content is None:
        raise Gone
    id_ = visit.params["id"]
    mail = await visit.tools.eml(id_, item.content, visit.hold)
    return Download(mail, "message/rfc822", f"{id_}.eml")


async def attachment(visit: Visit) -> Answer:
    _, content = await _read(visit)
    number = whole_number(visit.params["number"], 3)
    files = content.attachments if isinstance(content, EmailContent) else []
    if number is None or number >= len(files):
        raise Gone
    file = files[number]
    await visit.hold(file.size)
    return shown_or_saved(visit, file, await _bytes_of(visit, file))


async def _bytes_of(visit: Visit, file: File) -> bytes:
    if file.base64 is not None:
        return base64.b64decode(file.base64)
    try:
        return await visit.store.attachments.get(file.blob or "")
    except OSError:
        raise Gone("The attachment is no longer kept.") from None


async def delete(visit: Visit) -> Answer:
    id_ = visit.params["id"]
    if not await inbox.delete(visit.store, visit.actor, visit.team.record, id_):
        raise Gone
    return Redirect(f"{visit.base}/inbox", "Deleted from the test inbox. The message itself is kept.")


async def mark_unread(visit: Visit) -> Answer:
    await _item(visit)
    await visit.store.inbox.mark(visit.team.record.ref, visit.params["id"], opened=False)
    return Redirect(f"{visit.base}/inbox", "Marked as unread.")


async def _item(visit: Visit) -> InboxItem:
    item = await visit.store.inbox.item(visit.team.record.ref, visit.params["id"], simulators(visit), visit.hold)
    if item is None:
        raise Gone
    return item


async def _read(visit: Visit) -> tuple[InboxItem, Content | None]:
    item = await _item(visit)
    if item.content is None:
        return item, None
    return item, await work(item.size, msgspec.json.decode, item.content, type=CONTENTS[item.channel])
