"""What the API reads: messages with their timeline, verifications, suppressions, accounts."""

from typing import Any

import msgspec

from heliograph.rules.erasure import NameOf
from heliograph.rules.pricing import Account
from heliograph.storage.accepts import to_account
from heliograph.storage.engine.database import Tx
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import suppression_event

FOREVER = 1 << 62


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of a list are wanted; ids in (low, high), newest first."""

    low: str
    high: str
    limit: int
    status: str | None = None
    address: str | None = None
    template_id: str | None = None
    created_after: int = -1
    created_before: int = FOREVER


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    record: str
    recipients: list[Any]
    events: list[Any]


async def message(tx: Tx, team: int, id_: str) -> StoredMessage | None:
    rows = await tx.run("find_message", team=team, id=id_)
    if not rows:
        return None
    key, status, record = rows[0][0], rows[0][3], rows[0][4]
    return StoredMessage(
        status=status,
        record=record,
        recipients=await tx.run("message_recipients", message=key),
        events=await tx.run("message_events", message=key),
    )


async def messages(tx: Tx, team: int, wanted: Filter) -> list[Any]:
    """One more than the limit, when there are more."""
    given = msgspec.structs.asdict(wanted) | {"limit": wanted.limit + 1}
    return await tx.run("list_messages", team=team, **given)


async def verification(tx: Tx, team: int, id_: str) -> Any | None:
    rows = await tx.run("find_verification", team=team, id=id_)
    return rows[0] if rows else None


async def verifications(tx: Tx, team: int, wanted: Filter, now: int) -> list[Any]:
    given = msgspec.structs.asdict(wanted) | {"limit": wanted.limit + 1}
    del given["template_id"]
    return await tx.run("list_verifications", team=team, now=now, **given)


async def suppression(tx: Tx, team: int, address: str, name_of: NameOf) -> Any | None:
    rows = await tx.run("find_suppression", team=team, address=address)
    if not rows and (await account(tx, team)).erased:
        rows = await tx.run("find_suppression", team=team, address=name_of(team, address))
    return rows[0] if rows else None


async def suppressions(tx: Tx, team: int, after: str | None, limit: int) -> list[Any]:
    return await tx.run("list_suppressions", team=team, after=after, limit=limit + 1)


async def unsuppress(tx: Tx, team: int, address: str, at: int, publisher: Publisher, name_of: NameOf) -> bool:
    """Of an erased address too: whoever knows it can give it free again."""
    names = [address, name_of(team, address)] if (await account(tx, team)).erased else [address]
    gone = [
        suppression_event(publisher, "suppression.deleted", (team, name, *row, None, at))
        for name in names
        for row in await tx.run("delete_suppression", team=team, address=name)
    ]
    await publisher.publish(tx, gone)
    return bool(gone)


async def account(tx: Tx, team: int) -> Account:
    (row,) = await tx.run("find_account", team=team)
    return to_account(row)
