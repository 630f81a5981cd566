"""Switches this process to the new master secret after a rotation."""

from collections.abc import Callable

import structlog

from heliograph.deliver.jobs.periodic import Round
from heliograph.storage.store import Store

log = structlog.get_logger()


def following(store: Store, adopt: Callable[[str | None, str | None], bool]) -> Round:
    """Return the job. `adopt` returns whether this process has the secret that the database uses."""
    is_here = True

    async def follow() -> None:
        nonlocal is_here
        known = await store.secret.known()
        before, is_here = is_here, adopt(known.digest, known.kept)
        if before and not is_here:
            log.error("the master secret was rotated, and the new one is not here", mend="restart with it")

    return follow
