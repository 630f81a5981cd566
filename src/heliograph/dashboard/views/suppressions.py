"""The suppression list: search, add, remove after a question, export, and import of a CSV file in the background."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import structlog

from heliograph.accept.suppression import REASONS
from heliograph.dashboard.csv_lines import csv_lines
from heliograph.dashboard.visit import Answer, Download, Gone, Page, Redirect, Stream, Visit
from heliograph.rules.address import Address, parse_address
from heliograph.rules.ids import timestamp
from heliograph.rules.suppression_file import Line, Unreadable, read_lines
from heliograph.storage import suppressions
from heliograph.storage.store import NewSuppression, Store
from heliograph.storage.suppressions import START, Place

PORTION = 500  # lines of an import in one transaction
EXPORT_PORTION = 5000
LINES_KEPT = 200_000  # of imports whose reports are kept, in this process
TOLD_EVERY_S = 0.3
ADDED, KNOWN = "added", "already on the list"

log = structlog.get_logger()


class Import(msgspec.Struct, kw_only=True):
    """A file on its way onto the list."""

    id: str
    team: str
    lines: list[Line]
    outcomes: list[str] = []  # of the lines done so far
    broken: bool = False  # it ended before its end

    @property
    def over(self) -> bool:
        return self.broken or len(self.outcomes) == len(self.lines)

    def count(self, outcome: str) -> int:
        return self.outcomes.count(outcome)


imports: dict[str, Import] = {}
_running: set["asyncio.Task[None]"] = set()  # the loop itself would let them go


async def show(visit: Visit) -> Answer:
    return await _list(visit)


async def add(visit: Visit) -> Answer:
    address, reason = _address(visit.form.get("email", "")), visit.form.get("reason", "manual")
    if address is None:
        return await _list(visit, {"email": "This is not an email address."})
    if reason not in REASONS:
        return await _list(visit, {"reason": f"Choose one of {', '.join(REASONS)}."})
    given = NewSuppression(visit.team.record.ref, address.normal, address.given, reason)
    if not await visit.desk.store.suppress(given):
        return await _list(visit, {"email": "This address is already on the list."})
    await visit.note("suppression.add", address.given, reason)
    return Redirect(_here(visit), f"{address.given} gets no more mail from this team.")


async def ask_remove(visit: Visit) -> Answer:
    address = _address(visit.query.get("email", ""))
    found = await visit.desk.store.suppression(visit.team.record.ref, address.normal) if address else None
    if found is None:
        raise Gone
    email, reason, source, _, created_at = found
    values = {"email": email, "reason": reason, "source": source, "created_at": created_at}
    return Page("suppression_remove.html", values)


async def remove(visit: Visit) -> Answer:
    address = _address(visit.form.get("email", ""))
    if address is None or not await visit.desk.store.unsuppress(visit.team.record.ref, address.normal):
        return Redirect(_here(visit), "This address is no longer on the list.")
    await visit.note("suppression.remove", address.given)
    return Redirect(_here(visit), f"{address.given} can be mailed again.")


async def export(visit: Visit) -> Answer:
    rows: list[tuple[str, ...]] = [("email", "reason", "source_message_id", "created_at")]
    before: Place | None = START
    while before is not None:
        search = partial(suppressions.search, team=visit.team.record.ref, text="", before=before, limit=EXPORT_PORTION)
        lines, before = await visit.desk.store.database.read(search)
        rows += [(x.email, x.reason, x.source_message_id or "", timestamp(x.created_at)) for x in lines]
    return Download(csv_lines(rows), "text/csv; charset=utf-8", "suppressions.csv")


# -- imports ------------------------------------------------------------------------------------------------


async def import_file(visit: Visit) -> Answer:
    file = visit.files.get("file", b"")
    if not file:
        return await _list(visit, {"file": "Choose a CSV file."})
    try:
        lines = await asyncio.to_thread(read_lines, file, REASONS)
    except Unreadable as error:
        return await _list(visit, {"file": str(error)})
    begun = Import(id=visit.desk.clock.new_id("imp_"), team=visit.team.record.id, lines=lines)
    while imports and sum(len(one.lines) for one in imports.values()) + len(lines) > LINES_KEPT:
        imports.pop(next(iter(imports)))
    imports[begun.id] = begun
    await visit.note("suppression.import", begun.id, f"{len(lines)} lines")
    task = asyncio.create_task(_run(visit.desk.store, visit.team.record.ref, begun))
    _running.add(task)
    task.add_done_callback(_running.discard)
    return Redirect(f"{_here(visit)}/imports/{begun.id}")


async def show_import(visit: Visit) -> Answer:
    begun = _import(visit)
    left_out = [(line, outcome) for line, outcome in _done(begun) if outcome not in (ADDED, KNOWN)]
    return Page("suppression_import.html", {"begun": begun, "left_out": left_out, "ADDED": ADDED, "KNOWN": KNOWN})


async def report(visit: Visit) -> Answer:
    begun = _import(visit)
    rows = [(str(line.number), line.text, line.reason, outcome) for line, outcome in _done(begun)]
    return Download(
        csv_lines([("line", "email", "reason", "outcome"), *rows]), "text/csv; charset=utf-8", f"{begun.id}.csv"
    )


async def live(visit: Visit) -> Answer:
    begun = _import(visit)
    if begun.over:
        raise Gone  # so that the browser does not ask again
    return Stream(_progress(begun))


async def _progress(begun: Import) -> AsyncIterator[bytes]:
    told = -1
    while True:
        if told != (told := len(begun.outcomes)) or begun.over:
            yield b"event: changed\ndata: %d\n\n" % told
        if begun.over:
            return
        await asyncio.sleep(TOLD_EVERY_S)


async def _run(store: Store, team: int, begun: Import) -> None:
    try:
        for start in range(0, len(begun.lines), PORTION):
            some = begun.lines[start : start + PORTION]
            given = [NewSuppression(team, x.address.normal, x.address.given, x.reason) for x in some if x.address]
            made = await store.suppress_all(given)
            begun.outcomes += [_outcome(line, team, made) for line in some]
    except Exception:
        log.exception("import of suppressions stopped", id=begun.id, done=len(begun.outcomes))
        begun.broken = True


def _outcome(line: Line, team: int, made: set[tuple[int, str]]) -> str:
    if line.address is None:
        return line.wrong
    return ADDED if (team, line.address.normal) in made else KNOWN


def _import(visit: Visit) -> Import:
    begun = imports.get(visit.params["id"])
    if begun is None or begun.team != visit.team.record.id:
        raise Gone
    return begun


def _done(begun: Import) -> list[tuple[Line, str]]:
    return list(zip(begun.lines, begun.outcomes, strict=False))


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
    lines, before = await visit.desk.store.database.read(search)
    values = {"lines": lines, "q": text, "before": f"{before[0]}~{before[1]}" if before else ""}
    more = {"errors": errors or {}, "form": visit.form, "reasons": [(reason, reason) for reason in REASONS]}
    return Page("suppressions.html", values | more, 400 if errors else 200)


def _place(text: str) -> Place:
    at, _, address = text.replace("\0", "").partition("~")
    return (int(at), address) if at.isascii() and at.isdigit() and len(at) < 16 else START


def _address(text: str) -> Address | None:
    return parse_address(text.strip())


def _here(visit: Visit) -> str:
    return f"{visit.base}/suppressions"
