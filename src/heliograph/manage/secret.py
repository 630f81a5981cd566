"""Replaces or rotates the master secret; a rotation re-encrypts all stored secrets."""

import asyncio

import msgspec

from heliograph.domain.audit.actor import Actor
from heliograph.storage.master_secret import ProgressCallback, Reencrypt
from heliograph.storage.store import Store

SETTLE_S = 5.0  # time for every process to switch to the new secret


async def replace(store: Store, actor: Actor, digest: str) -> bool:
    """Replace the master secret without re-encryption: secrets encrypted with the old one are lost.

    Returns False if the database already uses this secret.
    """
    return await store.secret_store.replace_digest(
        digest, actor.audit_entry(store.clock.now(), "secret.replace", "master secret")
    )


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a rotation to a new master secret."""

    digest: str
    kept_keys: str  # JSON of the keys that must survive the rotation, encrypted with the new secret
    reencrypt: Reencrypt


async def rotate(store: Store, actor: Actor, rotation: Rotation, on_progress: ProgressCallback) -> int:
    """Re-encrypt all secrets with the new master secret and return their number.

    May be interrupted and run again. Two audit entries record the begin and the end of the rotation.
    """
    begin_entry = actor.audit_entry(store.clock.now(), "secret.rotate", "master secret", "begun")
    is_changed = await store.secret_store.rotate_digest(rotation.digest, rotation.kept_keys, begin_entry)
    count = await store.secret_store.reencrypt(rotation.reencrypt, on_progress)
    if is_changed or count:
        await asyncio.sleep(SETTLE_S)
        # Processes that had not switched yet may have encrypted secrets with the old master secret.
        count += await store.secret_store.reencrypt(rotation.reencrypt, on_progress)
        detail = f"done, re-encrypted: {count}"
        await store.audit.add(actor.audit_entry(store.clock.now(), "secret.rotate", "master secret", detail))
    return count
