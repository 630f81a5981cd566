"""Records carrier outcomes: checks the claim's fencing token and applies state changes in one transaction."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from heliograph.domain import events as event
from heliograph.domain.delivery import magic_recipients, message_states
from heliograph.domain.delivery.lanes import INBOX
from heliograph.domain.delivery.outcome import (
    SENDER,
    TIMELINE_ONLY_STATUSES,
    CarrierAttempt,
    CarrierReport,
    DueReport,
    Report,
    local_failure,
)
from heliograph.domain.delivery.retry import ABSENT_RETENTION_MS, absent_confirmation_wait
from heliograph.domain.event_data import SuppressionEventData, encode_data
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import CRASHES_MAX, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.mail import reputation
from heliograph.domain.mail.delay import DELAY_EVENT_AFTER_MS, DelayData
from heliograph.domain.mail.feedback_id import DIRECT
from heliograph.domain.mail.mailbox_provider import OTHER, SIMULATOR, provider_of, provider_of_name
from heliograph.domain.mail.recipients import count_address_uses
from heliograph.domain.operations.erasure import is_erased
from heliograph.domain.operations.notices import dead_letter_notice
from heliograph.domain.phones.carrier_codes import reported_opt_out
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import CAPTURED
from heliograph.domain.sending.key_limits import refund_spend
from heliograph.domain.sending.pricing import Account
from heliograph.domain.sending.send_options import decode_record
from heliograph.inbound.policy.bounce_category import category_of
from heliograph.inbound.store.opt_outs import add_opt_outs
from heliograph.runtime import metrics
from heliograph.storage import batches, carrier_stats, notice_queue, stats
from heliograph.storage.accept import lock_accounts, save_accounts
from heliograph.storage.engine.database import Tx, schedule_wakeup
from heliograph.storage.events import Event, Publisher

# How long to keep a report that arrives before the send is recorded
EARLY_REPORT_MS = MINUTE_MS  # delivery reports
EARLY_BOUNCE_MS = HOUR_MS  # bounces: an email may bounce minutes before the server confirms that it accepted it

# Reasons, set by this service, for which an email was certainly not sent. The email no longer counts against the quota.
UNUSED_QUOTA_REASONS = (
    *("canceled", "expired", "suspended", "suppressed", "unsubscribed", "approval_rejected", "approval_expired"),
    *("no_carrier", "out_of_reach", "not_ready", "provider_rate", "warmup"),
)
COUNTED_STATES = ("delivered", "bounced", "failed", "complained")
DEFERRED = "deferred"
RECEIPT_STATES = ("delivered", "read", "failed")
SETTLE_BY_KIND = {"capture": pricing.capture, "release": pricing.release}


class RetryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Time and counters of the next delivery attempt."""

    due_at: int
    attempt: int  # delivery attempts with a recorded outcome
    deferrals: dict[str, int] = {}  # count by carrier
    uncertain_carrier: str | None = None  # the carrier that may have sent the message
    absent_at: int | None = None  # when the recipient's domain was first reported not to exist
    first_at: int | None = None  # start of the retry period; None keeps the recorded start
    held_at: int | None = None  # due time before this service held the message back; None: not held back


class ClaimToken(msgspec.Struct, frozen=True, array_like=True):
    """Key and epoch of a claimed outbox row; the epoch changes with every claim (fencing token)."""

    key: int
    epoch: int


class RecipientUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome for one recipient and the changes that follow from it."""

    at: int
    message: int
    position: int
    target_status: str | None  # the target state; None changes only the timeline
    timeline_note: str | None = None  # type of an entry that is added to the timeline only
    delay: DelayData | None = None  # data to publish as `email.delayed`
    detail: dict[str, Any] = {}
    suppress: str | None = None
    domain_absent: bool = False  # the recipient's domain is reported not to exist
    accepted: bool = False  # a carrier accepted the message: captures the credit hold
    carrier: str | None = None
    carrier_id: str | None = None
    parts: tuple[str, ...] = ()  # carrier ids of the parts of a multipart message
    claim: ClaimToken | None = None
    retry: RetryPlan | None = None
    is_repeat: bool = False  # the message still waits for the same reason: add nothing to the timeline
    reports: Sequence[DueReport] = ()
    lane: str = ""
    attempts: Sequence[CarrierAttempt] = ()

    @classmethod
    def from_reports(
        cls, claim: ClaimToken, message: int, position: int, reports: Sequence[DueReport], lane: str, at: int
    ) -> Self:
        """Return the update for the first of a simulator's reports, which is due; the others stay scheduled."""
        (_, report), *later_reports = reports
        return cls(
            at=at,
            message=message,
            position=position,
            claim=claim,
            target_status=report.status,
            detail=event.mark_simulated(report.detail),
            suppress=report.suppress,
            reports=later_reports,
            lane=lane,
        )


