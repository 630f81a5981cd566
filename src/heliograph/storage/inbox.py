"""The test inbox in the store: what simulators delivered to a team since it was last cleared."""

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
LAST_OF_A_MS = (1 << 80) - 1  # random part of an id
SCAN = 2000  # records of a channel that one page looks at: quick even when few of them are the inbox's


class InboxLine(msgspec.Struct, frozen=True):
    key: int
    id: str
    channel: Channel
    status: str
    created_at: int
    summary: str
    opened: int  # 0: unread
    recipient: str
    recipients: int
    sender: str  # of an email, bare
    attachments: int
    size: int  # bytes of its content, with the attachments that are kept in it


class CodeLine(msgspec.Struct, frozen=True):
    id: str
    phone: str
    status: str
    created_at: int
    magic: int  # 1: a magic number, whose code is known
    added: str  # what its sender added, as JSON


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
    content: str | None  # None: retention has taken it
    size: int  # bytes of it


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the inbox with all that was delivered."""

    line: InboxLine
    to: list[str]
    content: str | None  # None: retention has taken it


Line = TypeVar("Line", InboxLine, CodeLine)


class InboxPage(msgspec.Struct, Generic[Line], frozen=True, kw_only=True):
    """Newest first."""

    lines: list[Line]
    before: str | None  # the id to continue before; None: there are no more
    cleared_at: int | None  # None: never


class InboxSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines. Ids are compared without their prefix, which is of a channel."""

    text: str = ""  # a part of the recipient, the subject or the text, in lower case
    address: str | None = None  # a whole one, in its normal form
    after: str = ""  # only what is newer than this id
    since: int | None = None  # only what was made later than this
    before: str = ""  # only what is older than this id
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
        """Return what these carriers took, over all of these channels."""
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
        """Return these lines with what was delivered, in the same order."""
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
        """Return the bytes of each, by id, with the attachments that are files."""
        messages = [(line.key,) for line in lines if line.attachments]
        files = await self._database.read(lambda tx: tx.run("inbox_files", messages=messages)) if messages else []
        more: dict[int, int] = defaultdict(int)
        for key, hash_ in files:
            more[key] += await self._attachments.size(hash_)
        return {line.id: line.size + more[line.key] for line in lines}

    async def item(self, team: int, id_: str, carriers: Iterable[str], room: Room) -> InboxItem | None:
        """Return it whatever its age, also after the inbox was cleared, but not when it was deleted there."""
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
        """Read or unread, for everybody in the team. Nothing that was sent changes, so it has no entry."""
        await self._database.write(lambda tx: _mark(tx, team, id_, opened=opened))

    async def delete(self, team: int, id_: str, entry: AuditEntry) -> bool:
        """Hide one; return False when it is not there, or was hidden before."""

        async def story(tx: Tx) -> bool:
            done = await _mark(tx, team, id_, opened=True, deleted=True)
            if done:
                await audit.write(tx, entry)
            return done

        return await write_serialized(self._database, story, entry.team)

    async def clear(self, team: int, entry: AuditEntry) -> None:
        """Hide everything that is there now."""

        async def story(tx: Tx) -> None:
            await tx.run("clear_inbox", team=team, at=entry.at)
            await audit.write(tx, entry)

        await write_serialized(self._database, story, entry.team)


async def _mark(tx: Tx, team: int, id_: str, *, opened: bool, deleted: bool = False) -> bool:
    return bool(await tx.run("mark_inbox", team=team, id=id_, opened=int(opened), deleted=int(deleted)))


async def _page(
    tx: Tx,
    queries: tuple[str, str],  # of the lines, and of the end of what was searched
    kind: type[Line],
    team: int,
    prefixes: Sequence[str],
    wanted: InboxSearch,
    given: dict[str, Any],
    ahead: int,  # of the team's test clock: so much older its ids may be than its times
) -> InboxPage[Line]:
    cleared = await tx.run("inbox_cleared_at", team=team)
    since: int | None = cleared[0][0] if cleared else None
    wish = None if wanted.since is None else max(0, wanted.since - ahead)
    times: list[str] = [ulid(at, LAST_OF_A_MS) for at in (since, wish) if at is not None]
    low, high = max([_body(wanted.after), *times]), _body(wanted.before) or "~"
    lines: list[Line] = []
    ends: list[str] = []  # without prefix: how far the channels were searched that have more
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
    if ends:  # beyond the nearest end, something newer may be missing
        lines = [line for line in lines if _body(line.id) >= max(ends)]
    if len(lines) > wanted.limit:
        return InboxPage(lines=lines[: wanted.limit], before=lines[wanted.limit - 1].id, cleared_at=since)
    return InboxPage(lines=lines, before=prefixes[0] + max(ends) if ends else None, cleared_at=since)


def _body(id_: str) -> str:
    return id_.partition("_")[2]
