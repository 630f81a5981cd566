"""Recipients who unsubscribed from a category: list, add, and resubscribe after confirmation."""

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.refusals import Refusal, UnsubscribeNotFound
from heliograph.domain.text import parse_int
from heliograph.manage import unsubscribes
from heliograph.storage.unsubscribes import FIRST_PAGE, UnsubscribeCursor

PAGE_SIZE = 50


async def show(request: PageRequest) -> PageResponse:
    before = _parse_cursor(request.query.get("before", ""))
    entries = await request.store.unsubscribes.list_page(request.team.record.ref, before, PAGE_SIZE)
    rows, last_row = entries[:PAGE_SIZE], entries[PAGE_SIZE - 1] if len(entries) > PAGE_SIZE else None
    cursor = f"{last_row.created_at}~{last_row.category}~{last_row.address}" if last_row else ""
    return Page("unsubscribes.html", {"lines": rows, "before": cursor})


async def add(request: PageRequest) -> PageResponse:
    address, category = request.form.get("address", "").strip(), request.form.get("category", "")
    try:
        is_new = await unsubscribes.add(request.store, request.actor, request.team.record, address, category)
    except Refusal as refusal:
        return await show_new(request, field_errors(refusal))
    if not is_new:
        return await show_new(request, {"address": "This address is already on the list."})
    return Redirect(_list_url(request), f"{address} is unsubscribed from {category}.")


async def show_new(request: PageRequest, errors: dict[str, str] | None = None) -> PageResponse:
    choices = [(category, category) for category in request.team.record.categories]
    return Page.form("unsubscribe_new.html", {"form": request.form, "choices": choices}, errors)


async def confirm_remove(request: PageRequest) -> PageResponse:
    address, category = request.query.get("address", ""), request.query.get("category", "")
    try:
        (entry,) = await unsubscribes.find(request.store, request.team.record, address, category)
    except Refusal:  # the page was reloaded after the removal, or opened without parameters
        return Redirect(_list_url(request), "This address is not on the list.")
    return Page("unsubscribe_remove.html", {"unsubscribe": entry})


async def remove(request: PageRequest) -> PageResponse:
    address, category = request.form.get("address", "").strip(), request.form.get("category", "")
    try:
        await unsubscribes.remove(request.store, request.actor, request.team.record, address, category)
    except UnsubscribeNotFound:
        return Redirect(_list_url(request), "This address is no longer on the list.")
    return Redirect(_list_url(request), f"{address} can receive {category} emails again.")


def _parse_cursor(text: str) -> UnsubscribeCursor:
    time_text, _, category_and_address = text.partition("~")
    category, _, address = category_and_address.partition("~")
    return (
        FIRST_PAGE if (time_ms := parse_int(time_text, 15)) is None else UnsubscribeCursor(time_ms, address, category)
    )


def _list_url(request: PageRequest) -> str:
    return f"{request.team_path}/unsubscribes"
