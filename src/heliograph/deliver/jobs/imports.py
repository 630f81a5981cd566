"""Imports suppression lists in batches; open imports take turns, and any process may continue one."""

from collections import Counter

import structlog

from heliograph.runtime.async_wait import wait_event
from heliograph.storage.store import Store, StoreUnavailable

POLL_INTERVAL_S = 1.0  # polls for imports that other processes began or abandoned
FAILURES_MAX = 3  # an import stops after this many failed attempts; those with an unavailable database do not count

log = structlog.get_logger()


async def import_suppressions(store: Store) -> None:
    """Process imports until cancelled."""
    failures: Counter[str] = Counter()
    while True:
        store.imports.started.clear()
        if not await _import_batches(store, failures):
            await wait_event(store.imports.started, POLL_INTERVAL_S)


async def _import_batches(store: Store, failures: Counter[str]) -> bool:
    """Process one batch of each open import; return whether any batch was processed."""
    imported = False
    try:
        for id_ in await store.imports.list_open():
            try:
                imported |= await store.imports.apply_batch(id_)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("import batch failed", id=id_)
                failures[id_] += 1
                if failures[id_] >= FAILURES_MAX:
                    await store.imports.stop(id_)
    except StoreUnavailable:
        return False
    return imported
