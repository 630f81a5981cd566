"""The master secret: which one the database accepts, and sealing everything anew with another one."""

import asyncio

import msgspec

from heliograph.domain.audit.actor import Actor
from heliograph.storage.master_secret import Fresh, Tell
from heliograph.storage.store import Store

SETTLE_S = 5.0  # in which every process follows the database, and seals with the new one


async def replace(store: Store, actor: Actor, digest: str) -> bool:
    """Replace the secret: what was sealed with the old one can no
    longer be opened. False: the database uses this one already.
    """
    return await store.secret.change(digest, actor.did(store.clock.now(), "secret.replace", "master secret"))


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """To another secret."""

    digest: str
    kept: str  # sealed with it: the keys that outlive the one before
    fresh: Fresh


async def rotate(store: Store, actor: Actor, turn: Rotation, tell: Tell) -> int:
    """Seal texts anew and return how many.

    It may be interrupted and run again: one entry says that it has begun, and another one that it is done.
    """
    begun = actor.did(store.clock.now(), "secret.rotate", "master secret", "begun")
    turned = await store.secret.turn(turn.digest, turn.kept, begun)
    count = await store.secret.reseal(turn.fresh, tell)
    if turned or count:
        await asyncio.sleep(SETTLE_S)
        count += await store.secret.reseal(turn.fresh, tell)  # what was sealed by those who had not followed yet
        done = f"done, sealed anew: {count}"
        await store.audit.add(actor.did(store.clock.now(), "secret.rotate", "master secret", done))
    return count
