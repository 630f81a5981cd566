"""The accept transaction: reads the state, decides each message and writes the accepted messages."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.delivery.lanes import QUEUE_OF
from heliograph.domain.events import SCHEDULED, scheduled_data
from heliograph.domain.limits import DAY_MS, IDEMPOTENCY_WINDOW_MS
from heliograph.domain.operations.erasure import NameOf
from heliograph.domain.operations.notices import low_credit
from heliograph.domain.phones.opt_out import OptOutReason
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending import idempotency
from heliograph.domain.sending.acceptance import (
    CAUGHT,
    Acceptance,
    BatchAcceptance,
    Decision,
    Found,
    IdempotencyKey,
    Sent,
)
from heliograph.domain.sending.idempotency import Remembered
from heliograph.domain.sending.pricing import Account, format_money, take_octets
from heliograph.runtime import metrics
from heliograph.storage import audit, notice_queue
from heliograph.storage.engine.database import Conflict, Tx, note
from heliograph.storage.events import Event, Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.tags import tag_rows

ACCEPTED = 202
# Write queries of a group, always in this order: PostgreSQL plans each order as a separate statement, and a varying
# order produced hundreds of statements.
WRITES = (
    *("insert_messages", "insert_contents", "insert_shared_texts", "insert_shared_contents", "insert_recipients"),
    *("insert_outbox", "update_accounts", "insert_ledger", "insert_blobs", "insert_marketing", "insert_tags"),
    "insert_callbacks",
)

Item = Acceptance | BatchAcceptance
Phone = tuple[int, str, str]  # team, channel, number


def weight(item: Item) -> int:
    """Return the maximum number of messages that the item can produce."""
    return len(item.sends) if isinstance(item, BatchAcceptance) else 1


async def accept(
    tx: Tx, items: Sequence[Item], publisher: Publisher, name_of: NameOf, leases: Leases
) -> list[Sent[Any] | Exception]:
    desk, keys = await _open_desk(tx, items, name_of, leases)
    credit = {team: account.available for team, account in desk.accounts.items()}
    answers: list[Sent[Any] | Exception] = []
    for item in items:
        try:
            answers.append(desk.take(item))
        except Refusal as refusal:
            answers.append(refusal)
    if desk.memories:
        await remember(tx, desk.memories, desk.remembered, leases)
    if desk.batches:
        await tx.run("insert_batches", batches=desk.batches)
    if accepted := desk.accepted:
        later = await write_accepted(tx, accepted, desk.accounts, keys)
        low = {i.team: (i.credit_low, i.created_at) for i, _ in accepted}
        await tell_low_credit(tx, publisher, credit, desk.accounts, low)
        if later:
            await _tell_scheduled(tx, publisher, later)
        await audit.write(tx, *(item.audit for item, _ in accepted))
        tx.afterwards.append(partial(_count, accepted))
    return answers


async def _open_desk(tx: Tx, items: Sequence[Item], name_of: NameOf, leases: Leases) -> tuple["_Desk", list[Any]]:
    """Read the state that the decisions need and reserve message keys, in as few round trips as possible."""
    sends: list[Acceptance] = []
    for item in items:
        if isinstance(item, BatchAcceptance):
            sends += [send for send in item.sends if isinstance(send, Acceptance)]
        else:
            sends.append(item)
    watched = {(item.team, address): address for item in sends for address in item.watch}
    locked, keys, known, listed = await tx.ask(
        lock_accounts={"teams": [(team,) for team in {item.team for item in items}]},
        next_message_keys={"count": len(sends)},
        find_idempotency={"keys": [(item.key_id, item.retry_key.hash) for item in items if item.retry_key]},
        find_suppressed={"addresses": list(watched)},
    )
    accounts = {row[0]: to_account(row) for row in locked}
    desk = _Desk(
        accounts=accounts,
        remembered=await to_remembered(tx, known, leases),
        suppressed=await _suppressed(tx, watched, listed, accounts, name_of),
        marketing=await _marketing(tx, sends),
        opted_out=await _opted_out(tx, sends, accounts, name_of),
    )
    return desk, keys


def _count(accepted: list[tuple[Acceptance, Decision]]) -> None:
    for (channel, direct, sandbox), count in Counter(
        (item.channel, item.template_id is None, item.sandbox) for item, _ in accepted
    ).items():
        metrics.accepted[channel, "direct" if direct else "template", str(sandbox).lower()].inc(count)


class _Desk(msgspec.Struct, kw_only=True):
    """Decides items in order; each decision sees the credit and quota that earlier items of the group used."""

    accounts: dict[int, Account]
    remembered: dict[tuple[str, str], Remembered]
    suppressed: dict[int, set[str]]
    marketing: dict[tuple[int, str], list[int]]
    opted_out: dict[Phone, OptOutReason]
    # Rows to be written for the accepted items:
    accepted: list[tuple[Acceptance, Decision]] = []
    memories: list[tuple[Any, ...]] = []
    batches: list[tuple[Any, ...]] = []

    def take(self, item: Item) -> Sent[Any]:
        """Decide one item or replay its idempotent response. A refusal has no side effects."""
        key = item.retry_key
        if key and (replay := replayed(self.remembered, item.key_id, key, item.created_at)):
            return replay
        if isinstance(item, BatchAcceptance):
            made = self._take_batch(item)
        else:
            done = self._decide(item)
            self.accepted.append((item, done))
            made = Sent(item.id, done.record, done.response)
        if key:
            self.memories.append(_memory(item, key, made.body))
        return made

    def _take_batch(self, batch: BatchAcceptance) -> Sent[Any]:
        before = replace(self.accounts[batch.team])
        done: list[tuple[Acceptance, Decision]] = []
        told: list[Sent[Any] | Refusal] = []
        for index, send in enumerate(batch.sends):
            try:
                if isinstance(send, Refusal):
                    raise send
                taken = self._decide(send)
                done.append((send, taken))
                told.append(Sent(send.id, taken.record, taken.response))
            except Refusal as refusal:
                if batch.strict:
                    self._undo(before, done)
                    raise refusal.within(index) from None
                told.append(refusal.within(index))
        self.accepted += done
        # A batch without accepted messages is finished at once.
        self.batches.append((batch.id, batch.team, len(done), None if done else batch.created_at))
        return Sent(batch.id, told, batch.respond(told))

    def _decide(self, item: Acceptance) -> Decision:
        before = replace(self.accounts[item.team])
        account, to = self.accounts[item.team], (item.team, item.marketing_to or "")
        try:
            opted_out = self.opted_out.get((item.team, item.channel, item.phone or "")) if self.opted_out else None
            done = item.decide(Found(self.suppressed[item.team], account, self.marketing[to], opted_out))
            if item.octets_most:
                octets = item.octets if item.shared else len(item.content)
                take_octets(account, octets + item.file_octets, item.octets_most, item.created_at)
        except Refusal:
            self._undo(before, [])
            raise
        if item.marketing_to:
            self.marketing[to].append(item.created_at)
        return done

    def _undo(self, before: Account, done: list[tuple[Acceptance, Decision]]) -> None:
        self.accounts[before.team] = before
        for item, _ in done:
            if item.marketing_to:
                self.marketing[item.team, item.marketing_to].pop()


async def tell_low_credit(
    tx: Tx,
    publisher: Publisher,
    before: dict[int, int],
    accounts: dict[int, Account],
    low: dict[int, tuple[int, int]],
) -> None:
    """Publish `credit.low` for each team whose credit fell below its threshold in this transaction.

    `low` maps each team to its threshold and the time of the event.
    """
    for team, (mark, at) in low.items():
        account = accounts[team]
        if before[team] >= mark > account.available:
            data = {"credit": format_money(account.available), "held": format_money(account.held)}
            event = Event(
                id=publisher.new_id("evt_"),
                team=team,
                subject="credit",
                type="credit.low",
                detail=msgspec.json.encode(data | {"threshold": format_money(mark)}).decode(),
                created_at=at,
            )
            await publisher.publish(tx, [event])
            await notice_queue.note(tx, low_credit(team, event.id, at, data["credit"], format_money(mark)))


async def _tell_scheduled(tx: Tx, publisher: Publisher, later: list[tuple[Acceptance, Decision]]) -> None:
    """Publish the event SCHEDULED to webhooks whose API format has this event type.

    The event is not linked to a message, because a message's timeline contains only published events.
    """
    events = [
        Event(
            id=publisher.new_id("evt_"),
            team=item.team,
            subject=item.id,
            sequence=None,
            type=SCHEDULED,
            detail=scheduled_data(item.kept(done.response), to.given, to.kind),
            created_at=item.created_at,
        )
        for item, done in later
        if (item.timing.due_at or 0) > item.created_at and publisher.subscribers(item.team, SCHEDULED, None)
        for to in done.recipients
    ]
    await publisher.publish(tx, events)


async def rehearse(tx: Tx, item: Acceptance, name_of: NameOf) -> Decision:
    """Return the decision that `accept` would make, without writing anything (dry_run)."""
    accounts = await lock_accounts(tx, {item.team})
    watched = {(item.team, address): address for address in item.watch}
    listed = await tx.run("find_suppressed", addresses=list(watched)) if watched else []
    suppressed = await _suppressed(tx, watched, listed, accounts, name_of)
    marketing = await _marketing(tx, [item])
    opted_out = next(iter((await _opted_out(tx, [item], accounts, name_of)).values()), None)
    to = item.team, item.marketing_to or ""
    return item.decide(Found(suppressed[item.team], accounts[item.team], marketing[to], opted_out))


async def lock_accounts(tx: Tx, teams: Iterable[int]) -> dict[int, Account]:
    rows = await tx.run("lock_accounts", teams=[(team,) for team in teams])
    return {row[0]: to_account(row) for row in rows}


def to_account(row: Sequence[Any]) -> Account:
    return Account(**dict(zip(Account.__struct_fields__, row, strict=True)))


async def save_accounts(tx: Tx, accounts: Iterable[Account]) -> None:
    await tx.run("update_accounts", accounts=[_account(account) for account in accounts])


def _account(a: Account) -> tuple[Any, ...]:
    days = (a.sandbox_day, a.sandbox_used, a.octets_day, a.octets_used)
    return (a.team, a.available, a.held, a.month, a.used, *days)


async def find_remembered(tx: Tx, keys: list[tuple[str, str]], leases: Leases) -> dict[tuple[str, str], Remembered]:
    return await to_remembered(tx, await tx.run("find_idempotency", keys=keys), leases) if keys else {}


async def to_remembered(tx: Tx, rows: list[Any], leases: Leases) -> dict[tuple[str, str], Remembered]:
    over = await leases.over(tx) if any(row[3] is None for row in rows) else 0
    return {
        (key_id, hash_): Remembered(
            fingerprint=fingerprint,
            status=status,
            response=None if response is None else response.encode(),
            abandoned=status is None and lease_until <= over,
            expires_at=expires_at,
            made=owner,
        )
        for key_id, hash_, fingerprint, status, response, lease_until, expires_at, owner in rows
    }


def replayed(
    remembered: dict[tuple[str, str], Remembered], key_id: str, retry_key: IdempotencyKey, now: int
) -> Sent[Any] | None:
    """Return the stored response of this idempotency key; None if the request must be executed."""
    row = idempotency.decide(remembered.get((key_id, retry_key.hash)), retry_key.fingerprint, now)
    return None if row is None or row.response is None else Sent(row.made, None, row.response, replayed=True)


async def remember(
    tx: Tx, rows: list[tuple[Any, ...]], found: dict[tuple[str, str], Remembered], leases: Leases
) -> None:
    """Insert idempotency keys; raise Conflict, which restarts the transaction, if another process took a key first."""
    over = await leases.over(tx) if any(row.abandoned for row in found.values()) else 0
    given = {"window": IDEMPOTENCY_WINDOW_MS, "over": over}
    if rows and len(await tx.run("remember_idempotency", keys=rows, **given)) < len(rows):
        raise Conflict("an Idempotency-Key was taken by another process")


async def _suppressed(
    tx: Tx,
    watched: dict[tuple[int, str], str],
    listed: list[Any],
    accounts: dict[int, Account],
    name_of: NameOf,
) -> dict[int, set[str]]:
    # `Account.erased` shows whether the team has erased addresses; for other teams no hashes need to be looked up.
    if erased := {(t, name_of(t, address)): address for t, address in watched if accounts[t].erased}:
        listed = listed + await tx.run("find_suppressed", addresses=list(erased))
    found: dict[int, set[str]] = defaultdict(set)
    for team, address in listed:
        found[team].add(watched.get((team, address)) or erased[team, address])
    return found


async def _opted_out(
    tx: Tx, items: Sequence[Acceptance], accounts: dict[int, Account], name_of: NameOf
) -> dict[Phone, OptOutReason]:
    """Return the opted-out phones with their reasons; teams without any (`Account.opted_out`) are not queried."""
    watched = {
        (item.team, item.channel, item.phone): item.phone
        for item in items
        if item.phone and accounts[item.team].opted_out
    }
    if not watched:
        return {}
    watched |= {(t, c, name_of(t, phone)): phone for t, c, phone in watched if accounts[t].erased}
    rows = await tx.run("find_opted_out", phones=list(watched))
    return {(t, c, watched[t, c, name]): reason for t, c, name, reason in rows}


async def _marketing(tx: Tx, items: Sequence[Acceptance]) -> dict[tuple[int, str], list[int]]:
    watched = {(item.team, item.marketing_to): item.created_at - DAY_MS for item in items if item.marketing_to}
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    if watched:
        rows = await tx.run("find_marketing", addresses=[(*to, since) for to, since in watched.items()])
        for team, address, created_at in rows:
            found[team, address].append(created_at)
    return found


async def write_accepted(
    tx: Tx, accepted: list[tuple[Acceptance, Decision]], accounts: dict[int, Account], keys: list[Any]
) -> list[tuple[Acceptance, Decision]]:
    """Write the accepted messages, using the first of `keys`, and return the emails that are scheduled for later."""
    rows: dict[str, list[tuple[Any, ...]]] = {query: [] for query in WRITES}
    later: list[tuple[Acceptance, Decision]] = []
    texts: dict[tuple[int, bytes], int] = {}  # key of the first message with this shared text
    for (key,), (item, done) in zip(keys, accepted, strict=False):
        at, due_at = item.created_at, item.timing.due_at
        starts, queue = max(at, due_at or at), QUEUE_OF[item.lane, item.added.priority]
        rows["insert_messages"].append(_message(key, item, done))
        if item.shared is None:
            rows["insert_contents"].append((key, item.content.decode()))
        else:
            text = texts.setdefault((item.team, item.shared.digest), key)
            if text == key:
                rows["insert_shared_texts"].append((key, item.shared.body.decode()))
            rows["insert_shared_contents"].append((key, item.content.decode(), text))
        for position, to in enumerate(done.recipients):
            rows["insert_recipients"].append((key, position, to.address, to.given, to.kind, item.status, at))
            rows["insert_outbox"].append((queue, item.team, key, position, None, starts, at, item.timing.expires_at))
        note(tx, item.lane, starts - at)
        if item.blobs:
            rows["insert_blobs"] += [(blob, key) for blob in item.blobs]
        if item.added.tags:
            rows["insert_tags"] += tag_rows(item.team, item.id, item.added.tags)
        if done.price:
            rows["insert_ledger"].append((item.team, "hold", done.price, item.id, at, 0))
        if item.callback:
            rows["insert_callbacks"].append((key, item.callback))
        if item.marketing_to:
            rows["insert_marketing"].append((item.team, item.marketing_to, at))
        if due_at and item.channel == "email":
            later.append((item, done))
    rows["update_accounts"] = [_account(accounts[team]) for team in {item.team for item, _ in accepted}]
    await tx.write(rows)
    return later


def _message(key: int, item: Acceptance, done: Decision) -> tuple[Any, ...]:
    return (
        key,
        item.id,
        item.team,
        item.channel,
        item.status,
        CAUGHT if item.caught else int(item.sandbox),
        item.key_id,
        item.template_id,
        item.template_version,
        item.country,
        done.price,
        "held" if done.price else "none",
        item.created_at,
        item.kept(done.response),
        item.batch,
        item.trace,
    )


def _memory(item: Item, retry_key: IdempotencyKey, response: bytes) -> tuple[Any, ...]:
    expires_at = item.created_at + IDEMPOTENCY_WINDOW_MS
    return (item.key_id, retry_key.hash, retry_key.fingerprint, item.id, 0, ACCEPTED, response.decode(), expires_at)
