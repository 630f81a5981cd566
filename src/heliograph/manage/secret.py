"""The master secret: which one the database accepts."""

from heliograph.rules.audit import Actor
from heliograph.storage.store import Store


async def replace(store: Store, actor: Actor, digest: str) -> bool:
    """What was sealed with the old one can no longer be opened. False: the database uses this one already."""
    return await store.secret.change(digest, actor.did(store.clock.now(), "secret.replace", "master secret"))
