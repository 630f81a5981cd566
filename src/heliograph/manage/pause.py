"""Pauses and resumes all delivery. Messages sent during a pause are accepted and wait."""

from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.snapshot import PLATFORM_ID, pause_rows
from heliograph.storage.store import Store


async def set_paused(store: Store, actor: Actor, paused: bool, reason: str = "") -> bool:
    """Pause or resume delivery; return False if nothing changed. The dashboard and logs show the reason."""
    action = "delivery.pause" if paused else "delivery.resume"
    return await change_rows(
        store, actor, None, action, PLATFORM_ID, lambda setup: pause_rows(setup, paused, reason), reason
    )