class LockedMessage(msgspec.Struct):
    """A locked message; its fields are changed in memory before the row is written."""

    key: int
    id: str
    team: int
    channel: Any
    status: str
    sandbox: int
    price: int
    charge: str
    sequence: int
    hold_number: int
    created_at: int
    batch: str | None
    key_id: str
    template_id: str | None
    category: str | None
    ended_at: int | None = None


class RecipientRow(msgspec.Struct):
    """Row of the query `recipients_of`."""

    message: int
    position: int
    address: str
    given_address: str
    status: str
    was_late: int
    carrier: str | None
    carrier_id: str | None
    detail: str | None
    updated_at: int = 0


async def lock_messages(tx: Tx, keys: Sequence[tuple[int]]) -> dict[int, LockedMessage]:
    """Lock messages and return key → locked message.

    Every transaction locks messages before accounts, which prevents deadlocks.
    """
    return {row[0]: LockedMessage(*row) for row in await tx.run("lock_messages", messages=keys)}


async def record_updates(
    tx: Tx,
    updates: Sequence[RecipientUpdate],
    *,
    owner: str | None,
    publisher: Publisher,
    own_tokens: set[ClaimToken] | None = None,
) -> list[bool | Exception]:
    """Write the updates; return False for each update whose claim was lost.

    `own_tokens`: claims made in this transaction, which need no fencing query. An update of a deleted message or an
    erased recipient has no effect.
    """
    live_tokens = await _read_live_tokens(tx, updates, owner) if own_tokens is None else own_tokens
    live_updates = [update for update in updates if update.claim is None or update.claim in live_tokens]
    if not live_updates:
        return [False] * len(updates)
    keys = [(key,) for key in {update.message for update in live_updates}]
    messages = await lock_messages(tx, keys)
    recipients = {(row[0], row[1]): RecipientRow(*row) for row in await tx.run("recipients_of", messages=keys)}
    # A report about an erased address would store the address again.
    applicable = [
        update
        for update in live_updates
        if update.message in messages and not is_erased(recipients[update.message, update.position].address)
    ]
    if [update for update in applicable if update.domain_absent]:
        applicable = await _fail_first_absence(tx, applicable, messages, recipients)
    await _apply_updates(tx, _PendingRows(publisher), applicable, messages, recipients)
    part_rows = {  # each id once: PostgreSQL cannot upsert a row twice in one statement
        (update.carrier, id_): (update.carrier, id_, update.message, update.position, number)
        for update in live_updates
        for number, id_ in enumerate(update.parts, start=1)
    }
    if part_rows:
        await tx.run("insert_parts", parts=list(part_rows.values()))
    await _settle_outbox(tx, live_updates)
    if [
        update
        for update in applicable
        if update.accepted and update.detail.get(event.SIMULATED) and messages[update.message].sandbox
    ]:
        schedule_wakeup(tx, INBOX)
    await carrier_stats.count_attempts(
        tx, owner or "", [(update.at, attempt) for update in live_updates for attempt in update.attempts]
    )
    return [update.claim is None or update.claim in live_tokens for update in updates]


async def _fail_first_absence(
    tx: Tx,
    updates: Sequence[RecipientUpdate],
    messages: dict[int, LockedMessage],
    recipients: dict[tuple[int, int], RecipientRow],
) -> list[RecipientUpdate]:
    """Return the updates; the first that reports a domain as absent fails its message without suppressing the address.

    A later report confirms that the domain is absent; its update stays unchanged (contract 6).
    """

    def team_and_domain(update: RecipientUpdate) -> tuple[int, str]:
        address = recipients[update.message, update.position].address
        return messages[update.message].team, address.rpartition("@")[2]

    reported_at = {team_and_domain(update): update.at for update in updates if update.domain_absent}
    rows = await tx.run(
        "record_absent_domains", rows=[(*key, at) for key, at in reported_at.items()], kept=ABSENT_RETENTION_MS
    )
    first_at = {(team, domain): at for team, domain, at in rows}
    return [
        replace(update, target_status="failed", suppress=None)
        if update.domain_absent and absent_confirmation_wait(first_at[team_and_domain(update)], update.at)
        else update
        for update in updates
    ]


