"""Store of the teams' inbound mail. A mail and its event are stored in the same transaction."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from heliograph.domain.limits import HOUR_MS, MIB
from heliograph.domain.sending.pricing import count_stored_bytes
from heliograph.inbound.policy.inbound_mail import EVENT_TYPE, FullTexts, ReceivedRecord, with_full_texts
from heliograph.runtime.clock import Clock
from heliograph.storage.accept import lock_accounts, save_accounts
from heliograph.storage.attachments import Attachments
from heliograph.storage.contents import ReserveMemory
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Event, Publisher

AUTOMATIC_MAX = 10  # maximum automatic mails that are published per sender and hour; more suggest a mail loop
AFTER_ANY_ID = "rcv_~"  # greater than the id of every inbound mail
PAGE_OCTETS_MAX = 8 * MIB  # maximum octets of the records on a page, which has at least one record

# published: stored with an event. held: stored without an event, because of a possible mail loop. known: stored before.
StoreResult = Literal["published", "held", "known"]


class NewInboundMail(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    sender: str
    size: int
    automatic: bool
    record: str
    body: str | None
    daily_octets_max: int  # the team's limit of stored octets per day; 0 if unlimited


class InboundMailRow(msgspec.Struct, frozen=True):
    id: str
    sender: str
    size: int
    automatic: int
    held: int
    created_at: int
    octets: int  # octets of the record in memory
    raw: str | None  # name of the stored raw mail; None if it was deleted by retention


class InboundMailPage(msgspec.Struct, frozen=True):
    records: list[str]
    octets: int
    has_more: bool


class InboundMailStore:
    """Store of inbound mail of all teams."""

    def __init__(self, database: Database, clock: Clock, attachments: Attachments, publisher: Publisher) -> None:
        self._database = database
        self._clock = clock
        self._attachments = attachments
        self._publisher = publisher

    async def store_raw(self, raw: bytes) -> str:
        """Store the raw mail durably, before its record; return the name under which it is stored."""
        return await self._attachments.put(raw)

    async def insert(self, new_mail: NewInboundMail, digest: str) -> StoreResult:
        """Store a mail's record and publish its event. Raises StorageLimitReached if the team's storage is full."""
        now = self._clock.team_now(new_mail.team)
        return await self._database.write(lambda tx: _insert(tx, new_mail, digest, now, self._publisher))

    async def list_newest(self, team: int, before: str, limit: int) -> list[InboundMailRow]:
        rows = await self._database.read_standby(
            lambda tx: tx.run("list_received", team=team, before=before, limit=limit)
        )
        return [InboundMailRow(*row) for row in rows]

    async def list_page(self, team: int, before: str, limit: int, reserve_memory: ReserveMemory) -> InboundMailPage:
        """Return a page of a team's mails, newest first: the `data` of their events, up to PAGE_OCTETS_MAX octets."""
        rows = await self.list_newest(team, before, limit + 1)
        ids: list[str] = []
        octets = 0
        for row in rows[:limit]:
            if ids and octets + row.octets > PAGE_OCTETS_MAX:
                break
            ids.append(row.id)
            octets += row.octets
        await reserve_memory(octets)
        return InboundMailPage(await self.get_records(team, ids), octets, len(rows) > len(ids))

    async def get_records(self, team: int, ids: Sequence[str]) -> list[str]:
        """Return the records with these ids, in the same order."""
        id_rows = [(id_,) for id_ in ids]
        record_by_id = dict(
            await self._database.read_standby(lambda tx: tx.run("received_records", team=team, ids=id_rows))
        )
        return [record_by_id[id_] for id_ in ids if id_ in record_by_id]

    async def find_row(self, team: int, id_: str) -> InboundMailRow | None:
        rows = await self._database.read(lambda tx: tx.run("find_received", team=team, id=id_))
        return InboundMailRow(*rows[0]) if rows else None

    async def get_record(self, team: int, row: InboundMailRow, reserve_memory: ReserveMemory) -> ReceivedRecord | None:
        await reserve_memory(row.octets)
        rows = await self._database.read(lambda tx: tx.run("read_received", team=team, id=row.id))
        return _to_record(*rows[0]) if rows else None

    async def get_raw(self, row: InboundMailRow, reserve_memory: ReserveMemory) -> bytes | None:
        """Return the raw mail of a record; None if it was deleted."""
        if row.raw is None:
            return None
        await reserve_memory(row.size)
        try:
            return await self._attachments.get(row.raw)
        except OSError:
            return None


def _to_record(record: str, body: str | None) -> ReceivedRecord:
    event_record = msgspec.json.decode(record, type=ReceivedRecord)
    return with_full_texts(event_record, msgspec.json.decode(body, type=FullTexts)) if body else event_record


async def _is_loop(tx: Tx, since: int, params: dict[str, Any]) -> bool:
    ((count,),) = await tx.run("count_automatic", since=since, limit=AUTOMATIC_MAX, **params)
    return bool(count >= AUTOMATIC_MAX)


async def _insert(tx: Tx, new_mail: NewInboundMail, digest: str, now: int, publisher: Publisher) -> StoreResult:
    accounts = await lock_accounts(tx, {new_mail.team})
    params: dict[str, Any] = {"team": new_mail.team, "sender": new_mail.sender}
    is_held = new_mail.automatic and await _is_loop(tx, now - HOUR_MS, params)
    row = params | {
        "id": new_mail.id,
        "digest": digest,
        "size": new_mail.size,
        "record": new_mail.record,
        "body": new_mail.body,
    }
    if not await tx.run("insert_received", automatic=int(new_mail.automatic), held=int(is_held), now=now, **row):
        return "known"
    if new_mail.daily_octets_max:
        count_stored_bytes(accounts[new_mail.team], new_mail.size, new_mail.daily_octets_max, now)
        await save_accounts(tx, accounts.values())
    if is_held:
        return "held"
    event = Event(id=publisher.new_id("evt_"), team=new_mail.team, subject=new_mail.id, type=EVENT_TYPE, created_at=now)
    await publisher.publish(tx, [event])
    return "published"
