"""Diagnostics of the database for `doctor`; nothing is changed: a trial write is rolled back."""

import msgspec

from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.audit import ChainStatus, verify
from heliograph.storage.carrier_stats import RecentCarrierCounts, read_last_callbacks, read_recent_counts
from heliograph.storage.engine.database import Database
from heliograph.storage.engine.standby import log_position, standby_position
from heliograph.storage.master_secret import KnownSecret, read_encrypted_texts, read_known_secret
from heliograph.storage.setup import read_setup


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True):
    setup: Setup
    secret: KnownSecret
    audit: ChainStatus
    encrypted: dict[str, str]  # encryption context → ciphertext of each stored secret
    callbacks: dict[str, int]  # carrier → time of its last callback
    carrier_counts: dict[str, RecentCarrierCounts]


async def read_diagnostics(database: Database, now: int) -> Diagnostics:
    try:
        setup = await database.read(lambda tx: read_setup(tx, Setup()))
        await database.read(lambda tx: tx.run("next_setup_version"))  # a write that is rolled back
        return Diagnostics(
            setup=setup,
            secret=await database.read(read_known_secret),
            audit=await verify(database),
            encrypted=await database.read(lambda tx: read_encrypted_texts(tx, setup)),
            callbacks=await database.read(read_last_callbacks),
            carrier_counts=await database.read(lambda tx: read_recent_counts(tx, now)),
        )
    finally:
        await database.close()


async def read_standby_lag(primary: Database, standby: Database) -> int | None:
    """Return how many bytes of WAL the standby has yet to replay; None if it is not a standby of this primary."""
    try:
        position, system = await primary.read(log_position)
        replayed, standby_system = await standby.read(standby_position)
        return None if replayed is None or standby_system != system else max(0, position - replayed)
    finally:
        await standby.close()
        await primary.close()
