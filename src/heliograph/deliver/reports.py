"""What carriers say later, by a request or by their own connection: believed only when the carrier proves itself."""

import asyncio
from collections.abc import Sequence

import structlog

from heliograph.channels.carrier import Callback, Carriers, Told
from heliograph.rules.limits import IN_THREAD
from heliograph.rules.outcome import Report
from heliograph.rules.setup.records import CarrierRecord
from heliograph.storage.store import Store

log = structlog.get_logger()


async def take_callback(store: Store, carriers: Carriers, record: CarrierRecord, callback: Callback) -> Told | None:
    """The answer to a carrier's callback, once its reports are stored; None: it takes none."""
    read = (await carriers.get(record)).read_callback
    told = await asyncio.to_thread(read, callback) if len(callback.body) > IN_THREAD else read(callback)
    if told is None:
        return None
    if told.status >= 400:
        log.warning("callback refused", carrier=record.id, status=told.status)
    await take_reports(store, record.id, told.reports, once=told.once)
    return told


async def take_return(store: Store, message_id: str, position: int, report: Report) -> None:
    """A mail came back to the sender that we signed for this recipient: whichever carrier had it."""
    await store.reports.returned(message_id, position, report)


async def take_reports(
    store: Store, carrier: str, reports: Sequence[tuple[str, Report]], *, once: bool = False
) -> None:
    if reports:
        await store.reports.by_carrier(carrier, reports, early=True, once=once)
