"""Stores suppression lists; every change is written with its audit entry.

Entries are searched newest first by a part of the address.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.operations.erasure import SHOWN, NameOf, is_erased
from heliograph.runtime.clock import Clock
from heliograph.storage import audit, setup
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.events import Publisher
from heliograph.storage.ledger import account
from heliograph.storage.outcomes import suppression_event
from heliograph.storage.setup import NewSuppression

SCAN = 20_000  # maximum entries that one page scans


class SuppressionLine(msgspec.Struct, frozen=True):
    address: str
    email: str
    reason: str
    source_message_id: str | None
    created_at: int

    @property
    def shown(self) -> str:
        return SHOWN if is_erased(self.address) else self.email


class End(msgspec.Struct, frozen=True):
    """Cursor of the end of a page."""

    created_at: int
    address: str


START = End(NEWEST, "")


class NeverListed(Exception):
    """The address was never on the list, as far back as events are kept."""


class SuppressionPage(msgspec.Struct, frozen=True):
    lines: list[SuppressionLine]
    end: End | None  # None if this is the last page


class Suppression(msgspec.Struct, frozen=True):
    email: str
    reason: str
    source_message_id: str | None
    detail: str | None
    created_at: int


class Listing(NamedTuple):
    """A team and an address that may be on its suppression list."""

    team: int
    address: str


class OnList(msgspec.Struct, frozen=True):
    """Reason and time of a suppression."""

    reason: str
    since: int


class Suppressions:
    """Suppression lists of all teams.

    `name_of`: returns the placeholder under which an erased address is listed.
    """

    def __init__(self, database: Database, clock: Clock, publisher: Publisher, name_of: NameOf) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self.name_of = name_of

    async def get(self, team: int, address: str) -> Suppression | None:
        """Return the suppression of an address, even if the address was erased. None if not found."""

        async def story(tx: Tx) -> Suppression | None:
            rows = await tx.run("find_suppression", team=team, address=address)
            if not rows and (await account(tx, team)).erased:
                rows = await tx.run("find_suppression", team=team, address=self.name_of(team, address))
            return Suppression(*rows[0]) if rows else None

        return await self._database.read(story)

    async def among(self, team: int, addresses: Iterable[str]) -> dict[str, OnList]:
        """Return those of a team's addresses that are suppressed."""
        asked = [(team, address) for address in addresses]
        rows = await self._database.read(lambda tx: tx.run("find_suppressions", addresses=asked))
        return {address: OnList(*listed) for address, *listed, _ in rows}

    async def of(self, places: Iterable[Listing]) -> list[Listing]:
        """Return those of the given pairs of team and address that are suppressed."""
        asked = list(places)
        rows = await self._database.read(lambda tx: tx.run("find_suppressions", addresses=asked))
        return [Listing(team, address) for address, _, _, team in rows]

    async def page(self, team: int, after: str | None, limit: int) -> list[Suppression]:
        """Return one page, with one more entry than `limit` if there are more.

        `after`: last address of the previous page, which may have been deleted since. Raises NeverListed.
        """

        async def story(tx: Tx) -> list[Suppression]:
            end = START if after is None else await _end(tx, team, after)
            given = {"at": end.created_at, "before": end.address, "limit": limit + 1}
            return [Suppression(*row) for row in await tx.run("list_suppressions", team=team, **given)]

        return await self._database.read(story)

    async def search(self, team: int, text: str = "", before: End = START, limit: int = 50) -> SuppressionPage:
        """Return entries whose address contains `text` (lower case); an empty text matches all."""
        after = {"team": team, "at": before.created_at, "before": before.address}
        given = after | {"scan": SCAN if text else limit + 1}

        async def story(tx: Tx) -> SuppressionPage:
            rows = await tx.run("search_suppressions", text=text, limit=limit + 1, **given)
            lines = [SuppressionLine(*row) for row in rows]
            if len(lines) > limit:
                return SuppressionPage(lines[:limit], End(lines[limit - 1].created_at, lines[limit - 1].address))
            ends = await tx.run("searched_suppressions_end", **given) if text else []
            more = bool(ends) and ends[0][2] == SCAN
            return SuppressionPage(lines, End(ends[0][0], ends[0][1]) if more else None)

        return await self._database.read(story)

    async def add(self, given: NewSuppression, entry: AuditEntry) -> bool:
        """Suppress an address. Returns False, without an audit entry, if the address was suppressed already."""
        now, publisher = self._clock.of(given.team), self._publisher

        async def story(tx: Tx) -> bool:
            made = await setup.suppress(tx, [given], now, publisher)
            await audit.write(tx, entry if made else None)
            return bool(made)

        return await write_serialized(self._database, story, entry.team)

    async def remove(self, team: int, address: str, entry: AuditEntry) -> bool:
        """Remove a suppression, also of an erased address, given the original address.

        Returns whether the address was suppressed.
        """
        now, publisher = self._clock.of(team), self._publisher

        async def story(tx: Tx) -> bool:
            names = [address, self.name_of(team, address)] if (await account(tx, team)).erased else [address]
            gone = [
                suppression_event(publisher, "suppression.deleted", (team, name, *row), now)
                for name in names
                for row in await tx.run("delete_suppression", team=team, address=name)
            ]
            await publisher.publish(tx, gone)
            await audit.write(tx, entry if gone else None)
            return bool(gone)

        return await write_serialized(self._database, story, entry.team)


async def _end(tx: Tx, team: int, address: str) -> End:
    """Return the list position of an address, or the position before its deletion. Raises NeverListed."""
    for row in await tx.run("find_suppression", team=team, address=address):
        return End(Suppression(*row).created_at, address)
    for (detail,) in await tx.run("place_of_deleted", team=team, address=address):
        return End(parse_timestamp(msgspec.json.decode(detail)["created_at"]) or 0, address)
    raise NeverListed
