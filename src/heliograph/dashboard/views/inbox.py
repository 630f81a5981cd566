"""The inbox: what simulators delivered to a team, as its recipients would see it; codes are shown here only."""

import asyncio
from typing import Any

import msgspec

from heliograph.accept.verify_start import inbox_text
from heliograph.dashboard.views import live
from heliograph.dashboard.views.previews import framed
from heliograph.dashboard.visit import Answer, Download, Gone, Page, Redirect, Visit
from heliograph.manage import inbox
from heliograph.rules.content import CONTENTS, EmailContent, SmsContent, WhatsappContent
from heliograph.rules.gsm import segment
from heliograph.rules.magic import magic_code
from heliograph.rules.routing import simulator_ids
from heliograph.rules.setup.records import Channel
from heliograph.storage.inbox import CodeLine, InboxItem, InboxSearch

TABS = {"email": "Email", "sms": "SMS", "whatsapp": "WhatsApp", "verification": "Codes"}
CHANNELS: dict[str, Channel] = {"email": "email", "sms": "sms", "whatsapp": "whatsapp"}


class Code(msgspec.Struct, frozen=True, kw_only=True):
    line: CodeLine
    code: str | None = None  # of a magic number; None and no text: none matches
    text: str = ""
    segments: Any = None


async def show(visit: Visit) -> Answer:
    tab = visit.query.get("channel", "email")
    if tab not in TABS:
        raise Gone
    text = visit.query.get("q", "").replace("\0", "").strip()
    team, before = visit.team.record.ref, visit.query.get("before", "").replace("\0", "")
    stream = "" if "before" in visit.query else await live.team_stream_address(visit, "inbox")
    values = {"tabs": TABS, "tab": tab, "q": text, "live": stream}
    if tab == "verification":
        codes = await visit.store.inbox.codes(team, InboxSearch(text=text.lower(), before=before))
        shown = {"page": codes, "lines": [_code(visit, line) for line in codes.lines]}
    else:
        found = await visit.store.inbox.messages(
            team, [CHANNELS[tab]], simulators(visit), InboxSearch(text=text.lower(), before=before)
        )
        shown = {"page": found, "lines": found.lines}
    return Page("inbox.html", values | shown)


async def show_one(visit: Visit) -> Answer:
    item, content = await _item(visit)
    segments = segment(content.body) if isinstance(content, SmsContent) else None
    values = {"id": visit.params["id"], "item": item, "content": content, "segments": segments}
    return Page("inbox_item.html", values | {"pictures": visit.query.get("pictures") == "yes"})


async def frame(visit: Visit) -> Answer:
    """The HTML of a mail, for a sandboxed frame."""
    _, content = await _item(visit)
    if not isinstance(content, EmailContent) or content.html is None:
        raise Gone
    return framed(content.html, images=visit.query.get("pictures") == "yes")


async def download(visit: Visit) -> Answer:
    item, content = await _item(visit)
    if not isinstance(content, EmailContent) or item.content is None:
        raise Gone
    id_ = visit.params["id"]
    mail = await asyncio.to_thread(visit.tools.eml, id_, item.content)
    return Download(mail, "message/rfc822", f"{id_}.eml")


async def clear(visit: Visit) -> Answer:
    await inbox.clear(visit.store, visit.actor, visit.team.record)
    return Redirect(f"{visit.base}/inbox", "The inbox is empty. The messages themselves are kept.")


def simulators(visit: Visit) -> list[str]:
    """The ids of the carriers that send nothing."""
    return simulator_ids(visit.setup.carriers)


async def _item(visit: Visit) -> tuple[InboxItem, EmailContent | SmsContent | WhatsappContent | None]:
    item = await visit.store.inbox.item(visit.team.record.ref, visit.params["id"], simulators(visit))
    if item is None:
        raise Gone
    return item, msgspec.json.decode(item.content, type=CONTENTS[item.channel]) if item.content else None


def _code(visit: Visit, line: CodeLine) -> Code:
    """A text is there until its verification ends, for those who may send."""
    if line.magic:
        return Code(line=line, code=magic_code(line.phone))
    if line.status != "pending" or not visit.may("developer"):
        return Code(line=line)
    text = inbox_text(visit.context, visit.caller, line.id)
    return Code(line=line, text=text, segments=segment(text))
