"""Writes down when each API key was last used, which requests note in memory."""

from heliograph.deliver.duties.repeat import repeat_and_finish
from heliograph.storage.store import Store

EVERY_S = 60.0


async def write_key_uses(store: Store, used: dict[str, int]) -> None:
    """While the database is away, nothing is forgotten."""
    await repeat_and_finish(EVERY_S, lambda: store.requests.write_key_uses(used))
