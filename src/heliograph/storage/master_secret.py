"""The digest of the master secret in the database, and re-encryption of all stored secrets (ADR 0038)."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.setup.encrypted_fields import ciphertexts, with_ciphertexts
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.storage import audit, setup
from heliograph.storage.engine.database import Database, T, Tx, write_serialized

BATCH = 100  # records or rows re-encrypted in one transaction
KEPT_KEYS_CONTEXT = "keys/kept"  # encryption context of the derived keys that stay the same after a rotation
# For each encrypted column: read query → (write query, prefix of the encryption contexts)
WRITE_QUERY_BY_READ_QUERY = {
    "encrypted_totp": ("reencrypt_totp", "totp"),
    "encrypted_chat_hooks": ("reencrypt_chat_hooks", "chat"),
}

Reencrypt = Callable[[str, str], str | None]  # text, context → re-encrypted text; None if unchanged
ProgressCallback = Callable[[int, int], None]  # called with the number of records and rows processed, and the total


class KnownSecret(msgspec.Struct, frozen=True):
    digest: str | None  # None if no secret was registered
    has_encrypted: bool  # the database contains encrypted texts
    kept_keys: str | None = None  # encrypted keys derived from the first secret; None if the secret was never rotated


async def read_known_secret(tx: Tx) -> KnownSecret:
    ((digest, has_encrypted, kept_keys),) = await tx.run("known_secret")
    return KnownSecret(digest, bool(has_encrypted), kept_keys)


async def read_encrypted_texts(tx: Tx, records: Setup) -> dict[str, str]:
    """Return encryption context → ciphertext of all stored secrets."""
    text_by_context = {
        context: text for record in records.records.values() for context, text in ciphertexts(record).items()
    }
    for query, (_, prefix) in WRITE_QUERY_BY_READ_QUERY.items():
        text_by_context |= {f"{prefix}/{id_}": text for id_, text in await tx.run(query)}
    kept_keys = (await read_known_secret(tx)).kept_keys
    return text_by_context | ({KEPT_KEYS_CONTEXT: kept_keys} if kept_keys else {})


class SecretStore:
    def __init__(self, database: Database, setup_store: "setup.SetupStore") -> None:
        self._database = database
        self._setup = setup_store
        self.last_known = KnownSecret(None, False)  # last state read by this process

    async def read(self) -> KnownSecret:
        self.last_known = await self._database.read(read_known_secret)
        return self.last_known

    async def register_digest(self, digest: str) -> str:
        """Register the digest of the master secret if none is registered; return the registered digest."""
        registered_digest = await self._database.write(lambda tx: _register_digest(tx, digest))
        self.last_known = msgspec.structs.replace(self.last_known, digest=registered_digest)
        return registered_digest

    async def replace_digest(self, digest: str, entry: AuditEntry) -> bool:
        """Register another digest of the master secret; return False if `digest` is already registered.

        Also deletes the kept keys, which the new secret cannot decrypt.
        """
        return await write_serialized(self._database, lambda tx: _replace_digest(tx, digest, entry), entry.team)

    async def rotate_digest(self, digest: str, kept_keys: str, entry: AuditEntry) -> bool:
        """Make all processes encrypt with a new master secret; return False if it is already registered."""
        return await write_serialized(
            self._database, lambda tx: _rotate_digest(tx, digest, kept_keys, entry), entry.team
        )

    async def read_encrypted_texts(self) -> dict[str, str]:
        """Refresh the setup; return encryption context → ciphertext of all stored secrets."""
        current_setup = await self._setup.refresh()
        return await self._database.read(lambda tx: read_encrypted_texts(tx, current_setup))

    async def reencrypt(self, reencrypt: Reencrypt, on_progress: ProgressCallback) -> int:
        """Re-encrypt all ciphertexts in batches and return their number; skip those that are changed meanwhile."""
        current_setup = await self._setup.refresh()
        record_keys = [
            key
            for key, record in current_setup.records.items()
            if any(reencrypt(text, context) for context, text in ciphertexts(record).items())
        ]
        rows_by_query = {
            write_query: await self._find_outdated(read_query, prefix, reencrypt)
            for read_query, (write_query, prefix) in WRITE_QUERY_BY_READ_QUERY.items()
        }
        total, processed_count, changed_count = len(record_keys) + sum(map(len, rows_by_query.values())), 0, 0
        batches = [
            partial(_reencrypt_records, record_keys=batch, reencrypt=reencrypt, last_setup=current_setup)
            for batch in _batches(record_keys)
        ]
        for query, rows in rows_by_query.items():
            batches += [partial(_reencrypt_column, query=query, rows=batch) for batch in _batches(rows)]
        for reencrypt_batch in batches:
            changed_count += await write_serialized(self._database, reencrypt_batch, None)
            processed_count = min(total, processed_count + BATCH)
            on_progress(processed_count, total)
        await self._setup.refresh()
        return changed_count

    async def _find_outdated(self, query: str, prefix: str, reencrypt: Reencrypt) -> list[tuple[str, str, str]]:
        """Return (row id, ciphertext, new ciphertext) for each ciphertext that must be re-encrypted."""
        rows = await self._database.read(lambda tx: tx.run(query))
        candidates = [(id_, text, reencrypt(text, f"{prefix}/{id_}")) for id_, text in rows]
        return [(id_, text, new_text) for id_, text, new_text in candidates if new_text]


def _batches(rows: Sequence[T]) -> list[Sequence[T]]:
    return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]


async def _reencrypt_records(
    tx: Tx, record_keys: Sequence[tuple[str, str]], reencrypt: Reencrypt, last_setup: Setup
) -> int:
    """Read the setup records again under the setup lock, re-encrypt their secrets, and return how many changed."""
    current_setup = await setup.lock_and_read(tx, last_setup)
    rows, count = [], 0
    for kind, id_ in record_keys:
        if (record := current_setup.records.get((kind, id_))) is None:
            continue
        new_texts = {
            context: new_text for context, text in ciphertexts(record).items() if (new_text := reencrypt(text, context))
        }
        if new_texts:
            rows.append(to_row(kind, id_, with_ciphertexts(record, new_texts), getattr(record, "team", None) or None))
            count += len(new_texts)
    await setup.save_rows(tx, rows, current_setup.version)
    return count


async def _reencrypt_column(tx: Tx, query: str, rows: Sequence[tuple[str, str, str]]) -> int:
    return len(await tx.run(query, rows=rows))


async def _register_digest(tx: Tx, digest: str) -> str:
    ((registered_digest,),) = await tx.run("register_secret", digest=digest)
    return str(registered_digest)


async def _replace_digest(tx: Tx, digest: str, entry: AuditEntry) -> bool:
    if await _register_digest(tx, "") == digest:
        return False
    await tx.run("change_secret", digest=digest)
    await tx.run("delete_kept_keys")  # the new secret cannot decrypt the kept keys
    await audit.write(tx, entry)
    return True


async def _rotate_digest(tx: Tx, digest: str, kept_keys: str, entry: AuditEntry) -> bool:
    if await _register_digest(tx, digest) == digest:
        return False
    await tx.run("change_secret", digest=digest)
    await tx.run("save_kept_keys", kept=kept_keys)
    await audit.write(tx, entry)
    return True
