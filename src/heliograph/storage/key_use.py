"""When each API key was last used: requests note it in memory, and this writes it down now and then."""

import asyncio
import contextlib
from collections.abc import Iterable

from heliograph.storage.engine.database import Database, StoreUnavailable

WRITE_S = 60.0


async def key_uses(database: Database, keys: Iterable[str]) -> dict[str, int]:
    """Of these keys, those that were ever used, and when; the last minute is only in the processes' memories."""
    asked = [(key,) for key in keys]
    return dict(await database.read(lambda tx: tx.run("key_uses", keys=asked)))


async def write_key_uses(database: Database, used: dict[str, int]) -> None:
    """Write what was noted; what is noted meanwhile stays for the next time."""
    noted = dict(used)
    if not noted:
        return
    await database.write(lambda tx: tx.run("note_key_use", uses=list(noted.items())))
    for key, at in noted.items():
        if used[key] == at:
            del used[key]


async def keep_key_uses(database: Database, used: dict[str, int]) -> None:
    """Until cancelled, and then once more; while the database is away, nothing is forgotten."""
    try:
        while True:
            await asyncio.sleep(WRITE_S)
            with contextlib.suppress(StoreUnavailable):
                await write_key_uses(database, used)
    finally:
        with contextlib.suppress(StoreUnavailable):
            await write_key_uses(database, used)
