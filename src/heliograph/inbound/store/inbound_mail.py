"""Store of inbound mail of teams: each mail is stored once, with its event in the same transaction."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from heliograph.domain.limits import HOUR_MS, MIB
from heliograph.domain.sending.pricing import take_octets
from heliograph.inbound.policy.inbound_mail import EVENT, ReceivedRecord, Texts, with_texts
from heliograph.runtime.clock import Clock
from heliograph.storage.accept import lock_accounts, save_accounts
from heliograph.storage.attachments import Attachments
from heliograph.storage.contents import Room
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Event, Publisher

AUTOMATIC_MAX = 10  # automatic mails per sender and hour that are published; more indicate a mail loop
LAST = "rcv_~"
OCTETS_MAX = 8 * MIB  # octets of records in one response; at least one record is returned

Fate = Literal["told", "held", "known"]


class NewReceived(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    sender: str
    size: int
    automatic: bool
    record: str
    body: str | None
    octets_most: int  # storage quota of the team per day; 0 if unlimited


class ReceivedLine(msgspec.Struct, frozen=True):
    id: str
    sender: str
    size: int
    automatic: int
    held: int
    created_at: int
    octets: int  # size of the record when read
    raw: str | None  # name of the stored raw mail; None if deleted by retention


class ReceivedPage(msgspec.Struct, frozen=True):
    records: list[str]
    octets: int
    has_more: bool


class Received:
    def __init__(self, database: Database, clock: Clock, attachments: Attachments, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._attachments = attachments
        self._publisher = publisher

    async def keep(self, raw: bytes) -> str:
        """Store the raw mail durably, before its record; return its name."""
        return await self._attachments.put(raw)

    async def put(self, new: NewReceived, digest: str) -> Fate:
        """Record a mail and publish its event. Raises StorageLimitReached."""
        now = self._clock.of(new.team)
        return await self._database.write(lambda tx: _put(tx, new, digest, now, self._publisher))

    async def newest(self, team: int, before: str, limit: int) -> list[ReceivedLine]:
        rows = await self._database.read(lambda tx: tx.run("list_received", team=team, before=before, limit=limit))
        return [ReceivedLine(*row) for row in rows]

    async def page(self, team: int, before: str, limit: int, room: Room) -> ReceivedPage:
        """Return records as published in their events, newest first, up to OCTETS_MAX."""
        lines = await self.newest(team, before, limit + 1)
        ids: list[str] = []
        octets = 0
        for line in lines[:limit]:
            if ids and octets + line.octets > OCTETS_MAX:
                break
            ids.append(line.id)
            octets += line.octets
        await room(octets)
        return ReceivedPage(await self.records(team, ids), octets, len(lines) > len(ids))

    async def records(self, team: int, ids: Sequence[str]) -> list[str]:
        """Return the records in the order of the ids."""
        given = [(id_,) for id_ in ids]
        found = dict(await self._database.read(lambda tx: tx.run("received_records", team=team, ids=given)))
        return [found[id_] for id_ in ids if id_ in found]

    async def find(self, team: int, id_: str) -> ReceivedLine | None:
        rows = await self._database.read(lambda tx: tx.run("find_received", team=team, id=id_))
        return ReceivedLine(*rows[0]) if rows else None

    async def whole(self, team: int, found: ReceivedLine, room: Room) -> ReceivedRecord | None:
        await room(found.octets)
        rows = await self._database.read(lambda tx: tx.run("read_received", team=team, id=found.id))
        return _whole(*rows[0]) if rows else None

    async def raw(self, found: ReceivedLine, room: Room) -> bytes | None:
        """Return the raw mail; None if it is no longer stored."""
        if found.raw is None:
            return None
        await room(found.size)
        try:
            return await self._attachments.get(found.raw)
        except OSError:
            return None


def _whole(record: str, body: str | None) -> ReceivedRecord:
    told = msgspec.json.decode(record, type=ReceivedRecord)
    return with_texts(told, msgspec.json.decode(body, type=Texts)) if body else told


async def _is_loop(tx: Tx, since: int, given: dict[str, Any]) -> bool:
    ((before,),) = await tx.run("count_automatic", since=since, limit=AUTOMATIC_MAX, **given)
    return bool(before >= AUTOMATIC_MAX)


async def _put(tx: Tx, new: NewReceived, digest: str, now: int, publisher: Publisher) -> Fate:
    accounts = await lock_accounts(tx, {new.team})
    given: dict[str, Any] = {"team": new.team, "sender": new.sender}
    held = new.automatic and await _is_loop(tx, now - HOUR_MS, given)
    row = given | {"id": new.id, "digest": digest, "size": new.size, "record": new.record, "body": new.body}
    if not await tx.run("insert_received", automatic=int(new.automatic), held=int(held), now=now, **row):
        return "known"
    if new.octets_most:
        take_octets(accounts[new.team], new.size, new.octets_most, now)
        await save_accounts(tx, accounts.values())
    if held:
        return "held"
    event = Event(id=publisher.new_id("evt_"), team=new.team, subject=new.id, type=EVENT, created_at=now)
    await publisher.publish(tx, [event])
    return "told"
