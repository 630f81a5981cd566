"""Detects a database restored from an older backup, and pauses delivery before anything is sent again.

Database and data folder both store a counter that increases periodically. The database is written first, so the folder
is never ahead unless the database was restored, whichever process crashes and however many share either.

A copy that is as recent as the folder, such as Litestream's, is detected by its file: the file of a database copied
while in use has a different identity.
"""

from collections.abc import Collection, Mapping

import msgspec

from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.setup.snapshot import PLATFORM_ID, Setup, pause_rows
from heliograph.storage.engine.database import Tx
from heliograph.storage.events import Publisher
from heliograph.storage.setup import SetupChange, change

TURNED_BACK = "the database is older than its data folder: what was sent since is due again"
COPIED = "the database is a copy of one that was in use: what was sent since is due again"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    identity: int  # id of the database
    number: int  # its increased counter
    turned_back: bool


async def pause_if_turned_back(
    tx: Tx,
    seen: Mapping[int, int],
    copied: Collection[int],
    fresh: int,
    now: int,
    publisher: Publisher,
    setup: Setup,
) -> Comparison:
    """Increase the counter; pause delivery if the database was restored from an older backup or copied.

    `seen`: counters in the data folder by database id, read before this transaction. `copied`: ids of databases whose
    file has changed its identity.
    """
    ((identity,),) = await tx.run("identify", identity=fresh)
    ((number,),) = await tx.run("bump_attested")
    if number > seen.get(identity, 0) and identity not in copied:
        return Comparison(identity=identity, number=number, turned_back=False)

    reason = TURNED_BACK if number <= seen.get(identity, 0) else COPIED
    entry = SERVICE.did(now, "delivery.pause", PLATFORM_ID, reason)

    def pause(current: Setup, _: int) -> SetupChange:
        rows = pause_rows(current, True, reason)
        return SetupChange(rows=rows, audit=entry)

    # A separate history begins: counters of the original database do not apply to this copy.
    await tx.run("change_identity", identity=fresh)
    await change(tx, pause, now, publisher, setup)
    return Comparison(identity=fresh, number=number, turned_back=True)
