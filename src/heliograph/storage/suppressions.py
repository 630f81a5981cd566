"""Stores suppression lists; every change is written with its audit entry.

A search by a part of the address returns the newest entries first.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.operations.erasure import ERASED_TEXT, EntryName, is_erased
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, setup
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Publisher
from heliograph.storage.ledger import read_account, stored_names
from heliograph.storage.outcomes import suppression_event
from heliograph.storage.setup import NewSuppression

SCAN_MAX = 20_000  # maximum entries that one page scans


class SuppressionRow(msgspec.Struct, frozen=True):
    address: str
    email: str
    reason: str
    source_message_id: str | None
    created_at: int

    @property
    def shown_address(self) -> str:
        return ERASED_TEXT if is_erased(self.address) else self.email


class PageCursor(msgspec.Struct, frozen=True):
    """Position in a suppression list at which a page ends."""

    created_at: int
    address: str


FIRST_PAGE = PageCursor(NEWEST, "")


class NeverListed(Exception):
    """The address is not on the list, and no stored event shows that it ever was."""


class SuppressionPage(msgspec.Struct, frozen=True):
    rows: list[SuppressionRow]
    next_cursor: PageCursor | None  # None if this is the last page


class Suppression(msgspec.Struct, frozen=True):
    email: str
    reason: str
    source_message_id: str | None
    detail: str | None
    created_at: int


class TeamAddress(NamedTuple):
    """A team and an address that may be on its suppression list."""

    team: int
    address: str


class SuppressionStatus(msgspec.Struct, frozen=True):
    """Reason and time of a suppression."""

    reason: str
    since: int


class Suppressions:
    """Suppression lists of all teams. `erased_name_of` returns the pseudonym that is stored for an erased address."""

    def __init__(self, database: Database, clock: Clock, publisher: Publisher, erased_name_of: EntryName) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self.erased_name_of = erased_name_of

    async def get(self, team: int, address: str) -> Suppression | None:
        """Return the suppression of an address, even if the address was erased. None if not found."""

        async def read_suppression(tx: Tx) -> Suppression | None:
            rows = await tx.run("find_suppression", team=team, address=address)
            if not rows and (await read_account(tx, team)).erased:
                rows = await tx.run("find_suppression", team=team, address=self.erased_name_of(team, address))
            return Suppression(*rows[0]) if rows else None

        return await self._database.read(read_suppression)

    async def find_statuses(self, team: int, addresses: Iterable[str]) -> dict[str, SuppressionStatus]:
        """Return address → suppression status, for those of a team's addresses that are suppressed."""
        address_rows = [(team, address) for address in addresses]
        rows = await self._database.read(lambda tx: tx.run("find_suppressions", addresses=address_rows))
        return {address: SuppressionStatus(*status_columns) for address, *status_columns, _ in rows}

    async def find_suppressed(self, pairs: Iterable[TeamAddress]) -> list[TeamAddress]:
        """Return those of the pairs of team and address that are suppressed."""
        pair_rows = list(pairs)
        rows = await self._database.read(lambda tx: tx.run("find_suppressions", addresses=pair_rows))
        return [TeamAddress(team, address) for address, _, _, team in rows]

    async def list_page(self, team: int, after: str | None, limit: int) -> list[Suppression]:
        """Return one page of suppressions: up to `limit`, and one more if another page follows.

        `after`: last address of the previous page, which may have been deleted since. Raises NeverListed if the address
        was never on the list.
        """

        async def read_page(tx: Tx) -> list[Suppression]:
            cursor = FIRST_PAGE if after is None else await _find_cursor(tx, team, after)
            params = {"at": cursor.created_at, "before": cursor.address, "limit": limit + 1}
            return [Suppression(*row) for row in await tx.run("list_suppressions", team=team, **params)]

        return await self._database.read_standby(read_page)

    async def search(
        self, team: int, text: str = "", before: PageCursor = FIRST_PAGE, limit: int = 50
    ) -> SuppressionPage:
        """Return suppressions whose address contains `text` (lower case); an empty text matches all."""
        cursor = {"team": team, "at": before.created_at, "before": before.address}
        params = cursor | {"scan": SCAN_MAX if text else limit + 1}

        async def read_page(tx: Tx) -> SuppressionPage:
            result = await tx.run("search_suppressions", text=text, limit=limit + 1, **params)
            rows = [SuppressionRow(*row) for row in result]
            if len(rows) > limit:
                return SuppressionPage(rows[:limit], PageCursor(rows[limit - 1].created_at, rows[limit - 1].address))
            end_rows = await tx.run("searched_suppressions_end", **params) if text else []
            has_more = bool(end_rows) and end_rows[0][2] == SCAN_MAX
            return SuppressionPage(rows, PageCursor(end_rows[0][0], end_rows[0][1]) if has_more else None)

        return await self._database.read_standby(read_page)

    async def add(self, suppression: NewSuppression, entry: AuditEntry) -> bool:
        """Suppress an address. Returns False, without an audit entry, if the address was suppressed already."""
        now, publisher = self._clock.team_now(suppression.team), self._publisher

        async def insert(tx: Tx) -> bool:
            added_keys = await setup.add_suppressions(tx, [suppression], now, publisher)
            await audit.write(tx, entry if added_keys else None)
            return bool(added_keys)

        return await write_serialized(self._database, insert, entry.team)

    async def remove(self, team: int, address: str, entry: AuditEntry) -> bool:
        """Remove the suppression of an address; return False if the address was not suppressed.

        Also finds the suppression if erasure has replaced the stored address by a pseudonym.
        """
        now, publisher = self._clock.team_now(team), self._publisher

        async def delete(tx: Tx) -> bool:
            events = [
                suppression_event(publisher, "suppression.deleted", (team, name, *row), now)
                for name in await stored_names(tx, team, address, self.erased_name_of)
                for row in await tx.run("delete_suppression", team=team, address=name)
            ]
            await publisher.publish(tx, events)
            await audit.write(tx, entry if events else None)
            return bool(events)

        return await write_serialized(self._database, delete, entry.team)


async def _find_cursor(tx: Tx, team: int, address: str) -> PageCursor:
    """Return the list position of an address, even if it was removed; raise NeverListed if it was never listed."""
    for row in await tx.run("find_suppression", team=team, address=address):
        return PageCursor(Suppression(*row).created_at, address)
    for (detail,) in await tx.run("deleted_suppression", team=team, address=address):
        return PageCursor(parse_timestamp(msgspec.json.decode(detail)["created_at"]) or 0, address)
    raise NeverListed
