"""Stores passkeys: public keys with which users sign in; the device verifies the user."""

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.people import lock_person

PASSKEYS_MAX = 20  # per user


class Passkey(msgspec.Struct, frozen=True):
    id: str  # credential id, base64url
    person: str
    name: str
    public_key: str  # COSE, base64url
    sign_count: int  # counter at the last use; 0 if the authenticator has no counter
    created_at: int
    used_at: int | None = None


class Passkeys:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def list_all(self, person: str) -> list[Passkey]:
        return [Passkey(*row) for row in await self._database.read(lambda tx: tx.run("passkeys_of", person=person))]

    async def find(self, id_: str) -> Passkey | None:
        rows = await self._database.read(lambda tx: tx.run("find_passkey", id=id_))
        return Passkey(*rows[0]) if rows else None

    async def add(self, passkey: Passkey, entry: AuditEntry) -> bool:
        """Add a passkey; return False if it exists already or the user has PASSKEYS_MAX."""

        async def insert(tx: Tx) -> bool:
            await lock_person(tx, passkey.person)
            if len(await tx.run("passkeys_of", person=passkey.person)) >= PASSKEYS_MAX:
                return False
            params = msgspec.structs.asdict(passkey)
            del params["used_at"]
            if not await tx.run("insert_passkey", **params):
                return False
            await audit.write(tx, entry)
            return True

        return await write_serialized(self._database, insert, entry.actor)

    async def remove(self, person: str, id_: str, entry: AuditEntry) -> None:
        async def delete(tx: Tx) -> None:
            if await tx.run("delete_passkey", person=person, id=id_):
                await audit.write(tx, entry)

        await write_serialized(self._database, delete, entry.actor)

    async def use(self, id_: str, sign_count: int) -> bool:
        """Record a use of a passkey; return False if it was deleted, or if its counter decreased (a clone)."""
        now = self._clock.now()
        return bool(await self._database.write(lambda tx: tx.run("use_passkey", id=id_, count=sign_count, now=now)))
