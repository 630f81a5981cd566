"""Suppression list: search, add, remove after confirmation, export, and CSV import in the background."""

from collections.abc import AsyncGenerator

from heliograph.dashboard.csv_rows import csv_lines
from heliograph.dashboard.live import Pulse, Watch
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Stream, Visit, errors_of
from heliograph.dashboard.views.live import stream, stream_address
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.suppression_file import DEFAULT
from heliograph.domain.refusals import Refusal, SuppressionNotFound
from heliograph.domain.text import whole_number
from heliograph.manage import imports, suppressions
from heliograph.storage.imports import Import
from heliograph.storage.suppressions import START, End

EXPORT_PORTION = 1000
LIVE_S = 0.5


async def add(visit: Visit) -> Answer:
    email, reason = visit.form.get("email", "").strip(), visit.form.get("reason", DEFAULT)
    try:
        is_new = await suppressions.add(visit.store, visit.actor, visit.team.record, email, reason)
    except Refusal as refusal:
        return await show_new(visit, errors_of(refusal))
    if not is_new:
        return await show_new(visit, {"email": "This address is already on the list."})
    return Redirect(_here(visit), f"{email} gets no more mail from this team.")


async def show_new(visit: Visit, errors: dict[str, str] | None = None) -> Answer:
    return Page("suppression_new.html", {"errors": errors or {}, "form": visit.form}, 400 if errors else 200)


async def ask_remove(visit: Visit) -> Answer:
    found = await suppressions.find(visit.store, visit.team.record, visit.query.get("email", "").strip())
    return Page("suppression_remove.html", {"found": found})


async def remove(visit: Visit) -> Answer:
    email = visit.form.get("email", "").strip()
    try:
        await suppressions.remove(visit.store, visit.actor, visit.team.record, email)
    except SuppressionNotFound:
        return Redirect(_here(visit), "This address is no longer on the list.")
    return Redirect(_here(visit), f"{email} can be mailed again.")


async def export(visit: Visit) -> Answer:
    return Stream(_lines(visit), "text/csv; charset=utf-8", "suppressions.csv")


async def _lines(visit: Visit) -> AsyncGenerator[bytes, None]:
    yield csv_lines([("email", "reason", "source_message_id", "created_at")])
    end: End | None = START
    while end is not None:
        page = await visit.store.suppressions.search(visit.team.record.ref, before=end, limit=EXPORT_PORTION)
        yield csv_lines((x.email, x.reason, x.source_message_id or "", timestamp(x.created_at)) for x in page.lines)
        end = page.end


# -- imports ------------------------------------------------------------------------------------------------


async def import_file(visit: Visit) -> Answer:
    file = visit.files.get("file", b"")
    if not file:
        return await show_upload(visit, {"file": "Choose a CSV file."})
    try:
        id_ = await imports.begin(visit.store, visit.actor, visit.team.record, file)
    except Refusal as refusal:
        return await show_upload(visit, errors_of(refusal))
    return Redirect(f"{_here(visit)}/imports/{id_}")


async def show_upload(visit: Visit, errors: dict[str, str] | None = None) -> Answer:
    return Page("suppression_upload.html", {"errors": errors or {}}, 400 if errors else 200)


async def show_import(visit: Visit) -> Answer:
    live_at = await stream_address(visit, f"{_here(visit)}/imports/{visit.params['id']}/live", _followed(visit))
    begun = await _import(visit)
    left = await visit.store.imports.first_left(begun.id)
    return Page("suppression_import.html", {"begun": begun, "left": left, "live": live_at})


async def report(visit: Visit) -> Answer:
    begun = await _import(visit)
    return Stream(_report(visit, begun), "text/csv; charset=utf-8", f"{begun.id}.csv")


async def _report(visit: Visit, begun: Import) -> AsyncGenerator[bytes, None]:
    yield csv_lines([("line", "email", "reason", "outcome")])
    after: int | None = -1
    while after is not None:
        report = await visit.store.imports.report(begun.id, after)
        yield csv_lines((str(x.line.number), x.line.text, x.line.reason, x.outcome) for x in report.lines)
        after = report.after


async def live(visit: Visit) -> Answer:
    await _import(visit)
    return stream(visit, _followed(visit))


def _followed(visit: Visit) -> Watch:
    async def read() -> Pulse:
        begun = await _import(visit)
        return Pulse({"done": f"{begun.lines_done}-{begun.state}"}, over=begun.state != "importing")

    return Watch(key=("import", visit.params["id"]), read=read, parts=("done",), every_s=LIVE_S)


async def _import(visit: Visit) -> Import:
    team, id_ = visit.team.record.ref, visit.params["id"]
    begun = await visit.store.imports.find(team, id_)
    if begun is None:
        raise Gone
    return begun


# -- parsing and responses ----------------------------------------------------------------------------------


async def show(visit: Visit) -> Answer:
    text = visit.query.get("q", "").strip()
    team, before = visit.team.record.ref, _end(visit.query.get("before", ""))
    page = await visit.store.suppressions.search(team, part_of(text), before)
    values = {
        "lines": page.lines,
        "q": text,
        "before": f"{page.end.created_at}~{page.end.address}" if page.end else "",
        "imports": await visit.store.imports.newest(team) if visit.may("developer") else [],
    }
    return Page("suppressions.html", values)


def part_of(text: str) -> str:
    """Normalize a part of an address for the search, because the list stores normalized addresses."""
    whole = parse_address(text)
    return whole.normal if whole else text.lower()


def _end(text: str) -> End:
    time, _, address = text.partition("~")
    return START if (at := whole_number(time, 15)) is None else End(at, address)


def _here(visit: Visit) -> str:
    return f"{visit.base}/suppressions"
