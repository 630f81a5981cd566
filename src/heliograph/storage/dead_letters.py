"""The operator's view of the queues, and the retry and removal of dead letters.

A dead letter is a recipient that failed because three workers crashed while they handled only this recipient.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.delivery.lanes import LANE_BY_CHANNEL, queue_name
from heliograph.domain.delivery.outcome import local_failure
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.refusals import InsufficientCredit
from heliograph.domain.sending.key_limits import refund_spend
from heliograph.domain.sending.pricing import Account, hold
from heliograph.domain.sending.send_options import decode_record
from heliograph.domain.setup.records import Channel, Priority
from heliograph.domain.text import parse_int
from heliograph.storage import audit
from heliograph.storage.accept import lock_accounts, publish_low_credit, save_accounts
from heliograph.storage.audit import NEWEST
from heliograph.storage.engine.database import Database, Tx, schedule_wakeup, write_serialized
from heliograph.storage.engine.health_probe import Probe
from heliograph.storage.events import Publisher
from heliograph.storage.outcomes import LockedMessage, lock_messages
from heliograph.storage.queues import PAGE_COUNT_MAX, QueueShare, oldest_by_priority, read_lane_shares
from heliograph.storage.search.message_search import TimelineEvent
from heliograph.storage.setup import SetupStore

PAGE_SIZE = 50
BATCH = 100  # dead letters handled in one transaction
COUNT_MAX = 10_000  # dead letters are counted up to this number
RETRIED_DETAIL = msgspec.json.encode(local_failure("retried", "an operator queued it again")).decode()
DROPPED_DETAIL = msgspec.json.encode(
    local_failure("dropped", "an operator dropped it after it was quarantined")
).decode()


class WebhookBacklog(msgspec.Struct, frozen=True):
    webhook: str
    waiting: int
    failing_since: int | None
    since: int  # time of the oldest delivery's first attempt; its creation if there was no attempt


class Backlog(msgspec.Struct, frozen=True):
    """Backlog figures for the metrics: dead letters and waiting webhook deliveries."""

    dead_letters: int
    webhooks: list[WebhookBacklog]


class DeadLetterKey(NamedTuple):
    """The key of a message recipient, written as `message-position`."""

    message: int
    position: int

    def __str__(self) -> str:
        return f"{self.message}-{self.position}"

    @classmethod
    def parse(cls, text: str) -> "DeadLetterKey | None":
        left, _, right = text.partition("-")
        message, position = parse_int(left, 18), parse_int(right, 4)
        return None if message is None or position is None else cls(message, position)


FIRST_PAGE = DeadLetterKey(NEWEST, 0)  # cursor of the first page


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
    def key(self) -> DeadLetterKey:
        return DeadLetterKey(self.message, self.position)


class DeadLetterDetails(msgspec.Struct, frozen=True):
    """A dead letter with its timeline and message details."""

    letter: DeadLetter
    events: list[TimelineEvent]  # timeline of this recipient, oldest first
    price: int
    charge: str
    carrier: str | None
    created_at: int
    detail: str


class RetryResult(msgspec.Struct, frozen=True, kw_only=True):
    requeued: int = 0
    missing: int = 0  # dead letters that no longer exist, or whose content was deleted
    unpaid: tuple[InsufficientCredit, ...] = ()  # one refusal for each dead letter whose team has too little credit

    def plus(self, other: "RetryResult") -> "RetryResult":
        return RetryResult(
            requeued=self.requeued + other.requeued,
            missing=self.missing + other.missing,
            unpaid=self.unpaid + other.unpaid,
        )


class DeadLetters:
    def __init__(self, database: Database, setup: SetupStore) -> None:
        self._database = database
        self._setup = setup
        self.backlog = Probe(self._read_backlog)

    async def queues(self, now: int) -> list[QueueShare]:
        """Return the queues, longest waiting first; a count of PAGE_COUNT_MAX means at least that many."""
        rows = await self._database.read(lambda tx: read_lane_shares(tx, now, PAGE_COUNT_MAX))
        return sorted(rows, key=lambda queue: queue.oldest_due or now)

    async def oldest_by_priority(self, now: int) -> dict[Priority, int]:
        """Return priority → time since which its longest-waiting message waits, see `queues.oldest_by_priority`."""
        return await self._database.read(lambda tx: oldest_by_priority(tx, now, PAGE_COUNT_MAX))

    async def webhook_backlogs(self) -> list[WebhookBacklog]:
        """Return webhooks with waiting deliveries, largest backlog first; PAGE_COUNT_MAX means at least that many."""
        rows = await self._database.read(lambda tx: tx.run("waiting_deliveries", most=PAGE_COUNT_MAX))
        return sorted((WebhookBacklog(*row) for row in rows), key=lambda hook: -hook.waiting)

    async def list_page(
        self, before: DeadLetterKey = FIRST_PAGE, limit: int = PAGE_SIZE, until: int = NEWEST
    ) -> list[DeadLetter]:
        """Return up to `limit` + 1 dead letters that failed by `until`, newest message first.

        The extra dead letter shows that there are more.
        """
        rows = await self._database.read(
            lambda tx: tx.run("dead_letters", **before._asdict(), until=until, limit=limit + 1)
        )
        return [DeadLetter(*row) for row in rows]

    async def _read_backlog(self) -> Backlog:
        return Backlog(await self.count(), await self.webhook_backlogs())

    async def count(self) -> int:
        """Return the number of dead letters; COUNT_MAX means at least that many."""
        rows = await self._database.read(lambda tx: tx.run("count_dead_letters", most=COUNT_MAX))
        return int(rows[0][0])

    async def find(self, key: DeadLetterKey) -> DeadLetterDetails | None:
        return await self._database.read(lambda tx: _find(tx, key))

    async def retry(self, keys: Sequence[DeadLetterKey], entry: AuditEntry) -> RetryResult:
        """Queue dead letters again if the team's credit covers their price; write an audit entry per dead letter."""
        low_credit = {ref: team.record.credit_low for ref, team in self._setup.current.teams_by_ref.items()}
        publisher = self._setup.publisher
        return await write_serialized(
            self._database, lambda tx: _retry(tx, keys, entry, low_credit=low_credit, publisher=publisher), entry.team
        )

    async def drop(self, keys: Sequence[DeadLetterKey], entry: AuditEntry) -> int:
        """Mark dead letters as permanently failed and return their number; write an audit entry per dead letter."""
        return await write_serialized(self._database, lambda tx: _drop(tx, keys, entry), entry.team)


