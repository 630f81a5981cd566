"""The master secret: which one the database goes by."""

from heliograph.rules.audit import Actor
from heliograph.storage.store import Store


async def replace(store: Store, actor: Actor, digest: str) -> bool:
    """What was sealed with the one before opens no more. False: the database goes by this one already."""
    return await store.secret.change(digest, actor.did(store.clock.now(), "secret.replace", "master secret"))
