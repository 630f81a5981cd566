"""Writes down the requests that this process refused."""

from heliograph.deliver.duties.repeat import repeat_and_finish
from heliograph.storage.requests import RequestLog
from heliograph.storage.store import Store

EVERY_S = 1.0


async def write_refused(store: Store, refused: RequestLog) -> None:
    await repeat_and_finish(EVERY_S, lambda: refused.write_in_time(store.requests))
