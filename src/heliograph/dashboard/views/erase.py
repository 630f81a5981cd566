"""Pages that erase an address from the team's records: form, confirmation, result."""

import asyncio

import structlog

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage import erase as erasing
from heliograph.storage.erase import ErasureBlocked

WAIT_S = 10.0  # how long the page waits; a longer erasure continues in the background

log = structlog.get_logger()
_running_tasks: set["asyncio.Task[int]"] = set()  # strong references, because the event loop only has weak ones


async def show(request: PageRequest) -> PageResponse:
    return _page("")


async def erase(request: PageRequest) -> PageResponse:
    """Erase an address after a confirmation (`sure`). Both steps are POSTs, because URLs are logged."""
    address = request.form.get("address", "").strip()
    try:
        erasing.read_erasable(address)
    except InvalidRequest as refusal:
        return _page(address, refusal.message)
    if request.form.get("sure") != "yes":
        return Page("erase.html", {"address": address, "error": "", "ask": True})
    task = asyncio.create_task(erasing.erase(request.store, request.actor, request.team, address))
    _running_tasks.add(task)
    task.add_done_callback(_on_finished)
    done, _ = await asyncio.wait({task}, timeout=WAIT_S)
    list_url = f"{request.team_path}/suppressions"
    if not done:
        return Redirect(list_url, "Erasing the address. The audit log shows when this is finished.")
    try:
        message_count = task.result()
    except ErasureBlocked as error:
        return _page(address, f"{error} Try again later.")
    except InvalidRequest as refusal:  # the team would have no owner
        return _page(address, refusal.message)
    return Redirect(list_url, f"Address erased. Messages affected: {message_count}.")


def _page(address: str, error: str = "") -> Page:
    return Page("erase.html", {"address": address, "error": error, "ask": False}, 400 if error else 200)


def _on_finished(task: "asyncio.Task[int]") -> None:
    _running_tasks.discard(task)
    error = None if task.cancelled() else task.exception()
    if error and not isinstance(error, ErasureBlocked | InvalidRequest):
        # The error's text is not logged, because it may contain the address.
        log.error("address erasure incomplete", error=type(error).__name__)
