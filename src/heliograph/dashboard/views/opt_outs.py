"""Phones that opted out: list, add, and remove after confirmation."""

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.refusals import OptOutNotFound, Refusal
from heliograph.domain.text import parse_int
from heliograph.inbound.store.opt_outs import FIRST_PAGE, OptOutCursor
from heliograph.manage import opt_outs

PAGE_SIZE = 50


async def show(request: PageRequest) -> PageResponse:
    before = _parse_cursor(request.query.get("before", ""))
    opt_out_rows = await request.store.opt_outs.list_page(request.team.record.ref, before, PAGE_SIZE)
    rows, last_row = opt_out_rows[:PAGE_SIZE], opt_out_rows[PAGE_SIZE - 1] if len(opt_out_rows) > PAGE_SIZE else None
    cursor = f"{last_row.created_at}~{last_row.phone}~{last_row.channel}" if last_row else ""
    return Page("opt_outs.html", {"lines": rows, "before": cursor})


async def add(request: PageRequest) -> PageResponse:
    phone, channel = request.form.get("phone", "").strip(), request.form.get("channel", "")
    try:
        is_new = await opt_outs.add(request.store, request.actor, request.team.record, phone, channel)
    except Refusal as refusal:
        return await show_new(request, field_errors(refusal))
    if not is_new:
        return await show_new(request, {"phone": "This number is already on the list."})
    return Redirect(_list_url(request), f"{phone} opted out of this channel.")


async def show_new(request: PageRequest, errors: dict[str, str] | None = None) -> PageResponse:
    return Page.form("opt_out_new.html", {"form": request.form}, errors)


async def confirm_remove(request: PageRequest) -> PageResponse:
    phone, channel = request.query.get("phone", ""), request.query.get("channel", "")
    try:
        (opt_out,) = await opt_outs.find(request.store, request.team.record, phone, channel)
    except Refusal:  # the page was reloaded after the removal, or opened without parameters
        return Redirect(_list_url(request), "This number is not on the list.")
    return Page("opt_out_remove.html", {"opt_out": opt_out})


async def remove(request: PageRequest) -> PageResponse:
    phone, channel = request.form.get("phone", "").strip(), request.form.get("channel", "")
    try:
        await opt_outs.remove(request.store, request.actor, request.team.record, phone, channel)
    except OptOutNotFound:
        return Redirect(_list_url(request), "This number is no longer on the list.")
    return Redirect(_list_url(request), f"{phone} can receive messages again.")


def _parse_cursor(text: str) -> OptOutCursor:
    time_text, _, phone_and_channel = text.partition("~")
    phone, _, channel = phone_and_channel.partition("~")
    return FIRST_PAGE if (time_ms := parse_int(time_text, 15)) is None else OptOutCursor(time_ms, phone, channel)


def _list_url(request: PageRequest) -> str:
    return f"{request.team_path}/opt-outs"
