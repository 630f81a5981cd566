"""Suppression list: search, add, remove after confirmation, export, and CSV import in the background."""

from collections.abc import AsyncGenerator

from heliograph.dashboard.csv_rows import encode_csv
from heliograph.dashboard.live import PageVersion, Subscription
from heliograph.dashboard.page_request import (
    Page,
    PageNotFound,
    PageRequest,
    PageResponse,
    Redirect,
    Stream,
    field_errors,
)
from heliograph.dashboard.views.live import open_stream, stream_url
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.suppression_file import DEFAULT_REASON
from heliograph.domain.refusals import Refusal, SuppressionNotFound
from heliograph.domain.text import parse_int
from heliograph.manage import imports, suppressions
from heliograph.storage.imports import Import
from heliograph.storage.suppressions import FIRST_PAGE, PageCursor

EXPORT_BATCH = 1000
LIVE_INTERVAL_S = 0.5


async def add(request: PageRequest) -> PageResponse:
    email, reason = request.form.get("email", "").strip(), request.form.get("reason", DEFAULT_REASON)
    try:
        is_new = await suppressions.add(request.store, request.actor, request.team.record, email, reason)
    except Refusal as refusal:
        return await show_new(request, field_errors(refusal))
    if not is_new:
        return await show_new(request, {"email": "This address is already on the list."})
    return Redirect(_list_url(request), f"{email} added. This team no longer sends email to it.")


async def show_new(request: PageRequest, errors: dict[str, str] | None = None) -> PageResponse:
    return Page.form("suppression_new.html", {"form": request.form}, errors)


async def confirm_remove(request: PageRequest) -> PageResponse:
    suppression = await suppressions.find(request.store, request.team.record, request.query.get("email", "").strip())
    return Page("suppression_remove.html", {"suppression": suppression})


async def remove(request: PageRequest) -> PageResponse:
    email = request.form.get("email", "").strip()
    try:
        await suppressions.remove(request.store, request.actor, request.team.record, email)
    except SuppressionNotFound:
        return Redirect(_list_url(request), "This address is no longer on the list.")
    return Redirect(_list_url(request), f"{email} removed. This team can send email to it again.")


async def export(request: PageRequest) -> PageResponse:
    return Stream(_export_rows(request), "text/csv; charset=utf-8", "suppressions.csv")


async def _export_rows(request: PageRequest) -> AsyncGenerator[bytes, None]:
    yield encode_csv([("email", "reason", "source_message_id", "created_at")])
    cursor: PageCursor | None = FIRST_PAGE
    while cursor is not None:
        page = await request.store.suppressions.search(request.team.record.ref, before=cursor, limit=EXPORT_BATCH)
        yield encode_csv(
            (row.email, row.reason, row.source_message_id or "", timestamp(row.created_at)) for row in page.rows
        )
        cursor = page.next_cursor


# -- imports ------------------------------------------------------------------------------------------------


async def import_file(request: PageRequest) -> PageResponse:
    file = request.files.get("file", b"")
    if not file:
        return await show_upload(request, {"file": "Choose a CSV file."})
    try:
        id_ = await imports.begin_suppression_import(request.store, request.actor, request.team.record, file)
    except Refusal as refusal:
        return await show_upload(request, field_errors(refusal))
    return Redirect(f"{_list_url(request)}/imports/{id_}")


async def show_upload(request: PageRequest, errors: dict[str, str] | None = None) -> PageResponse:
    return Page.form("suppression_upload.html", {}, errors)


async def show_import(request: PageRequest) -> PageResponse:
    live_url = await stream_url(
        request, f"{_list_url(request)}/imports/{request.params['id']}/live", _import_subscription(request)
    )
    import_job = await _find_import(request)
    skipped_row = await request.store.imports.first_skipped(import_job.id)
    return Page("suppression_import.html", {"import_job": import_job, "skipped_row": skipped_row, "live": live_url})


async def report(request: PageRequest) -> PageResponse:
    import_job = await _find_import(request)
    return Stream(_report_rows(request, import_job), "text/csv; charset=utf-8", f"{import_job.id}.csv")


async def _report_rows(request: PageRequest, import_job: Import) -> AsyncGenerator[bytes, None]:
    yield encode_csv([("line", "email", "reason", "outcome")])
    after: int | None = -1
    while after is not None:
        report = await request.store.imports.report(import_job.id, after)
        yield encode_csv((str(row.line.number), row.line.text, row.line.reason, row.outcome) for row in report.lines)
        after = report.after


async def live(request: PageRequest) -> PageResponse:
    await _find_import(request)
    return open_stream(request, _import_subscription(request))


def _import_subscription(request: PageRequest) -> Subscription:
    async def read_version() -> PageVersion:
        import_job = await _find_import(request)
        return PageVersion(
            {"done": f"{import_job.processed}-{import_job.state}"}, is_final=import_job.state != "importing"
        )

    return Subscription(
        key=("import", request.params["id"]), read_version=read_version, parts=("done",), interval_s=LIVE_INTERVAL_S
    )


async def _find_import(request: PageRequest) -> Import:
    team, id_ = request.team.record.ref, request.params["id"]
    import_job = await request.store.imports.find(team, id_)
    if import_job is None:
        raise PageNotFound
    return import_job


# -- parsing and responses ----------------------------------------------------------------------------------


async def show(request: PageRequest) -> PageResponse:
    text = request.query.get("q", "").strip()
    team, before = request.team.record.ref, _parse_cursor(request.query.get("before", ""))
    page = await request.store.suppressions.search(team, normalize_search(text), before)
    values = {
        "lines": page.rows,
        "q": text,
        "before": f"{page.next_cursor.created_at}~{page.next_cursor.address}" if page.next_cursor else "",
        "imports": await request.store.imports.newest(team) if request.has_role("developer") else [],
    }
    return Page("suppressions.html", values)


def normalize_search(text: str) -> str:
    """Return the search text, which may be part of an address, normalized like the addresses of the list."""
    address = parse_address(text)
    return address.normal if address else text.lower()


def _parse_cursor(text: str) -> PageCursor:
    time_text, _, address = text.partition("~")
    return FIRST_PAGE if (time_ms := parse_int(time_text, 15)) is None else PageCursor(time_ms, address)


def _list_url(request: PageRequest) -> str:
    return f"{request.team_path}/suppressions"
