"""The test inbox: messages and codes that simulators delivered for a team since the inbox was last cleared."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.ids import PREFIXES, ulid
from heliograph.domain.setup.records import Channel
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.attachments import Attachments
from heliograph.storage.contents import SMALL, Room, read_content
from heliograph.storage.engine.database import Database, Tx, write_serialized

PAGE = 50
CHANNELS: tuple[Channel, ...] = ("email", "sms", "whatsapp")
LAST_OF_A_MS = (1 << 80) - 1  # greatest random part of an id
SCAN = 2000  # maximum records of a channel scanned for one page, which limits its cost if few records match


class InboxLine(msgspec.Struct, frozen=True):
    key: int
    id: str
    channel: Channel
    status: str
    created_at: int
    summary: str
    opened: int  # 0 if unread
    recipient: str
    recipients: int
    sender: str  # sender address of an email, without the display name
    attachments: int
    size: int  # bytes of the content, including attachments stored within it


class CodeLine(msgspec.Struct, frozen=True):
    id: str
    phone: str
    status: str
    created_at: int
    magic: int  # 1 for a magic number, whose code is fixed
    added: str  # optional fields of the request, as JSON


class InboxRecipient(msgspec.Struct, frozen=True):
    given: str
    kind: str
    status: str


class InboxItem(msgspec.Struct, frozen=True):
    recipients: list[InboxRecipient]
    channel: Channel
    status: str
    sandbox: int
    created_at: int
    template_id: str | None
    opened: int
    deleted: int
    content: str | None  # None if deleted by retention
    size: int  # bytes of the content


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """An inbox line with its recipients and content."""

    line: InboxLine
    to: list[str]
    content: str | None  # None if deleted by retention


Line = TypeVar("Line", InboxLine, CodeLine)


class InboxPage(msgspec.Struct, Generic[Line], frozen=True, kw_only=True):
    """A page of inbox lines, newest first."""

    lines: list[Line]
    before: str | None  # cursor of the next page; None if this is the last page
    cleared_at: int | None  # None if the inbox was never cleared


class InboxSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of inbox lines. Ids are compared without their prefix, which depends on the channel."""

    text: str = ""  # lower-case substring of the recipient, subject or text
    address: str | None = None  # exact normalised address
    after: str = ""  # only lines newer than this id
    since: int | None = None  # only lines created after this time
    before: str = ""  # only lines older than this id
    unread: bool = False
    limit: int = PAGE