async def record_carrier_reports(
    tx: Tx,
    carrier: str,
    reports: Sequence[CarrierReport],
    *,
    at: int,
    publisher: Publisher,
    store_unknown: bool = False,
    skip_known: bool = False,
) -> list[bool | Exception]:
    """Apply reports that are keyed by the carrier's ids; return for each whether its id is known.

    `store_unknown`: store reports with unknown ids for a while, because the send may not be recorded yet. `skip_known`:
    skip reports that the timeline already contains verbatim.
    """
    ids = [(carrier_id,) for carrier_id in {carrier_id for carrier_id, _ in reports}]
    recipient_by_carrier_id = {
        row[0]: (row[1], row[2]) for row in await tx.run("recipients_by_carrier_id", carrier=carrier, ids=ids)
    }
    updates = [
        update_from_report(*recipient_by_carrier_id[carrier_id], report, at)
        for carrier_id, report in reports
        if carrier_id in recipient_by_carrier_id
    ]
    if skip_known:
        updates = await _drop_known_updates(tx, updates)
    part_rows = await tx.run("parts_by_carrier_id", carrier=carrier, ids=ids)
    recipient_by_carrier_id |= {row[0]: (row[1], row[2]) for row in part_rows}
    updates += await _combine_parts(tx, carrier, reports, {row[0]: row for row in part_rows}, at)
    if updates:
        await record_updates(tx, updates, owner=None, publisher=publisher)
    known_ids = recipient_by_carrier_id.keys() | await record_code_receipts(
        tx, carrier, [report for report in reports if report[0] not in recipient_by_carrier_id], at
    )
    unknown_reports = [
        (carrier, id_, msgspec.json.encode(report).decode(), at) for id_, report in reports if id_ not in known_ids
    ]
    if store_unknown and unknown_reports:
        await tx.run("insert_early_reports", reports=unknown_reports)
    return [carrier_id in known_ids for carrier_id, _ in reports]


async def record_code_receipts(tx: Tx, carrier: str, reports: Sequence[CarrierReport], at: int) -> set[str]:
    """Record delivery receipts of verification codes and return the carrier ids that matched.

    A delivered code stops the fallback to the next channel; a failed code starts the fallback now.
    """
    receipts = {
        id_: at if report.status == "failed" else None for id_, report in reports if report.status in RECEIPT_STATES
    }
    if not receipts:
        return set()
    return {row[0] for row in await tx.run("record_receipts", carrier=carrier, receipts=list(receipts.items()))}


async def _drop_known_updates(tx: Tx, updates: Sequence[RecipientUpdate]) -> list[RecipientUpdate]:
    """Return the updates that are not in the timeline yet, without duplicates."""
    keys = [(key,) for key in {update.message for update in updates}]
    await lock_messages(tx, keys)
    rows = await tx.run("event_details_of", messages=keys)
    known_entries = {(message, status, _remove_sender(detail)) for message, status, detail in rows}
    update_by_entry = {
        (update.message, update.target_status, encode_detail(update.detail)): update for update in updates
    }
    return [update for entry, update in update_by_entry.items() if entry not in known_entries]


async def _combine_parts(
    tx: Tx, carrier: str, reports: Sequence[CarrierReport], part_by_id: dict[str, Any], at: int
) -> list[RecipientUpdate]:
    """Return an update for each receipt of a message part.

    The update's target status: failed if any part failed, delivered if all parts were delivered, otherwise sent.
    """
    known_reports = [(id_, report) for id_, report in reports if id_ in part_by_id]
    if not known_reports:
        return []
    final_statuses = {id_: report.status for id_, report in known_reports if message_states.is_final(report.status)}
    if final_statuses:
        await tx.run("update_parts", parts=[(carrier, id_, status) for id_, status in final_statuses.items()])
    statuses_by_recipient: dict[tuple[int, int], list[str | None]] = defaultdict(list)
    for message, position, status in await tx.run(
        "parts_of", places=list({tuple(row[1:3]) for row in part_by_id.values()})
    ):
        statuses_by_recipient[message, position].append(status)
    updates = []
    for id_, report in known_reports:
        _, message, position, number = part_by_id[id_]
        statuses = statuses_by_recipient[message, position]
        detail = report.detail | {"part": number, "parts": len(statuses), "part_status": report.status}
        target_status = message_states.combine_part_statuses(statuses) or "sent"
        updates.append(
            RecipientUpdate(at=at, message=message, position=position, target_status=target_status, detail=detail)
        )
    return updates


