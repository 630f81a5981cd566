"""Phones that opted out: list, add, and remove after confirmation."""

from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit, errors_of
from heliograph.domain.refusals import OptOutNotFound, Refusal
from heliograph.domain.text import whole_number
from heliograph.inbound.store.opt_outs import START, OptOutPlace
from heliograph.manage import opt_outs

SHOWN = 50


async def show(visit: Visit) -> Answer:
    before = _place(visit.query.get("before", ""))
    found = await visit.store.opt_outs.page(visit.team.record.ref, before, SHOWN)
    lines, last = found[:SHOWN], found[SHOWN - 1] if len(found) > SHOWN else None
    values = {
        "lines": lines,
        "before": f"{last.created_at}~{last.phone}~{last.channel}" if last else "",
    }
    return Page("opt_outs.html", values)


async def add(visit: Visit) -> Answer:
    phone, channel = visit.form.get("phone", "").strip(), visit.form.get("channel", "")
    try:
        is_new = await opt_outs.add(visit.store, visit.actor, visit.team.record, phone, channel)
    except Refusal as refusal:
        return await show_new(visit, errors_of(refusal))
    if not is_new:
        return await show_new(visit, {"phone": "This phone is already on the list."})
    return Redirect(_here(visit), f"{phone} gets no more messages from this team on this channel.")


async def show_new(visit: Visit, errors: dict[str, str] | None = None) -> Answer:
    return Page("opt_out_new.html", {"errors": errors or {}, "form": visit.form}, 400 if errors else 200)


async def ask_remove(visit: Visit) -> Answer:
    phone, channel = visit.query.get("phone", ""), visit.query.get("channel", "")
    try:
        (found,) = await opt_outs.find(visit.store, visit.team.record, phone, channel)
    except Refusal:  # page reloaded after the removal, or opened without its parameters
        return Redirect(_here(visit), "This phone is not on the list.")
    return Page("opt_out_remove.html", {"found": found})


async def remove(visit: Visit) -> Answer:
    phone, channel = visit.form.get("phone", "").strip(), visit.form.get("channel", "")
    try:
        await opt_outs.remove(visit.store, visit.actor, visit.team.record, phone, channel)
    except OptOutNotFound:
        return Redirect(_here(visit), "This phone is no longer on the list.")
    return Redirect(_here(visit), f"{phone} can be written to again.")


def _place(text: str) -> OptOutPlace:
    time, _, rest = text.partition("~")
    phone, _, channel = rest.partition("~")
    return START if (at := whole_number(time, 15)) is None else OptOutPlace(at, phone, channel)


def _here(visit: Visit) -> str:
    return f"{visit.base}/opt-outs"
