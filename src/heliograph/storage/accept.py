"""The accept transaction: reads the stored state, decides each message and writes the accepted messages."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.delivery.lanes import HELD_QUEUE, QUEUE_BY_LANE_AND_PRIORITY
from heliograph.domain.event_data import CreditLowData, encode_data
from heliograph.domain.events import HELD, SCHEDULED, scheduled_data
from heliograph.domain.limits import DAY_MS, IDEMPOTENCY_WINDOW_MS
from heliograph.domain.operations.erasure import EntryName
from heliograph.domain.operations.notices import key_limit_notice, low_credit_notice
from heliograph.domain.phones.opt_out import OptOutReason
from heliograph.domain.refusals import KeyLimitReached, Refusal
from heliograph.domain.sending import idempotency
from heliograph.domain.sending.acceptance import (
    CAPTURED,
    Acceptance,
    AcceptState,
    BatchAcceptance,
    Decision,
    IdempotencyKey,
    SendResult,
)
from heliograph.domain.sending.approvals import held_data, hold_detail
from heliograph.domain.sending.idempotency import StoredResponse
from heliograph.domain.sending.pricing import Account, count_stored_bytes, format_money
from heliograph.runtime import metrics
from heliograph.storage import audit, notice_queue
from heliograph.storage.engine.database import Conflict, Tx, schedule_wakeup
from heliograph.storage.events import Event, Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.tags import tag_rows

ACCEPTED = 202
# Write queries of one transaction, always in this order: they are sent as one statement, which PostgreSQL would plan
# again for every other order.
WRITE_QUERIES = (
    *("insert_messages", "insert_contents", "insert_shared_texts", "insert_shared_contents", "insert_recipients"),
    *("insert_outbox", "update_accounts", "insert_ledger", "insert_blobs", "insert_marketing", "insert_tags"),
    "insert_callbacks",
)

Item = Acceptance | BatchAcceptance
Phone = tuple[int, str, str]  # team, channel, number
Subscription = tuple[int, str, str]  # team, address, category


def weight(item: Item) -> int:
    """Return the maximum number of messages that the item can produce."""
    return len(item.sends) if isinstance(item, BatchAcceptance) else 1


async def accept(
    tx: Tx, items: Sequence[Item], publisher: Publisher, erased_name_of: EntryName, leases: Leases
) -> list[SendResult[Any] | Exception]:
    decider, message_keys = await _open_decider(tx, items, erased_name_of, leases)
    credit_before = {team: account.available for team, account in decider.accounts.items()}
    results: list[SendResult[Any] | Exception] = []
    for item in items:
        try:
            results.append(decider.decide(item))
        except Refusal as refusal:
            results.append(refusal)
    if decider.limited_keys:
        await enqueue_key_limit_notices(tx, decider.limited_keys)
    if decider.idempotency_rows:
        await insert_idempotency_keys(tx, decider.idempotency_rows, decider.stored_responses, leases)
    if decider.batch_rows:
        await tx.run("insert_batches", batches=decider.batch_rows)
    if accepted := decider.accepted:
        scheduled_sends = await write_accepted(tx, accepted, decider.accounts, message_keys)
        thresholds = {item.team: (item.credit_low, item.created_at) for item, _ in accepted}
        await publish_low_credit(tx, publisher, credit_before, decider.accounts, thresholds)
        if scheduled_sends:
            await _publish_scheduled(tx, publisher, scheduled_sends)
        if held_sends := [
            (key, item) for (key,), (item, _) in zip(message_keys, accepted, strict=False) if item.approval_expires_at
        ]:
            await _publish_held(tx, publisher, held_sends)
        await audit.write(tx, *(item.audit for item, _ in accepted))
        tx.after_commit.append(partial(_count_accepted, accepted))
    return results


async def _open_decider(
    tx: Tx, items: Sequence[Item], erased_name_of: EntryName, leases: Leases
) -> tuple["_BatchDecider", list[Any]]:
    """Read the state that the decisions need and reserve message keys, in as few round trips as possible.

    Returns the decider and the reserved keys.
    """
    sends: list[Acceptance] = []
    for item in items:
        if isinstance(item, BatchAcceptance):
            sends += [send for send in item.sends if isinstance(send, Acceptance)]
        else:
            sends.append(item)
    addresses_to_check = {(item.team, address): address for item in sends for address in item.suppression_addresses}
    account_rows, message_keys, idempotency_rows, suppression_rows = await tx.run_many(
        lock_accounts={"teams": [(team,) for team in {item.team for item in items}]},
        next_message_keys={"count": len(sends)},
        find_idempotency={"keys": [(item.key_id, item.idempotency_key.hash) for item in items if item.idempotency_key]},
        find_suppressed={"addresses": list(addresses_to_check)},
    )
    accounts = {row[0]: account_from_row(row) for row in account_rows}
    decider = _BatchDecider(
        accounts=accounts,
        stored_responses=await to_stored_responses(tx, idempotency_rows, leases),
        suppressed=await _find_suppressed(tx, addresses_to_check, suppression_rows, accounts, erased_name_of),
        marketing_times=await _find_marketing(tx, sends),
        opt_outs=await _find_opted_out(tx, sends, accounts, erased_name_of),
        unsubscribed=await _find_unsubscribed(tx, sends, accounts, erased_name_of),
    )
    return decider, message_keys


def _count_accepted(accepted: list[tuple[Acceptance, Decision]]) -> None:
    counts = Counter((item.channel, item.template_id is None, item.sandbox) for item, _ in accepted)
    for (channel, direct, sandbox), count in counts.items():
        metrics.messages_accepted[channel, "direct" if direct else "template", str(sandbox).lower()].inc(count)


class _BatchDecider(msgspec.Struct, kw_only=True):
    """Decides items in order; each decision sees the credit and quota used by earlier items of the batch."""

    accounts: dict[int, Account]
    stored_responses: dict[tuple[str, str], StoredResponse]
    suppressed: dict[int, set[str]]
    marketing_times: dict[tuple[int, str], list[int]]
    opt_outs: dict[Phone, OptOutReason]
    unsubscribed: set[Subscription]
    # Rows to write for the accepted items:
    accepted: list[tuple[Acceptance, Decision]] = []
    idempotency_rows: list[tuple[Any, ...]] = []
    batch_rows: list[tuple[Any, ...]] = []
    limited_keys: dict[str, tuple[int, int]] = {}  # key id → (team number, time when it reached a limit)

    def decide(self, item: Item) -> SendResult[Any]:
        """Decide one item or replay its idempotent response. A refusal has no side effects."""
        idempotency_key = item.idempotency_key
        if idempotency_key and (
            replay := replay_response(self.stored_responses, item.key_id, idempotency_key, item.created_at)
        ):
            return replay
        if isinstance(item, BatchAcceptance):
            sent = self._decide_batch(item)
        else:
            decision = self._decide_message(item)
            self.accepted.append((item, decision))
            sent = SendResult(item.id, decision.record, decision.response)
        if idempotency_key:
            self.idempotency_rows.append(_idempotency_row(item, idempotency_key, sent.body))
        return sent

    def _decide_batch(self, batch: BatchAcceptance) -> SendResult[Any]:
        account_before = replace(self.accounts[batch.team])
        decided: list[tuple[Acceptance, Decision]] = []
        results: list[SendResult[Any] | Refusal] = []
        for index, send in enumerate(batch.sends):
            try:
                if isinstance(send, Refusal):
                    raise send
                decision = self._decide_message(send)
                decided.append((send, decision))
                results.append(SendResult(send.id, decision.record, decision.response))
            except Refusal as refusal:
                if batch.strict:
                    self._restore(account_before, decided)
                    raise refusal.for_batch_message(index) from None
                results.append(refusal.for_batch_message(index))
        self.accepted += decided
        # A batch without accepted messages is finished at once.
        self.batch_rows.append((batch.id, batch.team, len(decided), None if decided else batch.created_at))
        return SendResult(batch.id, results, batch.respond(results))

    def _decide_message(self, item: Acceptance) -> Decision:
        account_before = replace(self.accounts[item.team])
        account, marketing_key = self.accounts[item.team], (item.team, item.marketing_to or "")
        try:
            opted_out = (
                self.opt_outs.get((item.team, item.channel, item.opt_out_phone or "")) if self.opt_outs else None
            )
            decision = item.decide(
                AcceptState(
                    self.suppressed[item.team],
                    account,
                    self.marketing_times[marketing_key],
                    bool(self.unsubscribed) and _subscription(item) in self.unsubscribed,
                    opted_out,
                )
            )
            if item.daily_bytes_limit:
                octets = item.content_bytes if item.shared else len(item.content)
                count_stored_bytes(account, octets + item.file_bytes, item.daily_bytes_limit, item.created_at)
        except Refusal as refusal:
            self._restore(account_before, [])
            if isinstance(refusal, KeyLimitReached):
                self.limited_keys[item.key_id] = (item.team, item.created_at)
            raise
        if item.marketing_to:
            self.marketing_times[marketing_key].append(item.created_at)
        return decision

    def _restore(self, account_before: Account, decided: list[tuple[Acceptance, Decision]]) -> None:
        self.accounts[account_before.team] = account_before
        for item, _ in decided:
            if item.marketing_to:
                self.marketing_times[item.team, item.marketing_to].pop()


async def publish_low_credit(
    tx: Tx,
    publisher: Publisher,
    credit_before: dict[int, int],
    accounts: dict[int, Account],
    thresholds: dict[int, tuple[int, int]],
) -> None:
    """Publish `credit.low` for each team whose credit fell below its threshold in this transaction.

    `thresholds` maps each team to its threshold and the time of the event.
    """
    for team, (threshold, at) in thresholds.items():
        account = accounts[team]
        if credit_before[team] >= threshold > account.available:
            data = CreditLowData(
                credit=format_money(account.available),
                held=format_money(account.held),
                threshold=format_money(threshold),
            )
            event = Event(
                id=publisher.new_id("evt_"),
                team=team,
                subject="credit",
                type="credit.low",
                detail=encode_data(data),
                created_at=at,
            )
            await publisher.publish(tx, [event])
            await notice_queue.enqueue(tx, low_credit_notice(team, event.id, at, data.credit, data.threshold))


async def enqueue_key_limit_notices(tx: Tx, limited_keys: Mapping[str, tuple[int, int]]) -> None:
    """Enqueue a notice for each of `limited_keys` (key id → team number, time), at most one per key and day."""
    notices = [key_limit_notice(team, key_id, at) for key_id, (team, at) in sorted(limited_keys.items())]
    await notice_queue.enqueue(tx, *notices)


async def _publish_scheduled(tx: Tx, publisher: Publisher, sends: list[tuple[Acceptance, Decision]]) -> None:
    """Publish the event SCHEDULED to the webhooks whose format (Resend's, Postal's …) has such an event.

    The event is not linked to its message (`Event.message`), so that the message's timeline does not contain it.
    """
    events = [
        Event(
            id=publisher.new_id("evt_"),
            team=item.team,
            subject=item.id,
            sequence=None,
            type=SCHEDULED,
            detail=scheduled_data(item.stored_record(decision.response), recipient.original, recipient.kind),
            created_at=item.created_at,
        )
        for item, decision in sends
        if (item.timing.due_at or 0) > item.created_at and publisher.subscribers(item.team, SCHEDULED, None)
        for recipient in decision.recipients
    ]
    await publisher.publish(tx, events)


async def _publish_held(tx: Tx, publisher: Publisher, sends: list[tuple[int, Acceptance]]) -> None:
    events = [
        Event(
            id=publisher.new_id("evt_"),
            team=item.team,
            subject=item.id,
            message=key,
            type=HELD,
            message_status=item.status,
            detail=held_data(item.id, item.channel, item.approval_expires_at or 0),
            created_at=item.created_at,
        )
        for key, item in sends
    ]
    await publisher.publish(tx, events)


async def dry_run(tx: Tx, item: Acceptance, erased_name_of: EntryName) -> Decision:
    """Return the decision that `accept` would make, without writing anything."""
    accounts = await lock_accounts(tx, {item.team})
    addresses_to_check = {(item.team, address): address for address in item.suppression_addresses}
    suppression_rows = await tx.run("find_suppressed", addresses=list(addresses_to_check)) if addresses_to_check else []
    suppressed = await _find_suppressed(tx, addresses_to_check, suppression_rows, accounts, erased_name_of)
    marketing = await _find_marketing(tx, [item])
    opted_out = next(iter((await _find_opted_out(tx, [item], accounts, erased_name_of)).values()), None)
    marketing_key = item.team, item.marketing_to or ""
    unsubscribed = bool(await _find_unsubscribed(tx, [item], accounts, erased_name_of))
    return item.decide(
        AcceptState(suppressed[item.team], accounts[item.team], marketing[marketing_key], unsubscribed, opted_out)
    )


async def lock_accounts(tx: Tx, teams: Iterable[int]) -> dict[int, Account]:
    rows = await tx.run("lock_accounts", teams=[(team,) for team in teams])
    return {row[0]: account_from_row(row) for row in rows}


def account_from_row(row: Sequence[Any]) -> Account:
    return Account(**dict(zip(Account.__struct_fields__, row, strict=True)))


async def save_accounts(tx: Tx, accounts: Iterable[Account]) -> None:
    await tx.run("update_accounts", accounts=[_account_row(account) for account in accounts])


def _account_row(account: Account) -> tuple[Any, ...]:
    days = (account.sandbox_day, account.sandbox_used, account.octets_day, account.octets_used)
    return (account.team, account.available, account.held, account.month, account.used, *days, account.key_uses)


async def find_stored_responses(
    tx: Tx, keys: list[tuple[str, str]], leases: Leases
) -> dict[tuple[str, str], StoredResponse]:
    """Return (API key, hash) → stored response; unused idempotency keys are missing."""
    return await to_stored_responses(tx, await tx.run("find_idempotency", keys=keys), leases) if keys else {}


async def to_stored_responses(tx: Tx, rows: list[Any], leases: Leases) -> dict[tuple[str, str], StoredResponse]:
    expired_before = await leases.expired_before(tx) if any(row[3] is None for row in rows) else 0
    return {
        (key_id, hash_): StoredResponse(
            fingerprint=fingerprint,
            status=status,
            response=None if response is None else response.encode(),
            abandoned=status is None and lease_until <= expired_before,
            expires_at=expires_at,
            object_id=owner,
        )
        for key_id, hash_, fingerprint, status, response, lease_until, expires_at, owner in rows
    }


def replay_response(
    stored_responses: dict[tuple[str, str], StoredResponse], key_id: str, idempotency_key: IdempotencyKey, now: int
) -> SendResult[Any] | None:
    """Return the stored response of this idempotency key; None if the request must be executed."""
    stored_response = stored_responses.get((key_id, idempotency_key.hash))
    replay = idempotency.select_replay(stored_response, idempotency_key.fingerprint, now)
    if replay is None or replay.response is None:
        return None
    return SendResult(replay.object_id, None, replay.response, replayed=True)


async def insert_idempotency_keys(
    tx: Tx, key_rows: list[tuple[Any, ...]], stored_responses: dict[tuple[str, str], StoredResponse], leases: Leases
) -> None:
    """Insert idempotency keys; raise Conflict, which restarts the transaction, if another process took a key first."""
    expired_before = await leases.expired_before(tx) if any(row.abandoned for row in stored_responses.values()) else 0
    params = {"window": IDEMPOTENCY_WINDOW_MS, "over": expired_before}
    if key_rows and len(await tx.run("remember_idempotency", keys=key_rows, **params)) < len(key_rows):
        raise Conflict("an Idempotency-Key was taken by another process")


async def _find_suppressed(
    tx: Tx,
    addresses_to_check: dict[tuple[int, str], str],
    suppression_rows: list[Any],
    accounts: dict[int, Account],
    erased_name_of: EntryName,
) -> dict[int, set[str]]:
    # Only for a team that has erased addresses (`Account.erased`), the pseudonyms of addresses are queried, too.
    if erased_addresses := {
        (team, erased_name_of(team, address)): address for team, address in addresses_to_check if accounts[team].erased
    }:
        suppression_rows = suppression_rows + await tx.run("find_suppressed", addresses=list(erased_addresses))
    addresses_by_team: dict[int, set[str]] = defaultdict(set)
    for team, address in suppression_rows:
        addresses_by_team[team].add(addresses_to_check.get((team, address)) or erased_addresses[team, address])
    return addresses_by_team


async def _find_opted_out(
    tx: Tx, items: Sequence[Acceptance], accounts: dict[int, Account], erased_name_of: EntryName
) -> dict[Phone, OptOutReason]:
    """Return the opted-out phones with their reasons. Teams without opt-outs (`Account.opted_out`) are not queried."""
    phone_by_key = {
        (item.team, item.channel, item.opt_out_phone): item.opt_out_phone
        for item in items
        if item.opt_out_phone and accounts[item.team].opted_out
    }
    if not phone_by_key:
        return {}
    phone_by_key |= {
        (team, channel, erased_name_of(team, phone)): phone
        for team, channel, phone in phone_by_key
        if accounts[team].erased
    }
    rows = await tx.run("find_opted_out", phones=list(phone_by_key))
    return {(team, channel, phone_by_key[team, channel, name]): reason for team, channel, name, reason in rows}


async def _find_unsubscribed(
    tx: Tx, items: Sequence[Acceptance], accounts: dict[int, Account], erased_name_of: EntryName
) -> set[Subscription]:
    """Return the subscriptions that recipients have canceled. Items without a category have no subscription."""
    subscriptions = [_subscription(item) for item in items if item.category]
    if not subscriptions:
        return set()
    by_stored_name = dict(zip(subscriptions, subscriptions, strict=True)) | {
        (team, erased_name_of(team, address), category): (team, address, category)
        for team, address, category in subscriptions
        if accounts[team].erased
    }
    rows = await tx.run("find_unsubscribed", recipients=list(by_stored_name))
    return {by_stored_name[team, name, category] for team, name, category in rows}


def _subscription(item: Acceptance) -> Subscription:
    return item.team, item.suppression_addresses[0], item.category or ""


async def _find_marketing(tx: Tx, items: Sequence[Acceptance]) -> dict[tuple[int, str], list[int]]:
    since_by_recipient = {
        (item.team, item.marketing_to): item.created_at - DAY_MS for item in items if item.marketing_to
    }
    times_by_recipient: dict[tuple[int, str], list[int]] = defaultdict(list)
    if since_by_recipient:
        rows = await tx.run(
            "find_marketing", addresses=[(*recipient, since) for recipient, since in since_by_recipient.items()]
        )
        for team, address, created_at in rows:
            times_by_recipient[team, address].append(created_at)
    return times_by_recipient


async def write_accepted(
    tx: Tx, accepted: list[tuple[Acceptance, Decision]], accounts: dict[int, Account], keys: list[Any]
) -> list[tuple[Acceptance, Decision]]:
    """Write the accepted messages, with the reserved message keys; return the emails that are scheduled for later."""
    rows: dict[str, list[tuple[Any, ...]]] = {query: [] for query in WRITE_QUERIES}
    scheduled_sends: list[tuple[Acceptance, Decision]] = []
    first_key_by_text: dict[tuple[int, bytes], int] = {}  # key of the first message with this shared text
    for (key,), (item, decision) in zip(keys, accepted, strict=False):
        created_at, due_at = item.created_at, item.timing.due_at
        starts_at = max(created_at, due_at or created_at)
        queue = QUEUE_BY_LANE_AND_PRIORITY[item.lane, item.extra_fields.priority]
        expires_at, detail = item.timing.expires_at, None
        if item.approval_expires_at is not None:
            starts_at, queue, expires_at = item.approval_expires_at, HELD_QUEUE, None
            detail = msgspec.json.encode(hold_detail(item.approval_expires_at)).decode()
        rows["insert_messages"].append(_message_row(key, item, decision))
        if item.shared is None:
            rows["insert_contents"].append((key, item.content.decode()))
        else:
            text_key = first_key_by_text.setdefault((item.team, item.shared.digest), key)
            if text_key == key:
                rows["insert_shared_texts"].append((key, item.shared.body.decode()))
            rows["insert_shared_contents"].append((key, item.content.decode(), text_key))
        for position, recipient in enumerate(decision.recipients):
            rows["insert_recipients"].append(
                (key, position, recipient.address, recipient.original, recipient.kind, item.status, created_at, detail)
            )
            rows["insert_outbox"].append((queue, item.team, key, position, None, starts_at, created_at, expires_at))
        if item.approval_expires_at is None:
            schedule_wakeup(tx, item.lane, starts_at - created_at)
        if item.blobs:
            rows["insert_blobs"] += [(blob, key) for blob in item.blobs]
        if item.extra_fields.tags:
            rows["insert_tags"] += tag_rows(item.team, item.id, item.extra_fields.tags)
        if decision.price:
            rows["insert_ledger"].append((item.team, "hold", decision.price, item.id, created_at, 0))
        if item.callback:
            rows["insert_callbacks"].append((key, item.callback))
        if item.marketing_to:
            rows["insert_marketing"].append((item.team, item.marketing_to, created_at))
        if due_at and item.channel == "email":
            scheduled_sends.append((item, decision))
    rows["update_accounts"] = [_account_row(accounts[team]) for team in {item.team for item, _ in accepted}]
    await tx.write_many(rows)
    return scheduled_sends


def _message_row(key: int, item: Acceptance, decision: Decision) -> tuple[Any, ...]:
    return (
        key,
        item.id,
        item.team,
        item.channel,
        item.status,
        CAPTURED if item.captured else int(item.sandbox),
        item.key_id,
        item.template_id,
        item.template_version,
        item.country,
        decision.price,
        "held" if decision.price else "none",
        int(item.approval_expires_at is not None),  # number of published events: 1 if `message.held` is published
        item.created_at,
        item.stored_record(decision.response),
        item.batch,
        item.trace,
        item.category,
    )


def _idempotency_row(item: Item, key: IdempotencyKey, response: bytes) -> tuple[Any, ...]:
    expires_at = item.created_at + IDEMPOTENCY_WINDOW_MS
    return (item.key_id, key.hash, key.fingerprint, item.id, 0, ACCEPTED, response.decode(), expires_at)
