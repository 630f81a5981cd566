"""The inbox in the store: what simulators delivered to a team since it was last cleared."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from heliograph.clock import Clock
from heliograph.rules.audit import AuditEntry
from heliograph.rules.ids import PREFIXES, ulid
from heliograph.rules.setup.records import Channel
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx

PAGE = 50
LAST_OF_A_MS = (1 << 80) - 1  # random part of an id
SCAN = 2000  # records that one page looks at, so that it is quick even when few of them are the inbox's


class InboxLine(msgspec.Struct, frozen=True):
    id: str
    status: str
    created_at: int
    summary: str
    recipient: str
    recipients: int


class CodeLine(msgspec.Struct, frozen=True):
    id: str
    phone: str
    status: str
    created_at: int
    magic: int  # 1: a magic number, whose code is known


class InboxRecipient(msgspec.Struct, frozen=True):
    given: str
    kind: str
    status: str


class InboxItem(msgspec.Struct, frozen=True):
    recipients: list[InboxRecipient]
    channel: str
    status: str
    sandbox: int
    created_at: int
    template_id: str | None
    content: str | None  # None: retention has taken it


Line = TypeVar("Line", InboxLine, CodeLine)


class InboxPage(msgspec.Struct, Generic[Line], frozen=True, kw_only=True):
    """Newest first."""

    lines: list[Line]
    before: str | None  # the id to continue before; None: there are no more
    cleared_at: int | None  # None: never


class Inbox:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def messages(
        self, team: int, channel: Channel, carriers: Iterable[str], text: str = "", before: str = "", limit: int = PAGE
    ) -> InboxPage[InboxLine]:
        """What these carriers took; `text`: lower-case, empty: all."""
        given = {"text": text, "carriers": [(id_,) for id_ in carriers]}
        return await self._database.read(
            lambda tx: _page(
                tx, ("inbox_messages", "inbox_messages_end"), InboxLine, team, PREFIXES[channel], before, limit, given
            )
        )

    async def codes(self, team: int, text: str = "", before: str = "", limit: int = PAGE) -> InboxPage[CodeLine]:
        given = {"text": text, "now": self._clock.now()}
        return await self._database.read(
            lambda tx: _page(
                tx, ("inbox_codes", "inbox_codes_end"), CodeLine, team, PREFIXES["verification"], before, limit, given
            )
        )

    async def item(self, team: int, id_: str, carriers: Iterable[str]) -> InboxItem | None:
        """Whatever its age, also after the inbox was cleared."""
        takers = [(carrier,) for carrier in carriers]

        async def story(tx: Tx) -> InboxItem | None:
            rows = await tx.run("inbox_message", team=team, id=id_)
            found = await tx.run("inbox_recipients", message=rows[0][0], carriers=takers) if rows else []
            return InboxItem([InboxRecipient(*row) for row in found], *rows[0][1:]) if found else None

        return await self._database.read(story)

    async def clear(self, team: int, entry: AuditEntry) -> None:
        """Hide everything that is there now."""

        async def story(tx: Tx) -> None:
            await tx.run("clear_inbox", team=team, at=entry.at)
            await audit.write(tx, entry)

        await self._database.write(story)


async def _page(
    tx: Tx,
    queries: tuple[str, str],  # of the lines, and of the end of what was searched
    kind: type[Line],
    team: int,
    prefix: str,
    before: str,
    limit: int,
    given: dict[str, Any],
) -> InboxPage[Line]:
    cleared = await tx.run("inbox_cleared_at", team=team)
    since = cleared[0][0] if cleared else None
    low = prefix if since is None else prefix + ulid(since, LAST_OF_A_MS)
    span = {"team": team, "low": low, "high": before or f"{prefix}~", "scan": SCAN}
    lines = [kind(*row) for row in await tx.run(queries[0], limit=limit + 1, **span, **given)]
    if len(lines) > limit:
        return InboxPage(lines=lines[:limit], before=lines[limit - 1].id, cleared_at=since)
    ((last, count),) = await tx.run(queries[1], **span)
    return InboxPage(lines=lines, before=last if count == SCAN else None, cleared_at=since)
