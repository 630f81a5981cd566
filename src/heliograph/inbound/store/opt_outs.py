"""Store of phone numbers that opted out of a team's messages, by channel."""

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.operations.erasure import SHOWN, NameOf, is_erased
from heliograph.domain.phones.opt_out import OptOutReason, PhoneChannel
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Event, Publisher
from heliograph.storage.ledger import account


class OptOut(msgspec.Struct, frozen=True):
    phone: str
    channel: PhoneChannel
    reason: OptOutReason
    created_at: int

    @property
    def shown(self) -> str:
        return SHOWN if is_erased(self.phone) else self.phone


class OptOutPlace(msgspec.Struct, frozen=True, order=True):
    """Pagination cursor of the opt-out list."""

    created_at: int
    phone: str
    channel: str


START = OptOutPlace(NEWEST, "", "")


class NeverOptedOut(Exception):
    """The phone was never on the list, as far back as events are kept."""


async def list_phones(tx: Tx, rows: Sequence[tuple[Any, ...]], publisher: Publisher) -> int:
    """Add rows of (team, phone, channel, reason, time); return the number of new entries."""
    if not rows:
        return 0
    distinct = {row[:3]: row for row in rows}
    made = await tx.run("insert_opt_outs", opt_outs=list(distinct.values()))
    if made:
        await tx.run("mark_opted_out", teams=list({(row[0],) for row in made}))
        await publisher.publish(tx, [_event(publisher, "opt_out.created", row, row[4]) for row in made])
    return len(made)


async def unlist(
    tx: Tx, team: int, names: Sequence[str], channels: Sequence[str], now: int, publisher: Publisher
) -> int:
    """Remove a phone from the list; return the number of channels from which it was removed."""
    asked = [(channel,) for channel in channels]
    gone = [r for name in names for r in await tx.run("delete_opt_outs", team=team, phone=name, channels=asked)]
    await publisher.publish(tx, [_event(publisher, "opt_out.deleted", row, now) for row in gone])
    return len(gone)


def _event(publisher: Publisher, type_: str, row: Sequence[Any], at: int) -> Event:
    team, phone, channel, reason, made_at = row
    data = {
        "object": "opt_out",
        "phone": phone,
        "channel": channel,
        "reason": reason,
        "created_at": timestamp(made_at),
    }
    return Event(
        id=publisher.new_id("evt_"),
        team=team,
        subject=phone,
        recipient=phone,
        type=type_,
        detail=msgspec.json.encode(data).decode(),
        created_at=at,
    )


class OptOuts:
    """Opt-outs of all teams. `name_of` returns the pseudonym of an erased phone on the list."""

    def __init__(self, database: Database, clock: Clock, publisher: Publisher, name_of: NameOf) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self._name_of = name_of

    async def find(self, team: int, phone: str) -> list[OptOut]:
        """Return the entries of a phone, at most one per channel."""

        async def story(tx: Tx) -> list[OptOut]:
            names = await self._names(tx, team, phone)
            return [OptOut(*row) for name in names for row in await tx.run("find_opt_outs", team=team, phone=name)]

        return await self._database.read(story)

    async def page(self, team: int, after: OptOutPlace, limit: int) -> list[OptOut]:
        """Return one page, plus one entry beyond `limit` if there are more."""
        given = {"at": after.created_at, "phone": after.phone, "channel": after.channel, "limit": limit + 1}
        rows = await self._database.read(lambda tx: tx.run("list_opt_outs", team=team, **given))
        return [OptOut(*row) for row in rows]

    async def place(self, team: int, phone: str, channel: str) -> OptOutPlace:
        """Return the cursor of a phone's entry, also after its deletion. Without a channel, the last of its entries."""
        return await self._database.read(lambda tx: _place(tx, team, phone, channel))

    async def add(self, team: int, phone: str, channel: str, entry: AuditEntry) -> bool:
        """Add a phone; return whether it is new. The audit entry is written only then."""
        row, publisher = (team, phone, channel, "manual", self._clock.of(team)), self._publisher

        async def story(tx: Tx) -> bool:
            made = await list_phones(tx, [row], publisher)
            await audit.write(tx, entry if made else None)
            return bool(made)

        return await write_serialized(self._database, story, entry.team)

    async def remove(self, team: int, phone: str, channels: Sequence[str], entry: AuditEntry) -> bool:
        now, publisher = self._clock.of(team), self._publisher

        async def story(tx: Tx) -> bool:
            gone = await unlist(tx, team, await self._names(tx, team, phone), channels, now, publisher)
            await audit.write(tx, entry if gone else None)
            return bool(gone)

        return await write_serialized(self._database, story, entry.team)

    async def _names(self, tx: Tx, team: int, phone: str) -> list[str]:
        return [phone, self._name_of(team, phone)] if (await account(tx, team)).erased else [phone]


async def _place(tx: Tx, team: int, phone: str, channel: str) -> OptOutPlace:
    found = [OptOut(*row) for row in await tx.run("find_opt_outs", team=team, phone=phone)]
    places = [OptOutPlace(one.created_at, phone, one.channel) for one in found]
    for (detail,) in await tx.run("places_of_opted_in", team=team, phone=phone):
        data = msgspec.json.decode(detail)
        places.append(OptOutPlace(parse_timestamp(data["created_at"]) or 0, phone, data["channel"]))
    wanted = [place for place in places if channel in ("", place.channel)]
    if not wanted:
        raise NeverOptedOut
    return wanted[0] if channel else min(wanted)