async def record_bounce(tx: Tx, id_: str, position: int, report: Report, *, at: int, publisher: Publisher) -> None:
    """Record a bounce to a recipient's signed return address; if the send is not recorded yet, keep the bounce."""
    for message, was_sent, _ in await tx.run("find_recipient", id=id_, position=position):
        if was_sent:
            await record_updates(
                tx, [update_from_report(message, position, report, at)], owner=None, publisher=publisher
            )
        else:
            report_json = msgspec.json.encode(report).decode()
            await tx.run("insert_early_return", message=message, position=position, report=report_json, created_at=at)


def update_from_report(message: int, position: int, report: Report, at: int) -> RecipientUpdate:
    return RecipientUpdate(
        at=at,
        message=message,
        position=position,
        target_status=None if report.status in TIMELINE_ONLY_STATUSES else report.status,
        timeline_note=report.status if report.status in TIMELINE_ONLY_STATUSES else None,
        detail=report.detail,
        suppress=report.suppress,
        domain_absent=report.absent,
    )


async def has_early_reports(tx: Tx, at: int) -> bool:
    return bool(
        await tx.run("any_early_report", since=at - EARLY_REPORT_MS)
        or await tx.run("any_early_return", since=at - EARLY_BOUNCE_MS)
    )


async def apply_early_reports(tx: Tx, *, at: int, publisher: Publisher) -> None:
    """Apply reports that arrived before their send was recorded, if the send is recorded now."""
    rows = await tx.run("pop_early_reports", since=at - EARLY_REPORT_MS)
    reports_by_carrier: dict[str, list[CarrierReport]] = defaultdict(list)
    for _, carrier, carrier_id, report in sorted(rows):
        reports_by_carrier[carrier].append(CarrierReport(carrier_id, msgspec.json.decode(report, type=Report)))
    for carrier, carrier_reports in reports_by_carrier.items():
        await record_carrier_reports(tx, carrier, carrier_reports, at=at, publisher=publisher, skip_known=True)
    bounce_updates = [
        update_from_report(message, position, msgspec.json.decode(report, type=Report), at)
        for message, position, report in await tx.run("pop_early_returns", since=at - EARLY_BOUNCE_MS)
    ]
    if bounce_updates:
        await record_updates(tx, bounce_updates, owner=None, publisher=publisher)


async def quarantine_poison(tx: Tx, *, now: int, clock_offsets: Mapping[int, int], publisher: Publisher) -> int:
    """Fail recipients that crashed CRASHES_MAX workers which processed nothing else; release their credit holds.

    Simulated reports that crash workers are deleted. Returns the number of failed recipients.
    """
    await tx.run("drop_poisoned_reports", deaths=CRASHES_MAX)
    rows = await tx.run("find_poison", deaths=CRASHES_MAX)
    updates = [
        RecipientUpdate(
            at=now + clock_offsets.get(team, 0),
            message=message,
            position=position,
            target_status="failed",
            detail=local_failure("quarantined", f"{CRASHES_MAX} workers died while processing only this message"),
            claim=ClaimToken(key, epoch),
        )
        for key, epoch, message, position, team in rows
    ]
    if not updates:
        return 0
    count = sum(map(bool, await record_updates(tx, updates, owner=None, publisher=publisher)))
    if count:
        await notice_queue.enqueue(tx, dead_letter_notice(count, now))
    return count


