"""Writes down the requests that this process answered."""

from heliograph.deliver.duties.repeat import repeat_and_finish
from heliograph.storage.requests import RequestLog
from heliograph.storage.store import Store

EVERY_S = 1.0


async def write_requests(store: Store, requests: RequestLog) -> None:
    await repeat_and_finish(EVERY_S, lambda: requests.write_in_time(store.requests))
