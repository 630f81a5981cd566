"""Finds a database that was turned back, for example by a restore: it is paused before it sends anything again.

Database and data folder keep a number that grows now and then. It is written to the database first, so in a true
history the folder is never ahead, no matter which process crashes and how many share either of them.

A copy that is as new as that, such as Litestream's, is found by its file: one that was in use when it was copied does
not come back as the same.
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
    identity: int  # the database's name
    number: int  # its new one
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
    """Compare the database with `seen`: numbers that the data folder holds, by name, read before this transaction.

    `copied` has the names whose file was another one. A database that was turned back or copied is paused.
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

    # A separate history from here: the numbers of the one it was copied from say nothing about it.
    await tx.run("change_identity", identity=fresh)
    await change(tx, pause, now, publisher, setup)
    return Comparison(identity=fresh, number=number, turned_back=True)