async def _read_live_tokens(tx: Tx, updates: Sequence[RecipientUpdate], owner: str | None) -> set[ClaimToken]:
    """Return the claims whose outcome may be recorded.

    Claims are compared by key and epoch, because a batch contains a key twice if a process froze and then claimed the
    same row again. If a carrier accepted the message, that is recorded even if the row was claimed again meanwhile:
    otherwise the message would be sent twice.
    """
    claims = [update.claim for update in updates if update.claim]
    if not claims:
        return set()
    if owner is None:
        return {ClaimToken(*row[:2]) for row in await tx.run("fence_unclaimed", claims=claims)}
    live_tokens = {ClaimToken(*row[:2]) for row in await tx.run("fence", claims=claims, owner=owner)}
    if len(live_tokens) == len(claims):
        return live_tokens
    live_keys = {claim.key for claim in live_tokens}
    lost_claims = {  # each key once
        update.claim.key: (update.claim.key, update.claim.epoch, update.message, update.position)
        for update in updates
        if update.claim and update.accepted and update.claim.key not in live_keys
    }
    if lost_claims:
        live_tokens |= {
            ClaimToken(*row) for row in await tx.run("fence_claimed_again", claims=list(lost_claims.values()))
        }
    return live_tokens


class _PendingRows:
    """Collects the rows that one recording transaction writes."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.events: list[Event] = []
        self.suppressions: list[tuple[Any, ...]] = []
        self.settlements: list[tuple[LockedMessage, str, int]] = []
        # (message, address) of emails that were counted against the quota but not sent
        self.unused_quota: list[tuple[LockedMessage, str]] = []
        self.first_attempts: list[tuple[int, str, int]] = []  # team, address and message of first delivery attempts
        self.opt_outs: list[tuple[int, str, str, str, int]] = []
        self.last_senders: dict[tuple[str, str], tuple[int, int]] = {}  # (phone, channel) → (last sending team, time)
        # By (team, hour)
        self.reputation_counts: dict[tuple[int, int], reputation.Counts] = defaultdict(reputation.Counts)
        # By (team, day, source, provider); the source is a category, a template id or `direct`
        self.complaint_rates: dict[tuple[int, int, str, str], list[int]] = defaultdict(lambda: [0, 0])
        self.transitions: list[stats.Transition] = []
        self.delays: list[tuple[Any, ...]] = []  # delays of emails that we deferred
        self.relayed_delays: list[tuple[Any, ...]] = []  # delays reported by a provider
        self.published_delays: list[tuple[int, int, int]] = []
        self.metric_updates: list[Callable[[], None]] = []  # metric updates to run after the commit

    def add_event(
        self,
        update: RecipientUpdate,
        message: LockedMessage,
        recipient: RecipientRow,
        type_: str,
        status: str | None,
        previous_status: str | None,
        sequence: int | None,
        detail: str | None,
    ) -> None:
        self.events.append(
            Event(
                id=self.publisher.new_id("evt_"),
                team=message.team,
                subject=message.id,
                message=message.key,
                recipient=recipient.given_address,
                sequence=sequence,
                type=type_,
                status=status,
                previous_status=previous_status,
                message_status=message.status,
                detail=detail,
                created_at=update.at,
            )
        )


async def _apply_updates(
    tx: Tx,
    rows: _PendingRows,
    updates: Sequence[RecipientUpdate],
    messages: dict[int, LockedMessage],
    recipients: dict[tuple[int, int], RecipientRow],
) -> None:
    recipients_by_message: dict[int, list[RecipientRow]] = defaultdict(list)
    for recipient in recipients.values():
        recipients_by_message[recipient.message].append(recipient)
    updated_recipients: dict[tuple[int, int], RecipientRow] = {}
    for update in updates:
        recipient = recipients[update.message, update.position]
        is_sms = messages[update.message].channel == "sms"
        if is_sms and recipient.detail and f'"{SENDER}"' in recipient.detail and SENDER not in update.detail:
            sender = msgspec.json.decode(recipient.detail).get(SENDER)  # receipts do not repeat the sender
            update = replace(update, detail=update.detail | {SENDER: sender})
        _apply_update(rows, update, messages[update.message], recipient, recipients_by_message[update.message])
        updated_recipients[update.message, update.position] = recipient
    updated_messages = [messages[key] for key in {update.message for update in updates}]
    await tx.write_many(
        {
            "update_recipients": [
                (
                    recipient.message,
                    recipient.position,
                    recipient.status,
                    recipient.updated_at,
                    recipient.was_late,
                    recipient.carrier,
                    recipient.carrier_id,
                    recipient.detail,
                )
                for recipient in updated_recipients.values()
            ],
            "update_messages": [
                (message.key, message.status, message.charge, message.sequence, message.ended_at)
                for message in updated_messages
            ],
        }
    )
    await _settle_accounts(tx, rows.settlements, rows.unused_quota)
    await _write_suppressions(tx, rows)
    await add_opt_outs(tx, rows.opt_outs, rows.publisher)
    if rows.first_attempts:
        await tx.run("index_recipients", seen=rows.first_attempts)
    if rows.last_senders:
        await tx.run(
            "record_last_senders",
            writers=[(*recipient_key, *last_send) for recipient_key, last_send in sorted(rows.last_senders.items())],
        )
    if ended_batches := {
        message.batch for message in updated_messages if message.batch and message.ended_at is not None
    }:
        rows.events += await batches.finish_batches(tx, ended_batches, rows.publisher, updates[-1].at)
    await _write_delays(tx, rows)
    await rows.publisher.publish(tx, rows.events)
    if rows.reputation_counts:
        await tx.run(
            "count_reputation",
            counts=[(*team_and_hour, *counts) for team_and_hour, counts in sorted(rows.reputation_counts.items())],
        )
        await tx.run(
            "count_complaint_rates",
            counts=[(*source, *totals) for source, totals in sorted(rows.complaint_rates.items())],
        )
    await stats.count_transitions(tx, rows.transitions)
    tx.after_commit += rows.metric_updates


async def _write_delays(tx: Tx, rows: _PendingRows) -> None:
    if rows.delays:
        await tx.run("insert_delays", delays=rows.delays)
    if rows.relayed_delays:  # each key once: PostgreSQL cannot upsert a row twice in one statement
        await tx.run("insert_relayed_delays", delays=list({row[:2]: row for row in rows.relayed_delays}.values()))
    if rows.published_delays:
        await tx.run("settle_delays", delays=rows.published_delays)


def _remove_sender(detail: str | None) -> str | None:
    if not detail or f'"{SENDER}"' not in detail:
        return detail
    return encode_detail({name: value for name, value in msgspec.json.decode(detail).items() if name != SENDER})


def encode_detail(detail: dict[str, Any]) -> str | None:
    return msgspec.json.encode(detail).decode() if detail else None


def _apply_update(
    rows: _PendingRows,
    update: RecipientUpdate,
    message: LockedMessage,
    recipient: RecipientRow,
    all_recipients: list[RecipientRow],
) -> None:
    """Apply an update to a recipient and its message; collect the rows to write for its consequences."""
    detail, previous_detail = encode_detail(update.detail), recipient.detail
    recipient.updated_at = update.at
    if update.claim and recipient.carrier is None:
        rows.first_attempts.append((message.team, recipient.address, message.key))
        if message.channel != "email" and (update.carrier or update.target_status != "failed"):
            rows.last_senders[recipient.address, message.channel] = (message.team, update.at)
    recipient.carrier = update.carrier or recipient.carrier
    recipient.carrier_id = update.carrier_id or recipient.carrier_id
    if update.timeline_note in (None, DEFERRED):
        recipient.detail = detail or recipient.detail
    # After a first delivery attempt a recipient is no longer queued, even if the attempt was deferred.
    target_status = recipient.status if update.timeline_note else update.target_status or "sending"
    path = message_states.transition_path(
        message.channel, recipient.status, target_status, late_receipt_used=bool(recipient.was_late)
    )
    rows.transitions.append((message.team, message.channel, update.at, recipient.status, path))
    is_real = message.sandbox != CAPTURED and not magic_recipients.is_magic(recipient.address)
    if path:
        _count_transition(rows, update, message, recipient, path, previous_detail, is_real=is_real)
    for status in path:
        previous_status, recipient.status = recipient.status, status
        if previous_status == "failed":
            recipient.was_late = 1
        derived = message_states.derive_message_status(
            message.channel, frozenset([other.status for other in all_recipients])
        )
        message.status = message_states.furthest_status(message.channel, message.status, derived)
        message.sequence += 1
        type_ = event.event_type(message.channel, status)
        rows.add_event(update, message, recipient, type_, status, previous_status, message.sequence, detail)
    if not path or not update.target_status or update.timeline_note or update.delay or update.retry:
        _add_timeline_entries(rows, update, message, recipient, detail, has_transition=bool(path))
    is_ended = not [
        other
        for other in all_recipients
        if other.status not in message_states.FINAL_STATES and not is_erased(other.address)
    ]
    message.ended_at = update.at if is_ended else None
    if message.charge == "held" and (update.accepted or is_ended):
        kind, message.charge = ("capture", "captured") if update.accepted else ("release", "released")
        rows.settlements.append((message, kind, update.at))
    if path and path[-1] == "failed":
        _collect_failure(rows, update, message, recipient, is_real=is_real)
    # A late report also suppresses the address of a recipient that has already failed. Any other report without a new
    # state suppresses nothing, because a user may have removed the suppression that an earlier report caused.
    if update.suppress and (path or recipient.status == "failed") and is_real:
        rows.suppressions.append(
            (message.team, recipient.address, recipient.given_address, update.suppress, message.id, detail, update.at)
        )


def _add_timeline_entries(
    rows: _PendingRows,
    update: RecipientUpdate,
    message: LockedMessage,
    recipient: RecipientRow,
    detail: str | None,
    *,
    has_transition: bool,
) -> None:
    """Add the timeline entries of an update in addition to the new status: ignored, deferred and delayed."""
    status = recipient.status
    if update.timeline_note and update.timeline_note != event.DELAYED:
        rows.add_event(update, message, recipient, update.timeline_note, None, status, None, detail)
    elif not update.timeline_note and (not has_transition or not update.target_status) and not update.is_repeat:
        # A report without effect, or a deferred send: only the timeline gets an entry.
        type_ = "ignored" if update.target_status else DEFERRED
        rows.add_event(update, message, recipient, type_, update.target_status, status, None, detail)
    if update.delay:
        message.sequence += 1
        event_detail = encode_detail(update.detail | {event.DELAY: update.delay})
        rows.add_event(update, message, recipient, event.DELAYED, status, status, message.sequence, event_detail)
    if message.channel == "email" and (update.retry or update.timeline_note == DEFERRED):
        _schedule_delay_event(rows, update)


def _collect_failure(
    rows: _PendingRows, update: RecipientUpdate, message: LockedMessage, recipient: RecipientRow, *, is_real: bool
) -> None:
    """Collect the email quota to refund for a failed recipient, or the opt-out that the carrier reported."""
    if message.channel == "email":
        if is_real and not message.sandbox and update.detail.get("reason") in UNUSED_QUOTA_REASONS:
            rows.unused_quota.append((message, recipient.address))
    elif (opt_out_reason := reported_opt_out(update.detail)) and not magic_recipients.is_magic(recipient.address):
        rows.opt_outs.append((message.team, recipient.address, message.channel, opt_out_reason, update.at))


def _schedule_delay_event(rows: _PendingRows, update: RecipientUpdate) -> None:
    """Schedule the event `email.delayed` of a deferred email, or record that this update publishes the event."""
    delay_key = (update.message, update.position, update.at)
    due_at = update.at + DELAY_EVENT_AFTER_MS
    if update.claim:
        rows.delays.append((*delay_key, due_at, update.claim.key))
    else:
        rows.relayed_delays.append((*delay_key, due_at, update.detail.get("gives_up_at")))
    if update.delay:
        rows.published_delays.append((update.message, update.position, 1))


def _count_transition(
    rows: _PendingRows,
    update: RecipientUpdate,
    message: LockedMessage,
    recipient: RecipientRow,
    path: Sequence[str],
    previous_detail: str | None,
    *,
    is_real: bool,
) -> None:
    """Update reputation counters and metrics for a recipient's transition to another state."""
    if (
        is_real
        and message.channel == "email"
        and any(
            counted := reputation.count_transitions(
                recipient.status, path, event.is_hard_bounce("bounced", update.detail)
            )
        )
    ):
        team_and_hour = (message.team, update.at - update.at % HOUR_MS)
        rows.reputation_counts[team_and_hour] = rows.reputation_counts[team_and_hour].plus(counted)
        source = message.category or message.template_id or DIRECT
        host = update.detail.get("host")
        if counted.complaints and not host and previous_detail:  # a complaint does not name the host that got the mail
            host = msgspec.json.decode(previous_detail).get("host")
        provider = provider_of_name(recipient.address.rpartition("@")[2])
        if host and provider == OTHER:
            provider = provider_of_name(host)
        totals = rows.complaint_rates[message.team, update.at - update.at % DAY_MS, source, provider]
        totals[0] += counted.sends
        totals[1] += counted.complaints
    final_status = path[-1]
    is_own_failure = final_status == "failed" and "reason" in update.detail  # failed by this service, not by a bounce
    if final_status not in COUNTED_STATES or is_own_failure:
        return
    if not is_real:
        provider = SIMULATOR
    elif message.channel == "email":
        provider = provider_of(recipient.address.rpartition("@")[2], update.detail.get("host"))
    else:
        provider = recipient.carrier or OTHER
    if final_status == "delivered":
        took_s = (update.at - message.created_at) / SECOND_MS
        rows.metric_updates.append(partial(metrics.delivery_duration_s[message.channel, provider].observe, took_s))
    elif message.channel == "email":
        counter = metrics.complaints if final_status == "complained" else metrics.bounces
        rows.metric_updates.append(counter[provider, category_of(final_status, update.detail)].inc)


