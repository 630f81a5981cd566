"""Messages: acceptance in group commits, search, and reads with the timeline."""

from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.operations.erasure import NameOf
from heliograph.domain.sending.acceptance import Acceptance, Decision, Sent
from heliograph.domain.sending.idempotency import Remembered
from heliograph.runtime import tracing
from heliograph.runtime.clock import Clock
from heliograph.storage import accept as accepts
from heliograph.storage import audit, purge
from heliograph.storage.contents import SMALL, Room, read_content
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.events import Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.search import message_search
from heliograph.storage.search.message_search import (
    MessageDetails,
    MessageLine,
    MessageRow,
    RecipientLine,
    Search,
    SearchPage,
    TimelineEvent,
)
from heliograph.storage.search.query import Counted

COUNT_MOST = 10_000


def _traced(item: accepts.Item, trace: str) -> accepts.Item:
    if isinstance(item, Acceptance):
        return replace(item, trace=trace)
    return replace(item, sends=[replace(s, trace=trace) if isinstance(s, Acceptance) else s for s in item.sends])


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    record: str
    recipients: list[RecipientLine]
    events: list[TimelineEvent]


class Messages:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher, name_of: NameOf, leases: Leases) -> None:
        self._database = database
        self._clock = clock
        self._name_of = name_of
        self._leases = leases
        self._accepts: GroupCommit[accepts.Item, Sent[Any]] = GroupCommit(
            database, lambda tx, items: accepts.accept(tx, items, publisher, self._name_of, leases), accepts.weight
        )

    async def accept(self, item: accepts.Item) -> Sent[Any]:
        if trace := tracing.kept():
            item = _traced(item, trace)
        return await self._accepts.submit(item)

    async def rehearse(self, item: Acceptance) -> Decision:
        return await self._database.read(lambda tx: accepts.rehearse(tx, item, self._name_of))

    async def remembered(self, key_id: str, hash_: str) -> Remembered | None:
        """Return the stored response or lease of this idempotency key; None if not found."""
        found = await self._database.read(lambda tx: accepts.find_remembered(tx, [(key_id, hash_)], self._leases))
        return found.get((key_id, hash_))

    def get(self, team: int, id_: str) -> Coroutine[Any, Any, StoredMessage | None]:
        async def story(tx: Tx) -> StoredMessage | None:
            rows = await tx.run("find_whole_message", team=team, id=id_)
            if not rows:
                return None
            key, status, record, *_ = rows[0]
            return StoredMessage(
                status=status,
                record=record,
                recipients=[RecipientLine(*recipient) for _, _, _, *recipient in rows],
                events=[TimelineEvent(*row) for row in await tx.run("message_events", message=key)],
            )

        return self._database.read(story)

    async def put_away(self, team: int, id_: str, entry: AuditEntry, *, whole: bool) -> bool | None:
        """Delete a message's content, or the whole message, before its retention ends.

        False if the message is not final, None if not found.
        """

        async def story(tx: Tx) -> bool | None:
            rows = await tx.run("find_message", team=team, id=id_)
            if not rows:
                return None
            done = await purge.put_away(tx, rows[0][0], whole=whole)
            await audit.write(tx, entry if done else None)
            return done

        return await write_serialized(self._database, story, entry.team)

    async def search(self, team: int, wanted: Search) -> SearchPage[MessageLine]:
        seen = message_search.seen_by(self._clock, team, wanted)
        return await self._database.read(lambda tx: message_search.messages(tx, team, seen))

    async def lines(self, team: int, ids: Iterable[str]) -> dict[str, MessageLine]:
        """Return the team's existing messages among `ids`, by id."""
        asked = [(id_,) for id_ in ids]
        rows = await self._database.read(lambda tx: tx.run("message_lines", team=team, ids=asked)) if asked else []
        return {row[1]: MessageLine(*row) for row in rows}

    async def count(self, team: int, wanted: Search, most: int = COUNT_MOST) -> Counted:
        """Return the number of matching messages, up to `most`.

        A search by substring, key or sender domain counts index candidates, which may include false matches.
        """
        seen = message_search.seen_by(self._clock, team, wanted)
        return await self._database.read(lambda tx: message_search.count(tx, team, seen, most))

    async def states(self, team: int, wanted: Search, most: int = COUNT_MOST) -> dict[str, int]:
        """Return the number of messages of a tag or template in each state, up to `most` per channel."""
        seen = message_search.seen_by(self._clock, team, wanted)
        return await self._database.read(lambda tx: message_search.states(tx, team, seen, most))

    async def outcomes(self, messages: Iterable[int]) -> dict[int, dict[str, int]]:
        """Return, for each message, the number of recipients in each state."""
        return await self._database.read(lambda tx: message_search.outcomes(tx, messages))

    async def facts(self, team: int, id_: str, room: Room) -> MessageRow | None:
        found = await self._database.read(lambda tx: message_search.facts(tx, team, id_, SMALL))
        return await self._filled(found, room) if found else None

    async def whole(self, team: int, id_: str, webhooks: Iterable[str], room: Room) -> MessageDetails | None:
        """Return the message with its timeline and its deliveries to these webhooks; None if not found."""
        found = await self._database.read(lambda tx: message_search.whole(tx, team, id_, webhooks, SMALL))
        return replace(found, facts=await self._filled(found.facts, room)) if found else None

    async def _filled(self, found: MessageRow, room: Room) -> MessageRow:
        content = await read_content(self._database, found.key, found.content, found.size, room)
        return replace(found, content=content)
