"""Stores who unsubscribed from a category of a team's emails."""

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.event_data import UnsubscribeEventData, encode_data
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.mail.unsubscribe import UnsubscribeReason
from heliograph.domain.operations.erasure import ERASED_TEXT, EntryName, is_erased
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Event, Publisher
from heliograph.storage.ledger import stored_names


class Unsubscribe(msgspec.Struct, frozen=True):
    """An address that unsubscribed from a category."""

    address: str
    category: str
    reason: UnsubscribeReason
    created_at: int

    @property
    def shown_address(self) -> str:
        return ERASED_TEXT if is_erased(self.address) else self.address


class UnsubscribeCursor(msgspec.Struct, frozen=True, order=True):
    """Position in the list of unsubscribes at which the next page starts."""

    created_at: int
    address: str
    category: str


class MessageCategory(msgspec.Struct, frozen=True):
    """The category of an email, and its recipient."""

    team: int
    category: str
    address: str


FIRST_PAGE = UnsubscribeCursor(NEWEST, "", "")


class NeverUnsubscribed(Exception):
    """The address is not on the list, and no stored event shows that it ever was."""


class UnsubscribeStore:
    """Unsubscribes of all teams. `erased_name_of` returns the pseudonym under which an erased address is stored."""

    def __init__(self, database: Database, clock: Clock, publisher: Publisher, erased_name_of: EntryName) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self._erased_name_of = erased_name_of

    async def find(self, team: int, address: str) -> list[Unsubscribe]:
        """Return the unsubscribes of an address, at most one per category."""

        async def read_entries(tx: Tx) -> list[Unsubscribe]:
            names = await stored_names(tx, team, address, self._erased_name_of)
            rows = [row for name in names for row in await tx.run("find_unsubscribes", team=team, address=name)]
            return [Unsubscribe(*row) for row in rows]

        return await self._database.read(read_entries)

    async def list_page(self, team: int, after: UnsubscribeCursor, limit: int) -> list[Unsubscribe]:
        """Return up to `limit` + 1 unsubscribes; the extra one shows that another page follows."""
        params = {"at": after.created_at, "address": after.address, "category": after.category, "limit": limit + 1}
        rows = await self._database.read_standby(lambda tx: tx.run("list_unsubscribes", team=team, **params))
        return [Unsubscribe(*row) for row in rows]

    async def find_cursor(self, team: int, address: str, category: str) -> UnsubscribeCursor:
        """Return the cursor of an unsubscribe, even if deleted. Raises NeverUnsubscribed if it never existed."""
        return await self._database.read(lambda tx: _find_cursor(tx, team, address, category))

    async def find_message(self, message_id: str) -> MessageCategory | None:
        """Return the category and recipient of an email; None if it has no category or was deleted."""
        rows = await self._database.read(lambda tx: tx.run("message_category", id=message_id))
        return MessageCategory(*rows[0]) if rows else None

    async def add(
        self, team: int, address: str, category: str, reason: UnsubscribeReason, entry: AuditEntry | None = None
    ) -> bool:
        """Unsubscribe an address; return False, without an audit entry, if it was unsubscribed already."""
        now, publisher = self._clock.team_now(team), self._publisher

        async def insert(tx: Tx) -> bool:
            for name in (await stored_names(tx, team, address, self._erased_name_of))[1:]:
                erased_rows = await tx.run("find_unsubscribes", team=team, address=name)
                if any(Unsubscribe(*row).category == category for row in erased_rows):
                    return False
            rows = await tx.run(
                "insert_unsubscribe", team=team, address=address, category=category, reason=reason, created_at=now
            )
            await publisher.publish(
                tx, [_event(publisher, "recipient.unsubscribed", team, Unsubscribe(*row), now) for row in rows]
            )
            await audit.write(tx, entry if rows else None)
            return bool(rows)

        return await write_serialized(self._database, insert, entry.team if entry else None)

    async def remove(self, team: int, address: str, category: str, entry: AuditEntry) -> bool:
        """Remove an address's unsubscribe from a category (empty: from all); return False if there was none."""
        now, publisher = self._clock.team_now(team), self._publisher

        async def delete(tx: Tx) -> bool:
            rows = [
                row
                for name in await stored_names(tx, team, address, self._erased_name_of)
                for row in await tx.run("delete_unsubscribes", team=team, address=name, category=category)
            ]
            await publisher.publish(
                tx, [_event(publisher, "recipient.resubscribed", team, Unsubscribe(*row), now) for row in rows]
            )
            await audit.write(tx, entry if rows else None)
            return bool(rows)

        return await write_serialized(self._database, delete, entry.team)


async def _find_cursor(tx: Tx, team: int, address: str, category: str) -> UnsubscribeCursor:
    for row in await tx.run("find_unsubscribes", team=team, address=address):
        if (entry := Unsubscribe(*row)).category == category:
            return UnsubscribeCursor(entry.created_at, address, category)
    for (detail,) in await tx.run("deleted_unsubscribes", team=team, address=address):
        data = msgspec.json.decode(detail)
        if data["category"] == category:
            return UnsubscribeCursor(parse_timestamp(data["created_at"]) or 0, address, category)
    raise NeverUnsubscribed


def _event(publisher: Publisher, type_: str, team: int, entry: Unsubscribe, at: int) -> Event:
    data = UnsubscribeEventData(
        address=entry.address, category=entry.category, reason=entry.reason, created_at=timestamp(entry.created_at)
    )
    return Event(
        id=publisher.new_id("evt_"),
        team=team,
        subject=entry.address,
        recipient=entry.address,
        type=type_,
        detail=encode_data(data),
        created_at=at,
    )
