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
from heliograph.storage.body_files import Contents
from heliograph.storage.contents import SMALL_BYTES, ReserveMemory
from heliograph.storage.engine.database import Database, Tx, write_serialized

PAGE_SIZE = 50
CHANNELS: tuple[Channel, ...] = ("email", "sms", "whatsapp")
MAX_RANDOM_PART = (1 << 80) - 1  # greatest random part of an id
SCAN_MAX = 2000  # maximum records of a channel scanned for one page, which limits its cost if few records match


class InboxRow(msgspec.Struct, frozen=True):
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
    size: int  # bytes of the content, including attachments stored in the content


class CodeRow(msgspec.Struct, frozen=True):
    id: str
    phone: str
    status: str
    created_at: int
    magic: int  # 1 for a magic phone number, whose code is fixed
    added: str  # optional fields of the request, as JSON


class InboxRecipient(msgspec.Struct, frozen=True):
    given_address: str
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


class CapturedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the inbox with its recipients and content."""

    row: InboxRow
    recipients: list[str]
    content: str | None  # None if deleted by retention


RowT = TypeVar("RowT", InboxRow, CodeRow)


class InboxPage(msgspec.Struct, Generic[RowT], frozen=True, kw_only=True):
    """A page of inbox rows, newest first."""

    rows: list[RowT]
    before: str | None  # cursor of the next page; None if this is the last page
    cleared_at: int | None  # None if the inbox was never cleared


class InboxSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of inbox rows. Ids are compared without their prefix, which depends on the channel."""

    text: str = ""  # lower-case substring of the recipient, subject or text
    address: str | None = None  # exact normalised address
    after: str = ""  # only rows newer than this id
    since: int | None = None  # only rows created after this time
    before: str = ""  # only rows older than this id
    unread: bool = False
    limit: int = PAGE_SIZE


