"""Store of phone numbers that opted out of a team's messages, by channel."""

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.event_data import OptOutEventData, encode_data
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.operations.erasure import ERASED_TEXT, EntryName, is_erased
from heliograph.domain.phones.opt_out import OptOutReason, PhoneChannel
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Event, Publisher
from heliograph.storage.ledger import stored_names


class OptOut(msgspec.Struct, frozen=True):
    phone: str
    channel: PhoneChannel
    reason: OptOutReason
    created_at: int

    @property
    def shown(self) -> str:
        return ERASED_TEXT if is_erased(self.phone) else self.phone


class OptOutCursor(msgspec.Struct, frozen=True, order=True):
    """Position in the list of opt-outs at which a page starts."""

    created_at: int
    phone: str
    channel: str


FIRST_PAGE = OptOutCursor(NEWEST, "", "")


class NeverOptedOut(Exception):
    """The phone has no opt-out, and no stored event shows that it had one."""


async def add_opt_outs(tx: Tx, rows: Sequence[tuple[Any, ...]], publisher: Publisher) -> int:
    """Insert rows of (team, phone, channel, reason, time); return how many are new opt-outs."""
    if not rows:
        return 0
    row_by_key = {row[:3]: row for row in rows}
    inserted_rows = await tx.run("insert_opt_outs", opt_outs=list(row_by_key.values()))
    if inserted_rows:
        await tx.run("mark_opted_out", teams=list({(row[0],) for row in inserted_rows}))
        await publisher.publish(tx, [_event(publisher, "opt_out.created", row, row[4]) for row in inserted_rows])
    return len(inserted_rows)


async def remove_opt_outs(
    tx: Tx, team: int, names: Sequence[str], channels: Sequence[str], now: int, publisher: Publisher
) -> int:
    """Remove a phone's opt-outs, one per channel; return their number. `names`: stored forms of the phone."""
    channel_rows = [(channel,) for channel in channels]
    deleted_rows = [
        row for name in names for row in await tx.run("delete_opt_outs", team=team, phone=name, channels=channel_rows)
    ]
    await publisher.publish(tx, [_event(publisher, "opt_out.deleted", row, now) for row in deleted_rows])
    return len(deleted_rows)


def _event(publisher: Publisher, type_: str, row: Sequence[Any], event_time: int) -> Event:
    team, phone, channel, reason, created_at = row
    data = OptOutEventData(phone=phone, channel=channel, reason=reason, created_at=timestamp(created_at))
    return Event(
        id=publisher.new_id("evt_"),
        team=team,
        subject=phone,
        recipient=phone,
        type=type_,
        detail=encode_data(data),
        created_at=event_time,
    )


class OptOutStore:
    """Opt-outs of all teams. `erased_name_of` returns the pseudonym under which an erased phone is stored."""

    def __init__(self, database: Database, clock: Clock, publisher: Publisher, erased_name_of: EntryName) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self._erased_name_of = erased_name_of

    async def find(self, team: int, phone: str) -> list[OptOut]:
        """Return the opt-outs of a phone, at most one per channel."""

        async def read_opt_outs(tx: Tx) -> list[OptOut]:
            names = await stored_names(tx, team, phone, self._erased_name_of)
            return [OptOut(*row) for name in names for row in await tx.run("find_opt_outs", team=team, phone=name)]

        return await self._database.read(read_opt_outs)

    async def list_page(self, team: int, after: OptOutCursor, limit: int) -> list[OptOut]:
        """Return opt-outs, newest first: up to `limit`, and one more if another page follows."""
        cursor_params = {"at": after.created_at, "phone": after.phone, "channel": after.channel, "limit": limit + 1}
        rows = await self._database.read_standby(lambda tx: tx.run("list_opt_outs", team=team, **cursor_params))
        return [OptOut(*row) for row in rows]

    async def find_cursor(self, team: int, phone: str, channel: str) -> OptOutCursor:
        """Return the list position of a phone's opt-out, even if removed; if `channel` is empty, of the oldest one."""
        return await self._database.read(lambda tx: _find_cursor(tx, team, phone, channel))

    async def add(self, team: int, phone: str, channel: str, entry: AuditEntry) -> bool:
        """Add an opt-out of a phone; return False, without an audit entry, if it already exists."""
        row, publisher = (team, phone, channel, "manual", self._clock.team_now(team)), self._publisher

        async def insert(tx: Tx) -> bool:
            inserted_count = await add_opt_outs(tx, [row], publisher)
            await audit.write(tx, entry if inserted_count else None)
            return bool(inserted_count)

        return await write_serialized(self._database, insert, entry.team)

    async def remove(self, team: int, phone: str, channels: Sequence[str], entry: AuditEntry) -> bool:
        now, publisher = self._clock.team_now(team), self._publisher

        async def delete(tx: Tx) -> bool:
            names = await stored_names(tx, team, phone, self._erased_name_of)
            deleted_count = await remove_opt_outs(tx, team, names, channels, now, publisher)
            await audit.write(tx, entry if deleted_count else None)
            return bool(deleted_count)

        return await write_serialized(self._database, delete, entry.team)


async def _find_cursor(tx: Tx, team: int, phone: str, channel: str) -> OptOutCursor:
    opt_outs = [OptOut(*row) for row in await tx.run("find_opt_outs", team=team, phone=phone)]
    cursors = [OptOutCursor(opt_out.created_at, phone, opt_out.channel) for opt_out in opt_outs]
    for (detail,) in await tx.run("deleted_opt_outs", team=team, phone=phone):
        data = msgspec.json.decode(detail)
        cursors.append(OptOutCursor(parse_timestamp(data["created_at"]) or 0, phone, data["channel"]))
    matching_cursors = [cursor for cursor in cursors if channel in ("", cursor.channel)]
    if not matching_cursors:
        raise NeverOptedOut
    return matching_cursors[0] if channel else min(matching_cursors)
