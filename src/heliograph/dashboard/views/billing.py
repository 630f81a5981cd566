"""Billing of a team: plan and quota, credit, ledger with the balance after each entry, and price list."""

from collections.abc import AsyncGenerator, Iterable
from datetime import date
from typing import Any

import msgspec

from heliograph.dashboard.alerts import emails_used_this_month
from heliograph.dashboard.csv_rows import encode_csv
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, Stream
from heliograph.dashboard.views.messages import build_row
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.phones.countries import country_name
from heliograph.domain.sending.pricing import format_amount, format_money, month_of, verify_price
from heliograph.domain.text import parse_int
from heliograph.storage.ledger import Cursor, LedgerEntry

PAGE_SIZE = 50
NEWEST_SHOWN = 10  # entries shown before the link "All entries"
MONTHS_SHOWN = 12
EXPORT_BATCH = 1000  # entries read at once by an export
COLUMNS = ("time", "kind", "amount", "credit_change", "credit", "currency", "subject")


async def show(request: PageRequest) -> PageResponse:
    team, cursor = request.team, _parse_cursor(request.query.get("before", ""))
    account = await request.store.ledger.get_account(team.record.ref)
    page = await request.store.ledger.list_page(team.record.ref, cursor, PAGE_SIZE)
    all_entries = _merge_charges(page.entries)
    is_all = bool(cursor) or "all" in request.query
    entries = all_entries if is_all else all_entries[:NEWEST_SHOWN]
    now = request.context.clock.team_now(team.record.ref)
    months = _last_months(now)
    templates = sorted(team.templates.values(), key=lambda template: (template.channel, template.name))
    return Page(
        "billing.html",
        {
            "record": team.record,
            "account": account,
            "used": emails_used_this_month(account, now),
            "entries": entries,
            "decimals": _max_decimals(amount for entry in entries for amount in (entry.change, entry.balance)),
            "has_more": len(all_entries) > len(entries) or (not is_all and page.next_cursor is not None),
            "sent": await _list_messages(request, entries),
            "spend": await request.store.ledger.get_spend(team.record.ref, months[-1]),
            "months": months,
            "month_name": _month_name,
            "country_name": country_name,
            "later": bool(cursor),
            "following": f"{page.next_cursor.key}.{page.next_cursor.balance}" if page.next_cursor and is_all else "",
            "templates": templates,
            "price_decimals": _max_decimals(template.price for template in templates),
            "verify_price": verify_price(request.setup.platform, team.record.currency),
        },
    )


def _max_decimals(amounts: Iterable[int]) -> int:
    """Return how many decimals a column with these amounts needs."""
    return max((len(format_amount(amount).partition(".")[2]) for amount in amounts), default=2)


def _last_months(now: int) -> list[str]:
    """Return the last twelve months, such as '2026-11', newest first."""
    year, month = map(int, month_of(now).split("-"))
    return [
        f"{(month_number := year * 12 + month - 1 - months_ago) // 12}-{month_number % 12 + 1:02d}"
        for months_ago in range(MONTHS_SHOWN)
    ]


def _month_name(month: str) -> str:
    return date.fromisoformat(f"{month}-01").strftime("%B %Y")


async def _list_messages(request: PageRequest, entries: list[LedgerEntry]) -> dict[str, dict[str, Any]]:
    """Return message id → row of the message list, for the messages in the ledger entries."""
    kinds = tuple(PREFIXES[channel] for channel in ("email", "sms", "whatsapp"))
    ids = dict.fromkeys(entry.subject for entry in entries if entry.subject and entry.subject.startswith(kinds))
    messages = await request.store.messages.find_rows(request.team.record.ref, ids)
    return {id_: build_row(request, message) for id_, message in messages.items()}


def _merge_charges(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    """Merge the hold and the charge of a message into one charge, because only the hold changed the credit."""
    ids_with_hold = {entry.subject for entry in entries if entry.kind == "hold"}
    ids_with_charge = {entry.subject for entry in entries if entry.kind == "capture"}
    return [
        msgspec.structs.replace(entry, kind="capture")
        if entry.kind == "hold" and entry.subject in ids_with_charge
        else entry
        for entry in entries
        if entry.kind != "capture" or entry.subject not in ids_with_hold
    ]


async def redirect_old_url(request: PageRequest) -> PageResponse:
    """Redirect from the former URL, which users may have bookmarked."""
    return Redirect(f"{request.team_path}/billing")


async def export(request: PageRequest) -> PageResponse:
    return Stream(_export_rows(request), "text/csv; charset=utf-8", f"ledger-{request.team.record.id}.csv")


async def _export_rows(request: PageRequest) -> AsyncGenerator[bytes, None]:
    yield encode_csv([COLUMNS])
    team, cursor = request.team.record, None
    while True:
        page = await request.store.ledger.list_page(team.ref, cursor, EXPORT_BATCH)
        yield encode_csv([_csv_row(entry, team.currency) for entry in page.entries])
        cursor = page.next_cursor
        if cursor is None:
            return


def _csv_row(entry: LedgerEntry, currency: str) -> tuple[str, ...]:
    amounts = (format_money(amount) for amount in (entry.amount, entry.change, entry.balance))
    subject = entry.subject or ""
    return (timestamp(entry.created_at), entry.kind, *amounts, currency, subject)


def _parse_cursor(text: str) -> Cursor | None:
    """Parse `<key of a ledger entry>.<credit before it>`; None, which means the newest entry, if `text` is invalid."""
    key_text, _, balance_text = text.partition(".")
    key, balance = parse_int(key_text, 18), parse_int(balance_text, 18)
    return None if key is None or balance is None else Cursor(key, balance)
