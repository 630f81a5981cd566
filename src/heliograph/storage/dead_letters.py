"""What an operator sees of the queues, and what becomes of dead letters.

A dead letter is a recipient that failed because three workers died with nothing else in hand.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from heliograph.rules.audit import AuditEntry
from heliograph.rules.lanes import LANE
from heliograph.rules.pricing import Account, hold
from heliograph.rules.refusals import InsufficientCredit
from heliograph.storage.accepts import lock_accounts, save_accounts, tell_low_credit
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import Message, lock_messages
from heliograph.storage.search import EventLine
from heliograph.storage.setup import SetupStore

PAGE = 50
PORTION = 100  # dead letters in one transaction
COUNT_MOST = 10_000  # how far they are counted
RETRIED = '{"reason":"retried","text":"an operator put it into the queue again"}'
DROPPED = '{"reason":"dropped","text":"an operator gave it up after it was quarantined"}'


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One team's share of a lane."""

    lane: str
    team: int
    due: int = 0
    later: int = 0  # to be tried again
    working: int = 0
    oldest: int | None = None  # when the first was due


class WaitingHook(msgspec.Struct, frozen=True):
    webhook: str
    waiting: int
    failing_since: int | None


class DeadLetter(msgspec.Struct, frozen=True):
    message: int
    position: int
    id: str
    team: int
    channel: Any
    has_body: int
    address: str
    at: int


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a dead letter."""

    letter: DeadLetter
    price: int
    charge: str
    carrier: str | None
    created_at: int
    detail: str
    events: list[EventLine]  # of this recipient, in order


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    done: int = 0
    gone: int = 0  # no dead letters any more, or without content
    unpaid: tuple[InsufficientCredit, ...] = ()  # they stay dead letters

    def plus(self, more: "Retried") -> "Retried":
        return Retried(done=self.done + more.done, gone=self.gone + more.gone, unpaid=self.unpaid + more.unpaid)


Place = tuple[int, int]  # message, position


async def queues(tx: Tx, now: int) -> list[Queue]:
    """The longest waiting first."""
    found = {
        (lane, team): Queue(lane=lane, team=team, due=due, later=count - due, oldest=oldest)
        for lane, team, count, due, oldest in await tx.run("waiting_by_team", now=now)
    }
    for lane, team, working in await tx.run("working_by_team"):
        before = found.get((lane, team), Queue(lane=lane, team=team))
        found[lane, team] = msgspec.structs.replace(before, working=working)
    return list(found.values())


async def waiting_hooks(tx: Tx) -> list[WaitingHook]:
    return [WaitingHook(*row) for row in await tx.run("waiting_deliveries")]


async def dead_letters(tx: Tx, before: Place = (NEWEST, 0), limit: int = PAGE, until: int = NEWEST) -> list[DeadLetter]:
    """Newest message first, of those that died `until` then; one more than the limit, when there are more."""
    rows = await tx.run("dead_letters", message=before[0], position=before[1], until=until, limit=limit + 1)
    return [DeadLetter(*row) for row in rows]


async def count_dead(tx: Tx) -> int:
    """COUNT_MOST: or more."""
    return int((await tx.run("count_dead", most=COUNT_MOST))[0][0])


async def inspect(tx: Tx, place: Place) -> Inspected | None:
    rows = await tx.run("dead_letter", message=place[0], position=place[1])
    if not rows:
        return None
    *letter, price, charge, carrier, created_at, detail = rows[0]
    found = DeadLetter(*letter)
    events = [EventLine(*row) for row in await tx.run("message_events", message=found.message)]
    return Inspected(
        letter=found,
        price=price,
        charge=charge,
        carrier=carrier,
        created_at=created_at,
        detail=detail,
        events=[event for event in events if event.recipient == found.address],
    )


async def retry(
    tx: Tx, places: Sequence[Place], audit: AuditEntry, *, low: Mapping[int, int], publisher: Publisher
) -> Retried:
    """Into the queue again, `sending`; the audit entry is for each. `low`: the credit below which a team is told."""
    messages = await lock_messages(tx, _keys(places))
    there = [(row[0], row[1]) for row in await tx.run("find_dead", places=places)]
    accounts = await lock_accounts(tx, {messages[key].team for key, _ in there})
    credit = {team: account.available for team, account in accounts.items()}
    going, holds, unpaid = [], [], []
    for place in there:
        message = messages[place[0]]
        try:
            if _hold_again(message, accounts[message.team]):
                holds.append((message.team, "hold", message.price, message.id, audit.at, message.turn))
            going.append(place)
        except InsufficientCredit as refusal:
            unpaid.append(refusal)
    if holds:
        await save_accounts(tx, accounts.values())
        await tx.run("insert_ledger", entries=holds)
        await tell_low_credit(tx, publisher, credit, accounts, {team: low.get(team, 0) for team in accounts}, audit.at)
    if going:
        await _queue(tx, [(messages[key], position) for key, position in going], audit.at)
        await _leave(tx, going, "sending", RETRIED, messages, audit)
    return Retried(done=len(going), gone=len(places) - len(there), unpaid=tuple(unpaid))


async def drop(tx: Tx, places: Sequence[Place], audit: AuditEntry) -> int:
    """Failed for good; answers how many were dead letters. The audit entry is for each."""
    messages = await lock_messages(tx, _keys(places))
    return await _leave(tx, places, "failed", DROPPED, messages, audit)


def _keys(places: Sequence[Place]) -> list[tuple[int]]:
    return [(key,) for key in {message for message, _ in places}]


def _hold_again(message: Message, account: Account) -> bool:
    """Hold the price anew when it was released. A hold that is still open, or was captured, is for all recipients."""
    if message.charge != "released":
        return False
    hold(account, message.price)
    message.charge, message.turn = "held", message.turn + 1
    return True


async def _queue(tx: Tx, work: Sequence[tuple[Message, int]], now: int) -> None:
    opened = {message.key: (message.key, message.charge, message.turn) for message, _ in work}
    await tx.run("reopen_messages", messages=list(opened.values()))
    outbox = [(LANE[m.channel], m.team, m.key, position, None, now, now) for m, position in work]
    await tx.run("insert_outbox", outbox=outbox)


async def _leave(
    tx: Tx, places: Sequence[Place], status: str, detail: str, messages: Mapping[int, Message], audit: AuditEntry
) -> int:
    rows = await tx.run("leave_dead_letters", places=places, status=status, detail=detail, now=audit.at)
    if rows:
        left = [msgspec.structs.replace(audit, subject=messages[row[0]].id) for row in rows]
        await tx.run("insert_audit", entries=left)
    return len(rows)


class DeadLetters:
    def __init__(self, database: Database, setup: SetupStore) -> None:
        self._database = database
        self._setup = setup

    async def retry(self, places: Sequence[Place], audit: AuditEntry) -> Retried:
        """Into the queue again, with their prices held anew where credit covers them."""
        low = {ref: team.record.credit_low for ref, team in self._setup.current.teams_by_ref.items()}
        publisher = self._setup.publisher
        return await self._database.write(lambda tx: retry(tx, places, audit, low=low, publisher=publisher))
