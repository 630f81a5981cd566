"""Tells of emails that were put off and are not delivered five minutes later."""

from heliograph.deliver.duties.repeat import repeat
from heliograph.storage.store import Store

EVERY_S = 1.0


async def tell_delays(store: Store) -> None:
    await repeat(EVERY_S, store.delays.tell_due)
