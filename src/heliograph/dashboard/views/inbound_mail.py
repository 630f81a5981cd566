"""Inbound messages of a team: mail with attachments, SMS and WhatsApp. HTML is sandboxed as in the test inbox."""

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.dashboard.page_request import Answer, Download, Gone, Page, Visit
from heliograph.dashboard.views.previews import framed, in_bytes, listed, pictures_in, shown_or_saved, with_pictures
from heliograph.inbound.policy.inbound_mail import ReceivedRecord, attachment_in
from heliograph.inbound.store.inbound_mail import LAST, ReceivedLine
from heliograph.storage.events import NEWEST
from heliograph.web.read_budget import work

PAGE = 50
TABS = {"email": "Email", "texts": "Texts"}
TEXTS = ("sms.received", "whatsapp.received")
VIEWS = {"reply": "Reply", "html": "HTML", "text": "Text", "headers": "Headers"}


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """Row of the list of inbound mail: only the fields that the row shows."""

    id: str
    from_: str = msgspec.field(name="from")
    subject: str
    recipients: list[str]
    in_reply_to: str | None
    attachments: list[Any]


async def show(visit: Visit) -> Answer:
    tab = visit.query.get("tab", "email")
    if tab not in TABS:
        raise Gone
    before = visit.query.get("before", "")
    found, older = await (_mails(visit, before) if tab == "email" else _texts(visit, before))
    return Page("received.html", {"tabs": TABS, "tab": tab, "found": found, "older": older, "first": not before})


async def _mails(visit: Visit, before: str) -> tuple[Sequence[Any], str]:
    team, received = visit.team.record.ref, visit.store.received
    lines = await received.newest(team, before or LAST, PAGE + 1)
    await visit.hold(sum(line.octets for line in lines[:PAGE]))
    records = await received.records(team, [line.id for line in lines[:PAGE]])
    known = {one.id: one for one in (msgspec.json.decode(record, type=Came) for record in records)}
    found = [(line, known[line.id]) for line in lines[:PAGE] if line.id in known]
    return found, lines[PAGE - 1].id if len(lines) > PAGE else ""


async def _texts(visit: Visit, before: str) -> tuple[Sequence[Any], str]:
    """Return a page of inbound SMS and WhatsApp messages, stored as events, and the cursor of the next page."""
    page = await visit.store.events.newest(visit.team.record.ref, TEXTS, before or NEWEST, PAGE)
    return [(event, msgspec.json.decode(event.detail or "{}")) for event in page.events], page.before or ""


async def show_one(visit: Visit) -> Answer:
    line, mail = await _read(visit)
    views = {
        name: label
        for name, label in VIEWS.items()
        if name == "headers" or {"reply": mail.reply_text, "html": mail.html, "text": mail.text}[name]
    }
    view = visit.query.get("view", "")
    values = {
        "line": line,
        "mail": mail,
        "views": views,
        "view": view if view in views else next(iter(views)),
        "files": listed(mail.attachments),
        "size": in_bytes(line.size),
        "pictures": visit.query.get("pictures") == "yes",
    }
    return Page("received_one.html", values, size=line.octets)


async def frame(visit: Visit) -> Answer:
    """Return the HTML of a mail with its inline images, for a sandboxed iframe."""
    line, mail = await _read(visit)
    if (html := mail.html) is None:
        raise Gone
    inline = pictures_in(mail.attachments)
    raw = await visit.store.received.raw(line, visit.hold) if inline else None

    def shown() -> Download:
        files = [(file, (attachment_in(raw, file.id) if raw else None) or b"") for file in inline]
        return framed(with_pictures(html, files), images=visit.query.get("pictures") == "yes")

    return await work(line.octets + (line.size if raw else 0), shown)


async def download(visit: Visit) -> Answer:
    line, _ = await _read(visit)
    return Download(await _raw(visit, line), "message/rfc822", f"{line.id}.eml")


async def attachment(visit: Visit) -> Answer:
    line, mail = await _read(visit)
    file = next((one for one in mail.attachments if one.id == visit.params["attachment"]), None)
    if file is None:
        raise Gone
    body = await work(line.size, attachment_in, await _raw(visit, line), file.id)
    return shown_or_saved(visit, file, body or b"")


async def _raw(visit: Visit, line: ReceivedLine) -> bytes:
    raw = await visit.store.received.raw(line, visit.hold)
    if raw is None:
        raise Gone("The mail as it came is no longer kept.")
    return raw


async def _read(visit: Visit) -> tuple[ReceivedLine, ReceivedRecord]:
    team = visit.team.record.ref
    line = await visit.store.received.find(team, visit.params["id"])
    mail = await visit.store.received.whole(team, line, visit.hold) if line else None
    if line is None or mail is None:
        raise Gone
    return line, mail