async def _find(tx: Tx, key: DeadLetterKey) -> DeadLetterDetails | None:
    rows = await tx.run("dead_letter", **key._asdict())
    if not rows:
        return None
    column_count = len(DeadLetter.__struct_fields__)
    letter = DeadLetter(*rows[0][:column_count])
    events = [TimelineEvent(*row) for row in await tx.run("message_events", message=letter.message)]
    return DeadLetterDetails(
        letter, [event for event in events if event.recipient == letter.address], *rows[0][column_count:]
    )


async def _retry(
    tx: Tx, keys: Sequence[DeadLetterKey], entry: AuditEntry, *, low_credit: Mapping[int, int], publisher: Publisher
) -> RetryResult:
    """Queue dead letters again with status `sending`. `low_credit`: credit threshold of each team for `credit.low`."""
    messages = await lock_messages(tx, [(key,) for key in {letter.message for letter in keys}])
    existing_letters = [DeadLetterKey(*row) for row in await tx.run("find_dead_letters", letters=keys)]
    accounts = await lock_accounts(tx, {messages[letter.message].team for letter in existing_letters})
    credit_before = {team: account.available for team, account in accounts.items()}
    requeued, holds, unpaid = [], [], []
    for letter in existing_letters:
        message = messages[letter.message]
        try:
            if _renew_hold(message, accounts[message.team]):
                holds.append((message.team, "hold", message.price, message.id, entry.at, message.hold_number))
            requeued.append(letter)
        except InsufficientCredit as refusal:
            unpaid.append(refusal)
    if holds:
        await save_accounts(tx, accounts.values())
        await tx.run("insert_ledger", entries=holds)
        thresholds = {team: (low_credit.get(team, 0), entry.at) for team in accounts}
        await publish_low_credit(tx, publisher, credit_before, accounts, thresholds)
    if requeued:
        await _requeue(tx, [(messages[letter.message], letter.position) for letter in requeued], entry.at)
        await _change_status(tx, requeued, "sending", RETRIED_DETAIL, messages, entry)
    return RetryResult(requeued=len(requeued), missing=len(keys) - len(existing_letters), unpaid=tuple(unpaid))


async def _drop(tx: Tx, keys: Sequence[DeadLetterKey], entry: AuditEntry) -> int:
    messages = await lock_messages(tx, [(key,) for key in {letter.message for letter in keys}])
    return await _change_status(tx, keys, "failed", DROPPED_DETAIL, messages, entry)


def _renew_hold(message: LockedMessage, account: Account) -> bool:
    """Hold the message's price again if its hold was released; return whether a new hold was made.

    A hold that is open or captured covers all recipients of the message.
    """
    if message.charge != "released":
        return False
    hold(account, message.price)
    if account.key_uses:
        refund_spend(account, message.key_id, message.created_at, -message.price)
    message.charge, message.hold_number = "held", message.hold_number + 1
    return True


async def _requeue(tx: Tx, recipients: Sequence[tuple[LockedMessage, int]], now: int) -> None:
    message_rows = {message.key: (message.key, message.charge, message.hold_number) for message, _ in recipients}
    await tx.run("reopen_messages", messages=list(message_rows.values()))
    record_rows = await tx.run("records_of", messages=[(key,) for key in message_rows])
    options_by_message = {(team, id_): decode_record(record) for team, id_, record in record_rows}
    outbox = []
    for message, position in recipients:
        options = options_by_message[message.team, message.id]
        expires_at = parse_timestamp(options.expires_at) if options.expires_at else None
        queue = queue_name(LANE_BY_CHANNEL[message.channel], options.priority)
        # due_at > first_at, as for a scheduled message, so that suppression and suspension are checked again.
        outbox.append((queue, message.team, message.key, position, None, now, now - 1, expires_at))
    await tx.run("insert_outbox", outbox=outbox)
    for message, _ in recipients:
        schedule_wakeup(tx, LANE_BY_CHANNEL[message.channel])


async def _change_status(
    tx: Tx,
    keys: Sequence[DeadLetterKey],
    status: str,
    detail: str,
    messages: Mapping[int, LockedMessage],
    entry: AuditEntry,
) -> int:
    rows = await tx.run("close_dead_letters", letters=keys, status=status, detail=detail, now=entry.at)
    await audit.write(tx, *(msgspec.structs.replace(entry, subject=messages[row[0]].id) for row in rows))
    return len(rows)
