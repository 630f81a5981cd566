"""The only way in for what the world says later: receipts, statuses, bounces and complaints.

A report names its message by the carrier's own id, or by message and position. One that is faster than the record of
its hand-over is kept until that is there; those of a long message's parts fold into one state.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog
from msgspec.structs import replace

from heliograph.channels.carrier import Callback, CallbackAnswer, Carriers
from heliograph.rules.limits import IN_THREAD
from heliograph.rules.outcome import CarrierReport, Report
from heliograph.storage.store import Store

log = structlog.get_logger()


async def take_by_carrier(
    store: Store, carrier: str, reports: Sequence[CarrierReport], *, untimed: bool = False
) -> None:
    if reports:
        await store.reports.by_carrier(carrier, reports, skip_known=untimed)


async def take_by_recipient(store: Store, message_id: str, position: int, report: Report) -> None:
    """No matter which carrier had it, such as a mail that came back to the sender that we signed for this recipient."""
    await store.reports.by_recipient(message_id, position, report)


async def address_of(store: Store, message_id: str, position: int) -> str | None:
    """Whom a mail that came back was for; None: the message is gone."""
    return await store.reports.address_of(message_id, position)


async def take_callback(
    store: Store, carriers: Carriers, carrier: str, callback: Callback, body: Callable[[], Awaitable[bytes]]
) -> CallbackAnswer | None:
    """The answer, once its reports are stored; None: no such carrier, or it takes none, and the body stays unread."""
    record = next((record for record in store.setup.current.carriers if record.id == carrier), None)
    read = (await carriers.get(record)).read_callback if record else None
    if read is None or read(callback) is None:
        return None
    callback = replace(callback, body=await body())
    answer = await asyncio.to_thread(read, callback) if len(callback.body) > IN_THREAD else read(callback)
    if answer is None:
        return None
    if answer.status >= 400:
        log.warning("callback refused", carrier=carrier, status=answer.status)
    await take_by_carrier(store, carrier, answer.reports, untimed=answer.untimed)
    return answer


async def apply_early(store: Store) -> None:
    """The reports whose hand-over is recorded by now."""
    await store.reports.apply_early()