def settle(account: Account, kind: str, price: int, key_id: str, counted_at: int) -> None:
    """Capture or release a hold; a release also subtracts the price from the spend of an API key with limits."""
    SETTLE_BY_KIND[kind](account, price)
    if kind == "release" and account.key_uses:
        refund_spend(account, key_id, counted_at, price)


async def _settle_accounts(
    tx: Tx, entries: list[tuple[LockedMessage, str, int]], unused: list[tuple[LockedMessage, str]]
) -> None:
    if not entries and not unused:
        return
    accounts = await lock_accounts(
        tx, {message.team for message, _, _ in entries} | {message.team for message, _ in unused}
    )
    for message, kind, _ in entries:
        settle(accounts[message.team], kind, message.price, message.key_id, message.created_at)
    if unused:
        record_rows = await tx.run("records_of", messages=list({(message.key,) for message, _ in unused}))
        options_by_message = {(team, id_): decode_record(record) for team, id_, record in record_rows}
        address_counts = {
            message_key: count_address_uses([*options.to_addresses, *options.cc, *options.bcc])
            for message_key, options in options_by_message.items()
        }
        for message, address in unused:
            count = address_counts[message.team, message.id][address]
            pricing.refund_quota(accounts[message.team], count, pricing.month_of(message.created_at))
    await save_accounts(tx, accounts.values())
    if entries:
        await tx.run(
            "insert_ledger",
            entries=[
                (message.team, kind, message.price, message.id, at, message.hold_number)
                for message, kind, at in entries
            ],
        )