class Inbox:
    def __init__(self, database: Database, clock: Clock, attachments: Attachments) -> None:
        self._database = database
        self._clock = clock
        self._attachments = attachments

    async def messages(
        self, team: int, channels: Iterable[Channel], carriers: Iterable[str], wanted: InboxSearch
    ) -> InboxPage[InboxLine]:
        """Return a page of messages that these carriers accepted, over all of these channels."""
        given: dict[str, Any] = {"text": wanted.text, "address": wanted.address, "unread": int(wanted.unread)}
        given["carriers"] = [(id_,) for id_ in carriers]
        prefixes = [PREFIXES[channel] for channel in channels]
        queries, ahead = ("inbox_messages", "inbox_messages_end"), self._clock.moved.get(team, 0)
        return await self._database.read(lambda tx: _page(tx, queries, InboxLine, team, prefixes, wanted, given, ahead))

    async def codes(self, team: int, wanted: InboxSearch) -> InboxPage[CodeLine]:
        given = {"text": wanted.text, "address": wanted.address, "now": self._clock.of(team)}
        prefixes, queries = [PREFIXES["verification"]], ("inbox_codes", "inbox_codes_end")
        ahead = self._clock.moved.get(team, 0)
        return await self._database.read(lambda tx: _page(tx, queries, CodeLine, team, prefixes, wanted, given, ahead))

    async def code(self, team: int, id_: str) -> CodeLine | None:
        now = self._clock.of(team)
        rows = await self._database.read(lambda tx: tx.run("inbox_code", team=team, id=id_, now=now))
        return CodeLine(*rows[0]) if rows else None

    async def whole(self, lines: Sequence[InboxLine], carriers: Iterable[str], room: Room) -> list[Captured]:
        """Return the lines with their recipients and contents, in the same order."""
        await room(sum(line.size for line in lines))
        messages, takers = [(line.key,) for line in lines], [(id_,) for id_ in carriers]

        async def story(tx: Tx) -> list[Captured]:
            contents: dict[int, str] = {row[0]: row[1] for row in await tx.run("inbox_contents", messages=messages)}
            to: dict[int, list[str]] = defaultdict(list)
            for key, given in await tx.run("inbox_recipients_of", messages=messages, carriers=takers):
                to[key].append(given)
            return [Captured(line=line, to=to[line.key], content=contents.get(line.key)) for line in lines]

        return await self._database.read(story) if lines else []

    async def sizes(self, lines: Sequence[InboxLine]) -> dict[str, int]:
        """Return the size of each message in bytes by id, including attachments that are stored as files."""
        messages = [(line.key,) for line in lines if line.attachments]
        files = await self._database.read(lambda tx: tx.run("inbox_files", messages=messages)) if messages else []
        more: dict[int, int] = defaultdict(int)
        for key, hash_ in files:
            more[key] += await self._attachments.size(hash_)
        return {line.id: line.size + more[line.key] for line in lines}

    async def item(self, team: int, id_: str, carriers: Iterable[str], room: Room) -> InboxItem | None:
        """Return the message, even if the inbox was cleared since; None if not found or deleted from the inbox."""
        takers = [(carrier,) for carrier in carriers]

        async def story(tx: Tx) -> tuple[int, InboxItem] | None:
            rows = await tx.run("inbox_message", team=team, id=id_, most=SMALL)
            found = await tx.run("inbox_recipients", message=rows[0][0], carriers=takers) if rows else []
            item = InboxItem([InboxRecipient(*row) for row in found], *rows[0][1:]) if found else None
            return None if item is None or item.deleted else (rows[0][0], item)

        read = await self._database.read(story)
        if read is None:
            return None
        key, item = read
        return replace(item, content=await read_content(self._database, key, item.content, item.size, room))

    async def mark(self, team: int, id_: str, *, opened: bool) -> None:
        """Mark a message as read or unread for the whole team. No audit entry, as the message does not change."""
        await self._database.write(lambda tx: _mark(tx, team, id_, opened=opened))

    async def delete(self, team: int, id_: str, entry: AuditEntry) -> bool:
        """Hide a message; return False if it does not exist or is already hidden."""

        async def story(tx: Tx) -> bool:
            done = await _mark(tx, team, id_, opened=True, deleted=True)
            if done:
                await audit.write(tx, entry)
            return done

        return await write_serialized(self._database, story, entry.team)

    async def clear(self, team: int, entry: AuditEntry) -> None:
        """Hide all messages and codes created until now."""

        async def story(tx: Tx) -> None:
            await tx.run("clear_inbox", team=team, at=entry.at)
            await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.team)


async def _mark(tx: Tx, team: int, id_: str, *, opened: bool, deleted: bool = False) -> bool:
    return bool(await tx.run("mark_inbox", team=team, id=id_, opened=int(opened), deleted=int(deleted)))


async def _page(
    tx: Tx,
    queries: tuple[str, str],  # names of the queries for the lines and for the end of the scanned range
    kind: type[Line],
    team: int,
    prefixes: Sequence[str],
    wanted: InboxSearch,
    given: dict[str, Any],
    ahead: int,  # offset of the team's test clock in ms: ids can be this much older than `created_at`
) -> InboxPage[Line]:
    cleared = await tx.run("inbox_cleared_at", team=team)
    since: int | None = cleared[0][0] if cleared else None
    wish = None if wanted.since is None else max(0, wanted.since - ahead)
    times: list[str] = [ulid(at, LAST_OF_A_MS) for at in (since, wish) if at is not None]
    low, high = max([_body(wanted.after), *times]), _body(wanted.before) or "~"
    lines: list[Line] = []
    ends: list[str] = []  # last scanned id, without prefix, of each channel that has more records
    for prefix in prefixes:
        span = {"team": team, "low": prefix + low, "high": prefix + high, "scan": SCAN}
        rows = await tx.run(queries[0], limit=wanted.limit + 1, **span, **given)
        lines += [kind(*row) for row in rows]
        if len(rows) <= wanted.limit:
            ((last, count),) = await tx.run(queries[1], **span)
            ends += [_body(last)] if count == SCAN else []
    if ahead and wanted.since is not None:
        lines = [line for line in lines if line.created_at > wanted.since]
    lines.sort(key=lambda line: _body(line.id), reverse=True)
    if ends:  # drop lines older than the newest of these ids: other channels may have newer lines
        lines = [line for line in lines if _body(line.id) >= max(ends)]
    if len(lines) > wanted.limit:
        return InboxPage(lines=lines[: wanted.limit], before=lines[wanted.limit - 1].id, cleared_at=since)
    return InboxPage(lines=lines, before=prefixes[0] + max(ends) if ends else None, cleared_at=since)


def _body(id_: str) -> str:
    return id_.partition("_")[2]
