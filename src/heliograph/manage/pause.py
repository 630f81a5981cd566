"""Delivery as a whole, paused and resumed: messages are accepted meanwhile, and wait."""

from heliograph.rules.audit import Actor
from heliograph.rules.setup.snapshot import PLATFORM_ID, Setup, pause_rows
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store


async def set_paused(store: Store, actor: Actor, paused: bool, reason: str = "") -> bool:
    """False: it is so already. The reason is shown to those who ask why nothing is sent."""
    action = "delivery.pause" if paused else "delivery.resume"
    entry = actor.did(store.clock.now(), action, PLATFORM_ID, reason)

    def decide(current: Setup, _: int) -> SetupChange:
        rows = pause_rows(current, paused, reason)
        return SetupChange(rows=rows, audit=entry)

    return bool((await store.setup.change(decide)).rows)
