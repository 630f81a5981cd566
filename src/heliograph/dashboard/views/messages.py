"""Messages of every channel: the list and its search."""

from typing import Any
from urllib.parse import urlencode

import msgspec

from heliograph.dashboard.views import live
from heliograph.dashboard.visit import Answer, Page, Redirect, Visit
from heliograph.rules.address import parse_address
from heliograph.rules.grams import read_needle
from heliograph.rules.ids import PREFIXES, parse_timestamp, ulid_ms
from heliograph.rules.limits import DAY_MS
from heliograph.rules.message import STATES
from heliograph.rules.phone import read_phone
from heliograph.rules.refusals import Refusal
from heliograph.storage.search import CHANNELS, FOREVER, MessageLine, Row, Search, SearchPage

PAGE = 50
STATUSES = tuple(dict.fromkeys(state for states in STATES.values() for state in states))
NAMES = {"email": "Email", "sms": "SMS", "whatsapp": "WhatsApp"}


async def show_list(visit: Visit) -> Answer:
    text = typed(visit)
    if page := await page_of(visit, text):
        return Redirect(page)
    wanted, errors = read_filter(visit, STATUSES)
    channel = visit.query.get("channel")
    wanted = msgspec.structs.replace(
        wanted,
        channel=channel if channel in CHANNELS else None,
        template_id=template if is_id(template := visit.query.get("template", "")) else None,
        needle=read_needle(text) if wanted.address is None else None,
    )
    stream = "" if errors or wanted.before else await live.team_stream_address(visit, "messages")
    none = SearchPage[MessageLine](lines=[])
    found = none if errors else await visit.store.messages.search(visit.team.record.ref, wanted)
    values = {
        "live": stream,
        "lines": [_line(visit, line) for line in found.lines],
        "templates": sorted((one.name, one.channel, one.id) for one in visit.team.templates.values()),
        "statuses": STATUSES,
        "channels": NAMES,
        **paging(visit, found),
    }
    return Page("messages.html", values | {"errors": errors}, 400 if errors else 200)


def typed(visit: Visit) -> str:
    """What is searched for."""
    return visit.query.get("q", "").replace("\0", "").strip()


def is_id(text: str) -> bool:
    """Could be one; anything else is not worth a question to the database."""
    return text.isascii() and text.replace("_", "").isalnum()


async def page_of(visit: Visit, text: str) -> str | None:
    """The page of the message or verification whose id was typed."""
    team = visit.team.record.ref
    if not is_id(text):
        return None
    if text.startswith(PREFIXES["verification"]):
        return f"{visit.base}/verifications/{text}" if await visit.store.verifications.get(team, text) else None
    if text.startswith(tuple(PREFIXES[channel] for channel in CHANNELS)):
        return f"{visit.base}/messages/{text}" if await visit.store.pulses.message(team, text) else None
    return None


def read_filter(visit: Visit, statuses: tuple[str, ...]) -> tuple[Search, dict[str, str]]:
    """What messages and verifications have in common, and what is wrong with it."""
    errors: dict[str, str] = {}
    days: dict[str, int] = {}
    for name in ("from", "until"):
        if given := visit.query.get(name, ""):
            at = parse_timestamp(f"{given}T00:00:00Z")
            if at is None:
                errors[name] = "Give a day such as 2026-11-15."
            else:
                days[name] = at
    status = visit.query.get("status")
    wanted = Search(
        limit=PAGE,
        status=status if status in statuses else None,
        address=_address(typed(visit)),
        created_after=max(0, days.get("from", 1) - 1),
        created_before=days["until"] + DAY_MS if "until" in days else FOREVER,
        before=before if is_id(before := visit.query.get("before", "")) else None,
    )
    return wanted, errors


def _address(text: str) -> str | None:
    """The normal form of a whole email address or phone number."""
    if address := parse_address(text):
        return address.normal
    try:
        return read_phone("".join(text.split()))
    except Refusal:
        return None


def paging(visit: Visit, found: SearchPage[Row]) -> dict[str, Any]:
    kept = {name: value for name, value in visit.query.items() if name != "before" and value}
    after = found.after
    return {
        "query": visit.query,
        "is_filtered": bool(kept),
        "newest": f"?{urlencode(kept)}" if "before" in visit.query else None,
        "older": f"?{urlencode(kept | {'before': after})}" if after else None,
        "reached": ulid_ms(after[4:]) if after and found.is_cut else None,
    }


def _line(visit: Visit, line: MessageLine) -> dict[str, Any]:
    record = msgspec.json.decode(line.record)
    return {
        "id": line.id,
        "channel": NAMES[line.channel],
        "status": line.status,
        "created_at": line.created_at,
        "to": record.get("to", ""),
        "others": record.get("recipient_count", 1) - 1,
        "about": record.get("subject") or template_name(visit, line.template_id) or "(no subject)",
    }


def template_name(visit: Visit, id_: str | None) -> str:
    template = visit.team.templates.get(id_ or "")
    return template.name if template else id_ or ""
