"""The digest of the master secret in the database, and re-encryption of all encrypted texts (ADR 0038)."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.setup.encrypted_fields import texts_of, with_texts
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.storage import audit, setup
from heliograph.storage.engine.database import Database, T, Tx, write_serialized

PORTION = 100  # records or rows re-encrypted in one transaction
KEPT = "keys/kept"  # encryption context of keys that stay in use after a rotation of the master secret
# Encrypted columns: read query → (write query, prefix of the encryption contexts).
COLUMNS = {"sealed_people": ("reseal_people", "totp"), "sealed_chat_hooks": ("reseal_chat_hooks", "chat")}

Fresh = Callable[[str, str], str | None]  # text, context → re-encrypted text; None if unchanged
Tell = Callable[[int, int], None]  # progress callback: processed, total


class KnownSecret(msgspec.Struct, frozen=True):
    digest: str | None  # None if no secret was registered
    sealed: bool  # True if the database contains encrypted texts
    kept: str | None = None  # encrypted keys derived from the first secret; None if the secret was never rotated


async def known(tx: Tx) -> KnownSecret:
    ((digest, sealed, kept),) = await tx.run("known_secret")
    return KnownSecret(digest, bool(sealed), kept)


async def sealed_texts(tx: Tx, records: Setup) -> dict[str, str]:
    """Return all encrypted texts by context."""
    found = {c: text for record in records.records.values() for c, text in texts_of(record).items()}
    for query, (_, place) in COLUMNS.items():
        found |= {f"{place}/{id_}": text for id_, text in await tx.run(query)}
    kept = (await known(tx)).kept
    return found | ({KEPT: kept} if kept else {})


class SecretStore:
    def __init__(self, database: Database, setup_store: "setup.SetupStore") -> None:
        self._database = database
        self._setup = setup_store
        self.seen = KnownSecret(None, False)  # last state read by this process

    async def known(self) -> KnownSecret:
        self.seen = await self._database.read(known)
        return self.seen

    async def meet(self, digest: str) -> str:
        """Register the digest of the secret if none is registered; return the registered digest."""
        met = await self._database.write(lambda tx: _meet(tx, digest))
        self.seen = msgspec.structs.replace(self.seen, digest=met)
        return met

    async def change(self, digest: str, entry: AuditEntry) -> bool:
        """Replace the registered digest and delete the kept keys; return False if the digest is unchanged."""
        return await write_serialized(self._database, lambda tx: _change(tx, digest, entry), entry.team)

    async def turn(self, digest: str, kept: str, entry: AuditEntry) -> bool:
        """Rotate the secret: all processes encrypt with the new secret from now on. False if already registered."""
        return await write_serialized(self._database, lambda tx: _turn(tx, digest, kept, entry), entry.team)

    async def texts(self) -> dict[str, str]:
        """Return all encrypted texts by context, after refreshing the setup."""
        current = await self._setup.refresh()
        return await self._database.read(lambda tx: sealed_texts(tx, current))

    async def reseal(self, fresh: Fresh, tell: Tell) -> int:
        """Re-encrypt texts in batches and return their number. Texts that change concurrently are skipped."""
        current = await self._setup.refresh()
        records = [
            place
            for place, record in current.records.items()
            if any(fresh(text, context) for context, text in texts_of(record).items())
        ]
        columns = {write: await self._column(read, place, fresh) for read, (write, place) in COLUMNS.items()}
        total, looked, done = len(records) + sum(map(len, columns.values())), 0, 0
        portions = [partial(_reseal_records, places=some, fresh=fresh, seen=current) for some in _portions(records)]
        for query, rows in columns.items():
            portions += [partial(_reseal_column, query=query, rows=some) for some in _portions(rows)]
        for portion in portions:
            done += await write_serialized(self._database, portion, None)
            looked = min(total, looked + PORTION)
            tell(looked, total)
        await self._setup.refresh()
        return done

    async def _column(self, query: str, place: str, fresh: Fresh) -> list[tuple[str, str, str]]:
        """Return (row id, encrypted text, re-encrypted text) for each text that must be re-encrypted."""
        rows = await self._database.read(lambda tx: tx.run(query))
        news = [(id_, text, fresh(text, f"{place}/{id_}")) for id_, text in rows]
        return [(id_, text, new) for id_, text, new in news if new]


def _portions(rows: Sequence[T]) -> list[Sequence[T]]:
    return [rows[start : start + PORTION] for start in range(0, len(rows), PORTION)]


async def _reseal_records(tx: Tx, places: Sequence[tuple[str, str]], fresh: Fresh, seen: Setup) -> int:
    """Re-encrypt the texts of the records, read again under the setup lock; return the number of texts."""
    current = await setup.locked(tx, seen)
    rows, count = [], 0
    for kind, id_ in places:
        record = current.records.get((kind, id_))
        news = {c: new for c, text in texts_of(record).items() if (new := fresh(text, c))} if record else {}
        if record and news:
            rows.append(to_row(kind, id_, with_texts(record, news), getattr(record, "team", None) or None))
            count += len(news)
    await setup.save(tx, rows, current.version)
    return count


async def _reseal_column(tx: Tx, query: str, rows: Sequence[tuple[str, str, str]]) -> int:
    return len(await tx.run(query, rows=rows))


async def _meet(tx: Tx, digest: str) -> str:
    ((met,),) = await tx.run("meet_secret", digest=digest)
    return str(met)


async def _change(tx: Tx, digest: str, entry: AuditEntry) -> bool:
    if await _meet(tx, "") == digest:
        return False
    await tx.run("change_secret", digest=digest)
    await tx.run("forget_kept_keys")  # they can no longer be decrypted
    await audit.write(tx, entry)
    return True


async def _turn(tx: Tx, digest: str, kept: str, entry: AuditEntry) -> bool:
    if await _meet(tx, digest) == digest:
        return False
    await tx.run("change_secret", digest=digest)
    await tx.run("keep_keys", kept=kept)
    await audit.write(tx, entry)
    return True
