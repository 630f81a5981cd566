"""By which the database knows its master secret again: a digest of it, and whether anything is sealed with it."""

import msgspec

from heliograph.rules.audit import AuditEntry
from heliograph.storage import audit
from heliograph.storage.engine.database import Tx


class KnownSecret(msgspec.Struct, frozen=True):
    digest: str | None  # None: the database never met one
    sealed: bool  # something is


async def known(tx: Tx) -> KnownSecret:
    ((digest, sealed),) = await tx.run("known_secret")
    return KnownSecret(digest, bool(sealed))


async def meet(tx: Tx, digest: str) -> str:
    """Answers the one that the database knows: this, or the one that it met before."""
    ((met,),) = await tx.run("meet_secret", digest=digest)
    return str(met)


async def change(tx: Tx, digest: str, note: AuditEntry) -> bool:
    """False: it is the same."""
    if await meet(tx, "") == digest:
        return False
    await tx.run("change_secret", digest=digest)
    await audit.write(tx, note)
    return True
