"""Switches this process to the new master secret after a rotation."""

from collections.abc import Callable

import structlog

from heliograph.deliver.jobs.periodic import Job
from heliograph.storage.store import Store

log = structlog.get_logger()


def secret_refresher(store: Store, use_digest: Callable[[str | None, str | None], bool]) -> Job:
    """Return a job that switches this process to the new master secret after a rotation.

    `use_digest`: (digest, kept keys) → switches to the secret with this digest; False if this process lacks it.
    """
    has_secret = True

    async def refresh() -> None:
        nonlocal has_secret
        current = await store.secret_store.read()
        had_secret, has_secret = has_secret, use_digest(current.digest, current.kept_keys)
        if had_secret and not has_secret:
            log.error(
                "the master secret was rotated, and this process lacks the new one", fix="restart with the new secret"
            )

    return refresh
