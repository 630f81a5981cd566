"""Messages: acceptance in group commits, search, and reads with the timeline."""

from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.operations.erasure import EntryName
from heliograph.domain.sending.acceptance import Acceptance, Decision, SendResult
from heliograph.domain.sending.idempotency import StoredResponse
from heliograph.runtime import tracing
from heliograph.runtime.clock import Clock
from heliograph.storage import accept as accepts
from heliograph.storage import audit, purge
from heliograph.storage.body_files import Contents
from heliograph.storage.contents import SMALL_BYTES, ReserveMemory
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.events import Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.search import message_search
from heliograph.storage.search.message_search import (
    MessageDetails,
    MessageListRow,
    MessageRow,
    RecipientDetails,
    Search,
    SearchPage,
    TimelineEvent,
)
from heliograph.storage.search.query import CountResult

COUNT_MAX = 10_000


def _with_trace(item: accepts.Item, trace: str) -> accepts.Item:
    if isinstance(item, Acceptance):
        return replace(item, trace=trace)
    return replace(
        item, sends=[replace(send, trace=trace) if isinstance(send, Acceptance) else send for send in item.sends]
    )


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    record: str
    recipients: list[RecipientDetails]
    events: list[TimelineEvent]


class Messages:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        publisher: Publisher,
        erased_name_of: EntryName,
        leases: Leases,
        contents: Contents,
    ) -> None:
        self._database = database
        self._contents = contents
        self._clock = clock
        self._erased_name_of = erased_name_of
        self._leases = leases
        self._accept_commits: GroupCommit[accepts.Item, SendResult[Any]] = GroupCommit(
            database,
            lambda tx, items: accepts.accept(tx, items, publisher, self._erased_name_of, leases),
            accepts.weight,
        )

    async def accept(self, item: accepts.Item) -> SendResult[Any]:
        if trace := tracing.current_traceparent():
            item = _with_trace(item, trace)
        if self._contents.stores_files:
            item = await self._contents.store_bodies(item)
        return await self._accept_commits.submit(item)

    async def dry_run(self, item: Acceptance) -> Decision:
        return await self._database.read(lambda tx: accepts.dry_run(tx, item, self._erased_name_of))

    async def find_stored_response(self, key_id: str, hash_: str) -> StoredResponse | None:
        """Return the stored response of an idempotency key, or the lease of a running request; None if not found."""
        responses = await self._database.read(
            lambda tx: accepts.find_stored_responses(tx, [(key_id, hash_)], self._leases)
        )
        return responses.get((key_id, hash_))

    def get(self, team: int, id_: str) -> Coroutine[Any, Any, StoredMessage | None]:
        async def read_message(tx: Tx) -> StoredMessage | None:
            rows = await tx.run("find_whole_message", team=team, id=id_)
            if not rows:
                return None
            key, status, record, *_ = rows[0]
            return StoredMessage(
                status=status,
                record=record,
                recipients=[RecipientDetails(*recipient) for _, _, _, *recipient in rows],
                events=[TimelineEvent(*row) for row in await tx.run("message_events", message=key)],
            )

        return self._database.read(read_message)

    async def purge_early(self, team: int, id_: str, entry: AuditEntry, *, whole_message: bool) -> bool | None:
        """Delete a message's content, or the whole message, before its retention ends.

        Returns False if the message is not final, None if not found.
        """

        async def purge_message(tx: Tx) -> bool | None:
            rows = await tx.run("find_message", team=team, id=id_)
            if not rows:
                return None
            is_purged = await purge.purge_early(tx, rows[0][0], whole_message=whole_message)
            await audit.write(tx, entry if is_purged else None)
            return is_purged

        return await write_serialized(self._database, purge_message, entry.team)

    async def search(self, team: int, search: Search) -> SearchPage[MessageListRow]:
        search = message_search.with_team_clock(self._clock, team, search)
        return await self._database.read_standby(lambda tx: message_search.search_messages(tx, team, search))

    async def find_rows(self, team: int, ids: Iterable[str]) -> dict[str, MessageListRow]:
        """Return the team's existing messages among these ids, by id."""
        id_rows = [(id_,) for id_ in ids]
        if not id_rows:
            return {}
        rows = await self._database.read(lambda tx: tx.run("list_messages_by_id", team=team, ids=id_rows))
        return {row[1]: MessageListRow(*row) for row in rows}

    async def count(self, team: int, search: Search, limit: int = COUNT_MAX) -> CountResult:
        """Return the number of messages that match `search`, up to `limit`.

        A search by substring, key or sender domain counts index candidates, which may include false matches.
        """
        search = message_search.with_team_clock(self._clock, team, search)
        return await self._database.read_standby(lambda tx: message_search.count_messages(tx, team, search, limit))

    async def count_by_state(self, team: int, search: Search, limit: int = COUNT_MAX) -> dict[str, int]:
        """Return state → number of messages with a tag or template.

        Counts the newest `limit` messages of each channel with the tag, or up to `limit` per state with the template.
        """
        search = message_search.with_team_clock(self._clock, team, search)
        return await self._database.read_standby(lambda tx: message_search.count_by_state(tx, team, search, limit))

    async def count_recipients_by_state(self, messages: Iterable[int]) -> dict[int, dict[str, int]]:
        """Return message key → recipient state → number of recipients."""
        return await self._database.read_standby(lambda tx: message_search.count_recipients_by_state(tx, messages))

    async def get_row(self, team: int, id_: str, reserve_memory: ReserveMemory) -> MessageRow | None:
        row = await self._database.read(lambda tx: message_search.read_row(tx, team, id_, SMALL_BYTES))
        return await self._with_content(row, reserve_memory) if row else None

    async def get_details(
        self, team: int, id_: str, webhooks: Iterable[str], reserve_memory: ReserveMemory
    ) -> MessageDetails | None:
        """Return the message with its timeline and its deliveries to these webhooks; None if not found."""
        details = await self._database.read(
            lambda tx: message_search.read_details(tx, team, id_, webhooks, SMALL_BYTES)
        )
        return replace(details, row=await self._with_content(details.row, reserve_memory)) if details else None

    async def _with_content(self, row: MessageRow, reserve_memory: ReserveMemory) -> MessageRow:
        content = await self._contents.read(row.key, row.content, row.size, reserve_memory)
        return replace(row, content=content, size=max(row.size, len(content or "")))
