"""Billing of a team: plan and quota, credit, ledger with the balance after each entry, and price list."""

from collections.abc import AsyncGenerator
from datetime import date
from typing import Any

import msgspec

from heliograph.dashboard.csv_rows import csv_lines
from heliograph.dashboard.page_request import Answer, Page, Redirect, Stream, Visit
from heliograph.dashboard.views.messages import line_of
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.phones.countries import country_name
from heliograph.domain.sending.pricing import format_money, month_of, verify_price
from heliograph.domain.text import whole_number
from heliograph.storage.ledger import Cursor, Entry

PAGE = 50
MONTHS = 12
PORTION = 1000  # lines read per batch of an export
COLUMNS = ("time", "kind", "amount", "credit_change", "credit", "currency", "subject")


async def show(visit: Visit) -> Answer:
    team, cursor = visit.team, _cursor(visit.query.get("before", ""))
    account = await visit.store.ledger.account(team.record.ref)
    page = await visit.store.ledger.page(team.record.ref, cursor, PAGE)
    entries = _told_once(page.entries)
    months = _months(visit.context.clock.of(team.record.ref))
    this_month = account.month == month_of(visit.context.clock.of(visit.team.record.ref))
    return Page(
        "billing.html",
        {
            "record": team.record,
            "account": account,
            "used": account.used if this_month else 0,
            "entries": entries,
            "sent": await _sent(visit, entries),
            "spend": await visit.store.ledger.spend(team.record.ref, months[-1]),
            "months": months,
            "month_name": _month_name,
            "country_name": country_name,
            "later": bool(cursor),
            "following": f"{page.following.key}.{page.following.balance}" if page.following else "",
            "templates": sorted(team.templates.values(), key=lambda t: (t.channel, t.name)),
            "verify_price": verify_price(visit.setup.platform, team.record.currency),
        },
    )


def _months(now: int) -> list[str]:
    """Return the last twelve months, such as '2026-11', newest first."""
    year, month = map(int, month_of(now).split("-"))
    return [f"{(at := year * 12 + month - 1 - back) // 12}-{at % 12 + 1:02d}" for back in range(MONTHS)]


def _month_name(month: str) -> str:
    return date.fromisoformat(f"{month}-01").strftime("%B %Y")


async def _sent(visit: Visit, entries: list[Entry]) -> dict[str, dict[str, Any]]:
    """Return the message list row of each message in the ledger entries, by message id."""
    kinds = tuple(PREFIXES[channel] for channel in ("email", "sms", "whatsapp"))
    ids = dict.fromkeys(entry.subject for entry in entries if entry.subject and entry.subject.startswith(kinds))
    found = await visit.store.messages.lines(visit.team.record.ref, ids)
    return {id_: line_of(visit, line) for id_, line in found.items()}


def _told_once(entries: list[Entry]) -> list[Entry]:
    """Merge a message's charge into the entry of its hold, which changed the credit; the export lists both entries."""
    held = {entry.subject for entry in entries if entry.kind == "hold"}
    charged = {entry.subject for entry in entries if entry.kind == "capture"}
    return [
        msgspec.structs.replace(entry, kind="capture") if entry.kind == "hold" and entry.subject in charged else entry
        for entry in entries
        if entry.kind != "capture" or entry.subject not in held
    ]


async def moved(visit: Visit) -> Answer:
    """Redirect from the page's former URL, which users may have bookmarked."""
    return Redirect(f"{visit.base}/billing")


async def export(visit: Visit) -> Answer:
    return Stream(_lines(visit), "text/csv; charset=utf-8", f"ledger-{visit.team.record.id}.csv")


async def _lines(visit: Visit) -> AsyncGenerator[bytes, None]:
    yield csv_lines([COLUMNS])
    team, cursor = visit.team.record, None
    while True:
        page = await visit.store.ledger.page(team.ref, cursor, PORTION)
        yield csv_lines([_row(entry, team.currency) for entry in page.entries])
        cursor = page.following
        if cursor is None:
            return


def _row(entry: Entry, currency: str) -> tuple[str, ...]:
    amounts = (format_money(amount) for amount in (entry.amount, entry.moved, entry.balance))
    subject = entry.subject or ""
    return (timestamp(entry.created_at), entry.kind, *amounts, currency, subject)


def _cursor(text: str) -> Cursor | None:
    """Parse a cursor `key.credit`; None, for the newest entry, if invalid."""
    left, _, right = text.partition(".")
    key, balance = whole_number(left, 18), whole_number(right, 18)
    return None if key is None or balance is None else Cursor(key, balance)
