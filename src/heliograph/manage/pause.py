"""Delivery as a whole, paused and resumed: messages are accepted meanwhile, and wait."""

from heliograph.changes.setup_rows import change_rows
from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.snapshot import PLATFORM_ID, pause_rows
from heliograph.storage.store import Store


async def set_paused(store: Store, actor: Actor, paused: bool, reason: str = "") -> bool:
    """Pause or resume delivery; False: it is so already. The reason is shown to those who ask why nothing is sent."""
    action = "delivery.pause" if paused else "delivery.resume"
    return await change_rows(
        store, actor, None, action, PLATFORM_ID, lambda setup: pause_rows(setup, paused, reason), reason
    )
