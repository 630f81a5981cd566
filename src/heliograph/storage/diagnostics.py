"""A snapshot of the database for `doctor`: checks that it can be read and written, and returns its setup."""

import msgspec

from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.audit import Chain, verify
from heliograph.storage.carrier_stats import RecentUse, last_callbacks, recent_use
from heliograph.storage.engine.database import Database
from heliograph.storage.master_secret import KnownSecret, known, sealed_texts
from heliograph.storage.setup import load


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    setup: Setup
    secret: KnownSecret
    audit: Chain
    sealed: dict[str, str]  # encrypted texts by context
    callbacks: dict[str, int]  # carrier → time of its last callback
    uses: dict[str, RecentUse]


async def read_and_close(database: Database, now: int) -> Examination:
    try:
        setup = await database.read(lambda tx: load(tx, Setup()))
        await database.read(lambda tx: tx.run("next_setup_version"))  # write check, rolled back
        sealed = await database.read(lambda tx: sealed_texts(tx, setup))
        secret, audit = await database.read(known), await verify(database)
        callbacks, uses = await database.read(last_callbacks), await database.read(lambda tx: recent_use(tx, now))
        return Examination(setup=setup, secret=secret, audit=audit, sealed=sealed, callbacks=callbacks, uses=uses)
    finally:
        await database.close()
