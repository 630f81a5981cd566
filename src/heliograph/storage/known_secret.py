"""How the database recognises its master secret: a digest of it, and whether anything is sealed with it."""

import msgspec

from heliograph.rules.audit import AuditEntry
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx


class KnownSecret(msgspec.Struct, frozen=True):
    digest: str | None  # None: the database never met one
    sealed: bool  # something is


async def known(tx: Tx) -> KnownSecret:
    ((digest, sealed),) = await tx.run("known_secret")
    return KnownSecret(digest, bool(sealed))


class SecretStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(self) -> KnownSecret:
        return await self._database.read(known)

    async def meet(self, digest: str) -> str:
        """Returns the one that the database knows: this one, or the one that it met before."""
        return await self._database.write(lambda tx: _meet(tx, digest))

    async def change(self, digest: str, entry: AuditEntry) -> bool:
        """False: it is the same."""
        return await self._database.write(lambda tx: _change(tx, digest, entry))


async def _meet(tx: Tx, digest: str) -> str:
    ((met,),) = await tx.run("meet_secret", digest=digest)
    return str(met)


async def _change(tx: Tx, digest: str, entry: AuditEntry) -> bool:
    if await _meet(tx, "") == digest:
        return False
    await tx.run("change_secret", digest=digest)
    await audit.write(tx, entry)
    return True
