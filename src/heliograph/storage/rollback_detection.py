"""Detects a database restored from an older backup, and pauses delivery before anything is sent again.

Database and data folder both store a counter that increases periodically. The database is written first. So the
folder's counter is ahead only if the database was restored, even if processes crash, and however many processes share
the database or the folder.

A copy that is as recent as the folder, such as Litestream's, is detected by its file: the file of a database copied
while in use has a different identity.
"""

from collections.abc import Collection, Mapping

import msgspec

from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.setup.snapshot import PLATFORM_ID, Setup, pause_rows
from heliograph.storage.engine.database import Tx
from heliograph.storage.events import Publisher
from heliograph.storage.setup import SetupChange, apply_change

RESTORED_REASON = "the database is older than its data folder: messages sent since then are due again"
COPIED_REASON = "the database is a copy of one that was in use: messages sent since then are due again"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    database_id: int  # id of the database
    counter: int  # counter in the database, after it was increased
    is_restored: bool


async def pause_if_restored(
    tx: Tx,
    recorded_counters: Mapping[int, int],
    copied_ids: Collection[int],
    new_id: int,
    now: int,
    publisher: Publisher,
    setup: Setup,
) -> Comparison:
    """Increase the database's counter; pause delivery if the database was restored from a backup or copied.

    `recorded_counters`: database id → counter in the data folder, read before this transaction. `copied_ids`: ids of
    databases whose file has changed its identity.
    """
    ((database_id,),) = await tx.run("database_id", identity=new_id)
    ((counter,),) = await tx.run("increase_restore_counter")
    if counter > recorded_counters.get(database_id, 0) and database_id not in copied_ids:
        return Comparison(database_id=database_id, counter=counter, is_restored=False)
    reason = RESTORED_REASON if counter <= recorded_counters.get(database_id, 0) else COPIED_REASON
    entry = SERVICE.audit_entry(now, "delivery.pause", PLATFORM_ID, reason)
    # From now on, counters recorded for the original database do not apply to this one.
    await tx.run("change_identity", identity=new_id)
    await apply_change(
        tx, lambda current, _: SetupChange(rows=pause_rows(current, True, reason), audit=entry), now, publisher, setup
    )
    return Comparison(database_id=new_id, counter=counter, is_restored=True)
