"""Erases an address of the team: form, confirmation, result."""

import asyncio

import structlog

from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage import erase as erasing
from heliograph.storage.erase import StillMoving

WAIT_S = 10.0  # time the page waits; a long erasure continues in the background

log = structlog.get_logger()
_running: set["asyncio.Task[int]"] = set()  # strong references: the event loop keeps only weak ones


async def show(visit: Visit) -> Answer:
    return _page("")


async def erase(visit: Visit) -> Answer:
    """Erase an address. A POST, so that no URL log contains the address. Without `sure`, ask for confirmation."""
    address = visit.form.get("address", "").strip()
    try:
        erasing.read_erasable(address)
    except InvalidRequest as refusal:
        return _page(address, refusal.message)
    if visit.form.get("sure") != "yes":
        return Page("erase.html", {"address": address, "error": "", "ask": True})
    task = asyncio.create_task(erasing.erase(visit.store, visit.actor, visit.team, address))
    _running.add(task)
    task.add_done_callback(_ended)
    done, _ = await asyncio.wait({task}, timeout=WAIT_S)
    here = f"{visit.base}/suppressions"
    if not done:
        return Redirect(here, "The address is being erased. The audit log says when it is done.")
    try:
        count = task.result()
    except StillMoving as error:
        return _page(address, f"{error} Try again later.")
    except InvalidRequest as refusal:  # the team would lose its last owner
        return _page(address, refusal.message)
    return Redirect(here, f"It is erased. Messages that named it: {count}.")


def _page(address: str, error: str = "") -> Page:
    return Page("erase.html", {"address": address, "error": error, "ask": False}, 400 if error else 200)


def _ended(task: "asyncio.Task[int]") -> None:
    _running.discard(task)
    error = None if task.cancelled() else task.exception()
    if error and not isinstance(error, StillMoving | InvalidRequest):
        # no error text: it may contain the address
        log.error("an address was not erased wholly", error=type(error).__name__)