async def _write_suppressions(tx: Tx, rows: _PendingRows) -> None:
    if not rows.suppressions:
        return
    row_by_key = {(row[0], row[1]): row for row in rows.suppressions}
    for team, address in await tx.run("insert_suppressions", suppressions=list(row_by_key.values())):
        rows.events.append(suppression_event(rows.publisher, "suppression.created", row_by_key[team, address]))


def suppression_event(publisher: Publisher, type_: str, row: Sequence[Any], at: int | None = None) -> Event:
    """Return the event `type_` for a suppression. `at`: time of the event; None: time of the suppression.

    `row`: team, address, email, reason, source message, detail, creation time.
    """
    team, address, email, reason, source, detail, created_at = row
    data = SuppressionEventData(
        email=email,
        reason=reason,
        source_message_id=source,
        detail=msgspec.Raw(detail.encode()) if detail else None,
        created_at=timestamp(created_at),
    )
    return Event(
        id=publisher.new_id("evt_"),
        team=team,
        subject=address,
        recipient=address,
        type=type_,
        detail=encode_data(data),
        created_at=created_at if at is None else at,
    )


async def _settle_outbox(tx: Tx, updates: Iterable[RecipientUpdate]) -> None:
    """Delete the outbox rows of finished recipients; reschedule rows for a retry or for the next simulator report."""
    finished_keys, retries, scheduled_reports = [], [], []
    for update in updates:
        if update.claim is None:
            continue
        key = update.claim.key
        if retry := update.retry:
            deferrals = msgspec.json.encode(retry.deferrals).decode()
            counters = (retry.attempt, deferrals, retry.uncertain_carrier, retry.absent_at)
            retries.append((key, retry.due_at, *counters, retry.first_at, retry.held_at))
        elif update.reports:
            reports, due_in_ms = msgspec.json.encode(update.reports).decode(), update.reports[0].after_ms
            schedule_wakeup(tx, update.lane, due_in_ms)
            scheduled_reports.append((key, update.lane, reports, update.at + due_in_ms, update.at))
        else:
            finished_keys.append((key,))
    await tx.write_many(
        {"delete_outbox": finished_keys, "schedule_retry": retries, "schedule_simulated_report": scheduled_reports}
    )
