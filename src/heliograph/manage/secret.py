"""The master secret: chooses the one that the database accepts, and re-encrypts all secrets after a rotation."""

import asyncio

import msgspec

from heliograph.domain.audit.actor import Actor
from heliograph.storage.master_secret import Fresh, Tell
from heliograph.storage.store import Store

SETTLE_S = 5.0  # time for every process to switch to the new secret


async def replace(store: Store, actor: Actor, digest: str) -> bool:
    """Replace the master secret without re-encryption: secrets encrypted with the old one are lost.

    Returns False if the database already uses this secret.
    """
    return await store.secret.change(digest, actor.did(store.clock.now(), "secret.replace", "master secret"))


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a rotation to another master secret."""

    digest: str
    kept: str  # keys that outlive the previous secret, encrypted with the new one
    fresh: Fresh


async def rotate(store: Store, actor: Actor, turn: Rotation, tell: Tell) -> int:
    """Re-encrypt all secrets and return their number.

    May be interrupted and run again. Two audit entries record begin and end.
    """
    begun = actor.did(store.clock.now(), "secret.rotate", "master secret", "begun")
    turned = await store.secret.turn(turn.digest, turn.kept, begun)
    count = await store.secret.reseal(turn.fresh, tell)
    if turned or count:
        await asyncio.sleep(SETTLE_S)
        count += await store.secret.reseal(turn.fresh, tell)  # secrets encrypted by processes that had not switched yet
        done = f"done, sealed anew: {count}"
        await store.audit.add(actor.did(store.clock.now(), "secret.rotate", "master secret", done))
    return count