class Inbox:
    def __init__(self, database: Database, clock: Clock, attachments: Attachments, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._clock = clock
        self._attachments = attachments

    async def list_messages(
        self, team: int, channels: Iterable[Channel], carriers: Iterable[str], search: InboxSearch
    ) -> InboxPage[InboxRow]:
        """Return a page of messages that these simulators accepted, in any of these channels."""
        params: dict[str, Any] = {"text": search.text, "address": search.address, "unread": int(search.unread)}
        params["carriers"] = [(id_,) for id_ in carriers]
        prefixes = [PREFIXES[channel] for channel in channels]
        queries, clock_offset = ("inbox_messages", "inbox_messages_end"), self._clock.offsets.get(team, 0)
        return await self._database.read_standby(
            lambda tx: _list_page(tx, queries, InboxRow, team, prefixes, search, params, clock_offset)
        )

    async def list_codes(self, team: int, search: InboxSearch) -> InboxPage[CodeRow]:
        params = {"text": search.text, "address": search.address, "now": self._clock.team_now(team)}
        prefixes, queries = [PREFIXES["verification"]], ("inbox_codes", "inbox_codes_end")
        clock_offset = self._clock.offsets.get(team, 0)
        return await self._database.read_standby(
            lambda tx: _list_page(tx, queries, CodeRow, team, prefixes, search, params, clock_offset)
        )

    async def get_code(self, team: int, id_: str) -> CodeRow | None:
        now = self._clock.team_now(team)
        rows = await self._database.read(lambda tx: tx.run("inbox_code", team=team, id=id_, now=now))
        return CodeRow(*rows[0]) if rows else None

    async def get_contents(
        self, rows: Sequence[InboxRow], carriers: Iterable[str], reserve_memory: ReserveMemory
    ) -> list[CapturedMessage]:
        """Return the messages of these rows with recipients and contents, in the order of `rows`."""
        await reserve_memory(sum(row.size for row in rows))
        messages, carrier_rows = [(row.key,) for row in rows], [(id_,) for id_ in carriers]

        async def read_contents(tx: Tx) -> list[CapturedMessage]:
            contents: dict[int, str] = {row[0]: row[1] for row in await tx.run("inbox_contents", messages=messages)}
            recipients: dict[int, list[str]] = defaultdict(list)
            for key, given_address in await tx.run("inbox_recipients_of", messages=messages, carriers=carrier_rows):
                recipients[key].append(given_address)
            return [
                CapturedMessage(row=row, recipients=recipients[row.key], content=contents.get(row.key)) for row in rows
            ]

        captured = await self._database.read(read_contents) if rows else []
        return [
            replace(item, content=item.content and await self._contents.load_body(item.content, reserve_memory))
            for item in captured
        ]

    async def get_sizes(self, rows: Sequence[InboxRow]) -> dict[str, int]:
        """Return message id → size in bytes, including attachments that are stored as files."""
        messages = [(row.key,) for row in rows if row.attachments]
        file_rows = await self._database.read(lambda tx: tx.run("inbox_files", messages=messages)) if messages else []
        file_bytes: dict[int, int] = defaultdict(int)
        for key, hash_ in file_rows:
            file_bytes[key] += await self._attachments.size(hash_)
        return {row.id: row.size + file_bytes[row.key] for row in rows}

    async def get_message(
        self, team: int, id_: str, carriers: Iterable[str], reserve_memory: ReserveMemory
    ) -> InboxItem | None:
        """Return the message, even if the inbox was cleared since. None if not found or deleted from the inbox."""
        carrier_rows = [(carrier,) for carrier in carriers]

        async def read_message(tx: Tx) -> tuple[int, InboxItem] | None:
            rows = await tx.run("inbox_message", team=team, id=id_, most=SMALL_BYTES)
            recipients = await tx.run("inbox_recipients", message=rows[0][0], carriers=carrier_rows) if rows else []
            item = InboxItem([InboxRecipient(*row) for row in recipients], *rows[0][1:]) if recipients else None
            return None if item is None or item.deleted else (rows[0][0], item)

        result = await self._database.read(read_message)
        if result is None:
            return None
        key, item = result
        return replace(item, content=await self._contents.read(key, item.content, item.size, reserve_memory))

    async def set_opened(self, team: int, id_: str, *, opened: bool) -> None:
        """Mark a message as read or unread for the whole team, without an audit entry."""
        await self._database.write(lambda tx: _set_flags(tx, team, id_, opened=opened))

    async def hide_message(self, team: int, id_: str, entry: AuditEntry) -> bool:
        """Hide a message from the inbox; return False if it does not exist or is already hidden."""

        async def hide(tx: Tx) -> bool:
            is_hidden = await _set_flags(tx, team, id_, opened=True, deleted=True)
            if is_hidden:
                await audit.write(tx, entry)
            return is_hidden

        return await write_serialized(self._database, hide, entry.team)

    async def hide_all(self, team: int, entry: AuditEntry) -> None:
        """Hide all messages and codes created until now."""

        async def hide_all_rows(tx: Tx) -> None:
            await tx.run("clear_inbox", team=team, at=entry.at)
            await audit.write(tx, entry)

        await write_serialized(self._database, hide_all_rows, entry.team)


async def _set_flags(tx: Tx, team: int, id_: str, *, opened: bool, deleted: bool = False) -> bool:
    return bool(await tx.run("mark_inbox", team=team, id=id_, opened=int(opened), deleted=int(deleted)))


async def _list_page(
    tx: Tx,
    queries: tuple[str, str],  # names of the queries for the rows and for the end of the scanned range
    row_type: type[RowT],
    team: int,
    prefixes: Sequence[str],
    search: InboxSearch,
    params: dict[str, Any],
    clock_offset: int,  # offset of the team's test clock in ms: ids can be this much older than `created_at`
) -> InboxPage[RowT]:
    cleared_rows = await tx.run("inbox_cleared_at", team=team)
    cleared_at: int | None = cleared_rows[0][0] if cleared_rows else None
    requested_since = None if search.since is None else max(0, search.since - clock_offset)
    lower_bounds: list[str] = [ulid(at, MAX_RANDOM_PART) for at in (cleared_at, requested_since) if at is not None]
    lowest, highest = max([_without_prefix(search.after), *lower_bounds]), _without_prefix(search.before) or "~"
    rows: list[RowT] = []
    scan_ends: list[str] = []  # last scanned id, without prefix, of each channel that has more records
    for prefix in prefixes:
        scan_range = {"team": team, "low": prefix + lowest, "high": prefix + highest, "scan": SCAN_MAX}
        batch = await tx.run(queries[0], limit=search.limit + 1, **scan_range, **params)
        rows += [row_type(*row) for row in batch]
        if len(batch) <= search.limit:
            ((last_id, count),) = await tx.run(queries[1], **scan_range)
            scan_ends += [_without_prefix(last_id)] if count == SCAN_MAX else []
    if clock_offset and search.since is not None:
        rows = [row for row in rows if row.created_at > search.since]
    rows.sort(key=lambda row: _without_prefix(row.id), reverse=True)
    if scan_ends:  # not every channel was scanned below the newest of these ids: older rows belong to a later page
        rows = [row for row in rows if _without_prefix(row.id) >= max(scan_ends)]
    if len(rows) > search.limit:
        return InboxPage(rows=rows[: search.limit], before=rows[search.limit - 1].id, cleared_at=cleared_at)
    return InboxPage(rows=rows, before=prefixes[0] + max(scan_ends) if scan_ends else None, cleared_at=cleared_at)


def _without_prefix(id_: str) -> str:
    return id_.partition("_")[2]
