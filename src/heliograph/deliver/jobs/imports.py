"""Imports suppression lists batch by batch, alternating between imports, in any process."""

import asyncio
import contextlib
from collections import Counter

import structlog

from heliograph.storage.store import Store, StoreUnavailable

EVERY_S = 1.0  # polls for imports that other processes began or abandoned
TRIES_MAX = 3  # failed attempts per import before it is stopped; an unreachable database does not count

log = structlog.get_logger()


async def import_suppressions(store: Store) -> None:
    """Process imports until cancelled."""
    broke: Counter[str] = Counter()
    while True:
        store.imports.begun.clear()
        if not await _each_a_portion(store, broke):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(store.imports.begun.wait(), EVERY_S)


async def _each_a_portion(store: Store, broke: Counter[str]) -> bool:
    """Process one batch of each open import; return whether any batch was processed."""
    done = False
    try:
        for id_ in await store.imports.open():
            try:
                done |= await store.imports.do_portion(id_)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("a portion of an import broke", id=id_)
                broke[id_] += 1
                if broke[id_] >= TRIES_MAX:
                    await store.imports.stop(id_)
    except StoreUnavailable:
        return False
    return done
