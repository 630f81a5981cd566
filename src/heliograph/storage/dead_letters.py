"""The operator's view of the queues, and the retry and removal of dead letters.

A dead letter is a recipient that failed because three workers crashed while they handled only this recipient.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.delivery.lanes import LANE, queue_of
from heliograph.domain.delivery.outcome import own
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.refusals import InsufficientCredit
from heliograph.domain.sending.pricing import Account, hold
from heliograph.domain.sending.send_options import read_record
from heliograph.domain.setup.records import Channel, Priority
from heliograph.domain.text import whole_number
from heliograph.storage import audit
from heliograph.storage.accept import lock_accounts, save_accounts, tell_low_credit
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx, note, write_serialized
from heliograph.storage.engine.health_probe import Probe
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import Message, lock_messages
from heliograph.storage.queues import PAGE_MOST, Queue, oldest_by_priority, queues
from heliograph.storage.search.message_search import TimelineEvent
from heliograph.storage.setup import SetupStore

PAGE = 50
PORTION = 100  # dead letters handled in one transaction
COUNT_MOST = 10_000  # dead letters are counted up to this number
RETRIED = msgspec.json.encode(own("retried", "an operator put it into the queue again")).decode()
DROPPED = msgspec.json.encode(own("dropped", "an operator gave it up after it was quarantined")).decode()


class WaitingHook(msgspec.Struct, frozen=True):
    webhook: str
    waiting: int
    failing_since: int | None
    since: int  # first attempt of the oldest delivery, or its creation if not attempted


class Behind(msgspec.Struct, frozen=True):
    """Backlog figures for the metrics: dead letters and waiting webhook deliveries."""

    dead: int
    hooks: list[WaitingHook]


class LetterKey(NamedTuple):
    """The key of a message recipient, written as `message-position`."""

    message: int
    position: int

    def __str__(self) -> str:
        return f"{self.message}-{self.position}"

    @classmethod
    def parse(cls, text: str) -> "LetterKey | None":
        left, _, right = text.partition("-")
        message, position = whole_number(left, 18), whole_number(right, 4)
        return None if message is None or position is None else cls(message, position)


FIRST = LetterKey(NEWEST, 0)  # cursor of the first page


class DeadLetter(msgspec.Struct, frozen=True):
    message: int
    position: int
    id: str
    team: int
    channel: Channel
    has_body: int
    address: str
    at: int

    @property
    def key(self) -> LetterKey:
        return LetterKey(self.message, self.position)


class Inspected(msgspec.Struct, frozen=True):
    """A dead letter with its timeline and message details."""

    letter: DeadLetter
    events: list[TimelineEvent]  # timeline of this recipient, oldest first
    price: int
    charge: str
    carrier: str | None
    created_at: int
    detail: str


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    done: int = 0
    gone: int = 0  # no longer dead letters, or their content was deleted
    unpaid: tuple[InsufficientCredit, ...] = ()  # refusals for lack of credit; these stay dead letters

    def plus(self, more: "Retried") -> "Retried":
        return Retried(done=self.done + more.done, gone=self.gone + more.gone, unpaid=self.unpaid + more.unpaid)


class DeadLetters:
    def __init__(self, database: Database, setup: SetupStore) -> None:
        self._database = database
        self._setup = setup
        self.behind = Probe(self._behind)

    async def queues(self, now: int) -> list[Queue]:
        """Return the queues, longest waiting first; a count of PAGE_MOST means PAGE_MOST or more."""
        found = await self._database.read(lambda tx: queues(tx, now, PAGE_MOST))
        return sorted(found, key=lambda queue: queue.oldest or now)

    async def oldest(self, now: int) -> dict[Priority, int]:
        """Return, for each priority, the time since which its oldest message has waited."""
        return await self._database.read(lambda tx: oldest_by_priority(tx, now, PAGE_MOST))

    async def waiting_hooks(self) -> list[WaitingHook]:
        """Return webhooks with waiting deliveries, largest backlog first; PAGE_MOST means PAGE_MOST or more."""
        rows = await self._database.read(lambda tx: tx.run("waiting_deliveries", most=PAGE_MOST))
        return sorted((WaitingHook(*row) for row in rows), key=lambda hook: -hook.waiting)

    async def page(self, before: LetterKey = FIRST, limit: int = PAGE, until: int = NEWEST) -> list[DeadLetter]:
        """Return up to `limit` + 1 dead letters that failed by `until`, newest message first.

        The extra dead letter shows that there are more.
        """
        rows = await self._database.read(
            lambda tx: tx.run("dead_letters", **before._asdict(), until=until, limit=limit + 1)
        )
        return [DeadLetter(*row) for row in rows]

    async def _behind(self) -> Behind:
        return Behind(await self.count(), await self.waiting_hooks())

    async def count(self) -> int:
        """Return the number of dead letters; COUNT_MOST means COUNT_MOST or more."""
        rows = await self._database.read(lambda tx: tx.run("count_dead", most=COUNT_MOST))
        return int(rows[0][0])

    async def find(self, key: LetterKey) -> Inspected | None:
        return await self._database.read(lambda tx: _find(tx, key))

    async def retry(self, keys: Sequence[LetterKey], entry: AuditEntry) -> Retried:
        """Queue dead letters again if the credit covers their price; write one audit entry for each."""
        low = {ref: team.record.credit_low for ref, team in self._setup.current.teams_by_ref.items()}
        publisher = self._setup.publisher
        return await write_serialized(
            self._database, lambda tx: _retry(tx, keys, entry, low=low, publisher=publisher), entry.team
        )

    async def drop(self, keys: Sequence[LetterKey], entry: AuditEntry) -> int:
        """Mark dead letters as permanently failed and return their number; write one audit entry for each."""
        return await write_serialized(self._database, lambda tx: _drop(tx, keys, entry), entry.team)


async def _find(tx: Tx, key: LetterKey) -> Inspected | None:
    rows = await tx.run("dead_letter", **key._asdict())
    if not rows:
        return None
    size = len(DeadLetter.__struct_fields__)
    found = DeadLetter(*rows[0][:size])
    events = [TimelineEvent(*row) for row in await tx.run("message_events", message=found.message)]
    return Inspected(found, [event for event in events if event.recipient == found.address], *rows[0][size:])


async def _retry(
    tx: Tx, keys: Sequence[LetterKey], entry: AuditEntry, *, low: Mapping[int, int], publisher: Publisher
) -> Retried:
    """Queue dead letters again with status `sending`. `low`: credit threshold of each team for `credit.low`."""
    messages = await lock_messages(tx, [(key,) for key in {letter.message for letter in keys}])
    there = [LetterKey(*row) for row in await tx.run("find_dead", letters=keys)]
    accounts = await lock_accounts(tx, {messages[letter.message].team for letter in there})
    credit = {team: account.available for team, account in accounts.items()}
    going, holds, unpaid = [], [], []
    for letter in there:
        message = messages[letter.message]
        try:
            if _hold_again(message, accounts[message.team]):
                holds.append((message.team, "hold", message.price, message.id, entry.at, message.turn))
            going.append(letter)
        except InsufficientCredit as refusal:
            unpaid.append(refusal)
    if holds:
        await save_accounts(tx, accounts.values())
        await tx.run("insert_ledger", entries=holds)
        marks = {team: (low.get(team, 0), entry.at) for team in accounts}
        await tell_low_credit(tx, publisher, credit, accounts, marks)
    if going:
        await _queue(tx, [(messages[letter.message], letter.position) for letter in going], entry.at)
        await _leave(tx, going, "sending", RETRIED, messages, entry)
    return Retried(done=len(going), gone=len(keys) - len(there), unpaid=tuple(unpaid))


async def _drop(tx: Tx, keys: Sequence[LetterKey], entry: AuditEntry) -> int:
    messages = await lock_messages(tx, [(key,) for key in {letter.message for letter in keys}])
    return await _leave(tx, keys, "failed", DROPPED, messages, entry)


def _hold_again(message: Message, account: Account) -> bool:
    """Hold the price again if it was released; return whether it was.

    An open or captured hold covers all recipients of the message, so no new hold is needed.
    """
    if message.charge != "released":
        return False
    hold(account, message.price)
    message.charge, message.turn = "held", message.turn + 1
    return True


async def _queue(tx: Tx, work: Sequence[tuple[Message, int]], now: int) -> None:
    opened = {message.key: (message.key, message.charge, message.turn) for message, _ in work}
    await tx.run("reopen_messages", messages=list(opened.values()))
    found = await tx.run("records_of", messages=[(key,) for key in opened])
    added = {(team, id_): read_record(record) for team, id_, record in found}
    outbox = []
    for m, position in work:
        own = added[m.team, m.id]
        expires_at = parse_timestamp(own.expires_at) if own.expires_at else None
        queue = queue_of(LANE[m.channel], own.priority)
        # due_at > first_at, as for a scheduled message, so that suppression and suspension are checked again.
        outbox.append((queue, m.team, m.key, position, None, now, now - 1, expires_at))
    await tx.run("insert_outbox", outbox=outbox)
    for message, _ in work:
        note(tx, LANE[message.channel])


async def _leave(
    tx: Tx, keys: Sequence[LetterKey], status: str, detail: str, messages: Mapping[int, Message], entry: AuditEntry
) -> int:
    rows = await tx.run("leave_dead_letters", letters=keys, status=status, detail=detail, now=entry.at)
    await audit.write(tx, *(msgspec.structs.replace(entry, subject=messages[row[0]].id) for row in rows))
    return len(rows)
