"""The suppression list: search, add, remove after a question, export, and import of a CSV file in the background."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from heliograph.accept.suppression import REASONS
from heliograph.dashboard.csv_lines import csv_lines
from heliograph.dashboard.live import Pulse, Watch
from heliograph.dashboard.views.live import stream, stream_place
from heliograph.dashboard.visit import Answer, Gone, Page, Redirect, Stream, Visit
from heliograph.rules.address import Address, parse_address
from heliograph.rules.ids import timestamp
from heliograph.rules.suppression_file import Unreadable, read_lines
from heliograph.storage import imports, suppressions
from heliograph.storage.imports import Import
from heliograph.storage.setup import NewSuppression
from heliograph.storage.suppressions import START, Place

EXPORT_PORTION = 1000
LIVE_S = 0.5


async def show(visit: Visit) -> Answer:
    return await _list(visit)


async def add(visit: Visit) -> Answer:
    address, reason = _address(visit.form.get("email", "")), visit.form.get("reason", "manual")
    if address is None:
        return await _list(visit, {"email": "This is not an email address."})
    if reason not in REASONS:
        return await _list(visit, {"reason": f"Choose one of {', '.join(REASONS)}."})
    given = NewSuppression(visit.team.record.ref, address.normal, address.given, reason)
    if not await visit.context.store.suppressions.add(given):
        return await _list(visit, {"email": "This address is already on the list."})
    await visit.note("suppression.add", address.given, reason)
    return Redirect(_here(visit), f"{address.given} gets no more mail from this team.")


async def ask_remove(visit: Visit) -> Answer:
    address = _address(visit.query.get("email", ""))
    found = await visit.context.store.suppressions.get(visit.team.record.ref, address.normal) if address else None
    if found is None:
        raise Gone
    return Page("suppression_remove.html", {"found": found})


async def remove(visit: Visit) -> Answer:
    address = _address(visit.form.get("email", ""))
    if address is None or not await visit.context.store.suppressions.remove(visit.team.record.ref, address.normal):
        return Redirect(_here(visit), "This address is no longer on the list.")
    await visit.note("suppression.remove", address.given)
    return Redirect(_here(visit), f"{address.given} can be mailed again.")


async def export(visit: Visit) -> Answer:
    return Stream(_lines(visit), "text/csv; charset=utf-8", "suppressions.csv")


async def _lines(visit: Visit) -> AsyncIterator[bytes]:
    yield csv_lines([("email", "reason", "source_message_id", "created_at")])
    before: Place | None = START
    while before is not None:
        search = partial(suppressions.search, team=visit.team.record.ref, text="", before=before, limit=EXPORT_PORTION)
        lines, before = await visit.context.store.database.read(search)
        yield csv_lines((x.email, x.reason, x.source_message_id or "", timestamp(x.created_at)) for x in lines)


# -- imports ------------------------------------------------------------------------------------------------


async def import_file(visit: Visit) -> Answer:
    file = visit.files.get("file", b"")
    if not file:
        return await _list(visit, {"file": "Choose a CSV file."})
    try:
        lines = await asyncio.to_thread(read_lines, file, REASONS)
    except Unreadable as error:
        return await _list(visit, {"file": str(error)})
    id_ = visit.context.clock.new_id("imp_")
    note = visit.entry("suppression.import", id_, f"{len(lines)} lines")
    await imports.begin(visit.context.store.database, id_, visit.team.record.ref, lines, note)
    visit.context.store.imports.begun.set()
    return Redirect(f"{_here(visit)}/imports/{id_}")


async def show_import(visit: Visit) -> Answer:
    live_at = await stream_place(visit, f"{_here(visit)}/imports/{visit.params['id']}/live", _followed(visit))
    begun = await _import(visit)
    left = await visit.context.store.database.read(partial(imports.first_left, id_=begun.id))
    return Page("suppression_import.html", {"begun": begun, "left": left, "live": live_at})


async def report(visit: Visit) -> Answer:
    begun = await _import(visit)
    return Stream(_report(visit, begun), "text/csv; charset=utf-8", f"{begun.id}.csv")


async def _report(visit: Visit, begun: Import) -> AsyncIterator[bytes]:
    yield csv_lines([("line", "email", "reason", "outcome")])
    after: int | None = -1
    while after is not None:
        lines, after = await visit.context.store.database.read(partial(imports.report, id_=begun.id, after=after))
        yield csv_lines((str(line.number), line.text, line.reason, outcome) for line, outcome in lines)


async def live(visit: Visit) -> Answer:
    await _import(visit)
    return stream(visit, _followed(visit))


def _followed(visit: Visit) -> Watch:
    async def read() -> Pulse:
        begun = await _import(visit)
        return Pulse({"done": f"{begun.lines_done}-{begun.state}"}, over=begun.state != "importing")

    return Watch(key=("import", visit.params["id"]), read=read, parts=("done",), every_s=LIVE_S)


async def _import(visit: Visit) -> Import:
    team, id_ = visit.team.record.ref, visit.params["id"].replace("\0", "")
    begun = await visit.context.store.database.read(partial(imports.find, team=team, id_=id_))
    if begun is None:
        raise Gone
    return begun


# -- reading and answering ----------------------------------------------------------------------------------


async def _list(visit: Visit, errors: dict[str, str] | None = None) -> Page:
    text = visit.query.get("q", "").replace("\0", "").strip()
    whole = parse_address(text)  # in its normal form, whatever its case and script
    search = partial(
        suppressions.search,
        team=visit.team.record.ref,
        text=whole.normal if whole else text.lower(),
        before=_place(visit.query.get("before", "")),
    )
    lines, before = await visit.context.store.database.read(search)
    newest = await visit.context.store.database.read(partial(imports.newest, team=visit.team.record.ref))
    values = {"lines": lines, "q": text, "before": f"{before[0]}~{before[1]}" if before else "", "imports": newest}
    more = {"errors": errors or {}, "form": visit.form, "reasons": [(reason, reason) for reason in REASONS]}
    return Page("suppressions.html", values | more, 400 if errors else 200)


def _place(text: str) -> Place:
    at, _, address = text.replace("\0", "").partition("~")
    return (int(at), address) if at.isascii() and at.isdigit() and len(at) < 16 else START


def _address(text: str) -> Address | None:
    return parse_address(text.strip())


def _here(visit: Visit) -> str:
    return f"{visit.base}/suppressions"
