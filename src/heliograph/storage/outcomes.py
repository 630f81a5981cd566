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
from heliograph.domain.delivery.outcome import NOTES, SENDER, Asked, CarrierReport, DueReport, Report, own
from heliograph.domain.delivery.retry import ABSENT_KEPT_MS, absent_wait
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DEATHS_MAX, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.mail import reputation
from heliograph.domain.mail.delay import TOLD_MS
from heliograph.domain.mail.mailbox_provider import OTHER, SIMULATOR, provider_of
from heliograph.domain.mail.recipients import times_named
from heliograph.domain.operations.erasure import is_erased
from heliograph.domain.operations.notices import dead_letters
from heliograph.domain.phones.carrier_codes import told_opt_out
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import CAUGHT
from heliograph.domain.sending.send_options import read_record
from heliograph.inbound.policy.bounce_category import category_of
from heliograph.inbound.store.opt_outs import list_phones
from heliograph.runtime import metrics
from heliograph.storage import batches, carrier_stats, notice_queue, stats
from heliograph.storage.accept import lock_accounts, save_accounts
from heliograph.storage.engine.database import Tx, note
from heliograph.storage.events import Event, Publisher

# How long a report may arrive before our own record of the send. A mail server may take ten minutes to acknowledge an
# email that has bounced long before.
EARLY_MS = MINUTE_MS
EARLY_RETURN_MS = HOUR_MS

# Reasons of our own for which an email counted against the quota was certainly not sent.
UNUSED = ("canceled", "expired", "suspended", "suppressed", "no_carrier", "out_of_reach", "not_ready")
COUNTED = ("delivered", "bounced", "failed", "complained")
PUT_OFF = "deferred"
RECEIPTS = ("delivered", "read", "failed")
SETTLE = {"capture": pricing.capture, "release": pricing.release}


class Later(msgspec.Struct, frozen=True, kw_only=True):
    """Time and counters of the next delivery attempt."""

    due_at: int
    attempt: int  # delivery attempts with a recorded outcome
    deferrals: dict[str, int] = {}  # count by carrier
    uncertain: str | None = None  # the carrier that may have sent the message
    absent_at: int | None = None  # when the recipient's domain was first reported not to exist
    first_at: int | None = None  # start of the retry period; None keeps the recorded start
    held_at: int | None = None  # original due time, if the message waits for a reason on our side


class HeldClaim(msgspec.Struct, frozen=True, array_like=True):
    """Key and epoch of a claimed outbox row; the epoch changes with every claim (fencing token)."""

    key: int
    epoch: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome for one recipient and the actions that follow from this outcome."""

    at: int
    message: int
    position: int
    wanted: str | None  # the target state; None changes only the timeline
    note: str | None = None  # type of an entry that is added to the timeline only
    delay: dict[str, str | None] | None = None  # data to publish as `email.delayed`
    detail: dict[str, Any] = {}
    suppress: str | None = None
    absent: bool = False  # the recipient's domain is reported not to exist
    accepted: bool = False  # a carrier accepted the message: captures the credit hold
    carrier: str | None = None
    carrier_id: str | None = None
    parts: tuple[str, ...] = ()  # carrier ids of the parts of a long message
    claim: HeldClaim | None = None
    again: Later | None = None
    quiet: bool = False  # still waiting for the same reason: add nothing to the timeline
    reports: Sequence[DueReport] = ()
    lane: str = ""
    asked: Sequence[Asked] = ()

    @classmethod
    def reported(
        cls, claim: HeldClaim, message: int, position: int, reports: Sequence[DueReport], lane: str, at: int
    ) -> Self:
        """Return the change for the first, due report of a simulator; later reports stay scheduled."""
        (_, report), *rest = reports
        return cls(
            at=at,
            message=message,
            position=position,
            claim=claim,
            wanted=report.status,
            detail=event.marked(report.detail),
            suppress=report.suppress,
            reports=rest,
            lane=lane,
        )


class Message(msgspec.Struct):
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
    turn: int
    created_at: int
    batch: str | None
    ended_at: int | None = None


class RecipientRow(msgspec.Struct):
    """Row of the query `recipients_of`."""

    message: int
    position: int
    address: str
    given: str
    status: str
    late: int
    carrier: str | None
    carrier_id: str | None
    detail: str | None
    updated_at: int = 0


async def lock_messages(tx: Tx, keys: Sequence[tuple[int]]) -> dict[int, Message]:
    """Lock messages and return each by key.

    Every transaction locks messages before accounts, which prevents deadlocks.
    """
    return {row[0]: Message(*row) for row in await tx.run("lock_messages", messages=keys)}


async def record(
    tx: Tx, changes: Sequence[Change], *, owner: str | None, publisher: Publisher, held: set[HeldClaim] | None = None
) -> list[bool | Exception]:
    """Write the changes; return False for each change whose claim was lost.

    `held`: claims made in this transaction, which need no fencing query. A change to a deleted message or an erased
    recipient has no effect.
    """
    live = await _fence(tx, changes, owner) if held is None else held
    ours = [c for c in changes if c.claim is None or c.claim in live]
    if not ours:
        return [False] * len(changes)
    keys = [(key,) for key in {c.message for c in ours}]
    messages = await lock_messages(tx, keys)
    recipients = {(row[0], row[1]): RecipientRow(*row) for row in await tx.run("recipients_of", messages=keys)}
    # A report about an erased address would store the address again.
    known = [c for c in ours if c.message in messages and not is_erased(recipients[c.message, c.position].address)]
    if [c for c in known if c.absent]:
        known = await _spare_first_absence(tx, known, messages, recipients)
    await _apply(tx, _Rows(publisher), known, messages, recipients)
    parts = {  # each id once: PostgreSQL cannot upsert a row twice in one statement
        (c.carrier, id_): (c.carrier, id_, c.message, c.position, number)
        for c in ours
        for number, id_ in enumerate(c.parts, start=1)
    }
    if parts:
        await tx.run("insert_parts", parts=list(parts.values()))
    await _settle_outbox(tx, ours)
    if [c for c in known if c.accepted and c.detail.get(event.SIMULATED) and messages[c.message].sandbox]:
        note(tx, INBOX)
    await carrier_stats.count(tx, owner or "", [(c.at, one) for c in ours for one in c.asked])
    return [c.claim is None or c.claim in live for c in changes]


async def _spare_first_absence(
    tx: Tx, changes: Sequence[Change], messages: dict[int, Message], recipients: dict[tuple[int, int], RecipientRow]
) -> list[Change]:
    """Fail messages to a domain first reported absent only recently, without suppressing the address (contract 6)."""

    def place(change: Change) -> tuple[int, str]:
        address = recipients[change.message, change.position].address
        return messages[change.message].team, address.rpartition("@")[2]

    told = {place(c): c.at for c in changes if c.absent}
    rows = await tx.run("note_absent", told=[(*where, at) for where, at in told.items()], kept=ABSENT_KEPT_MS)
    first_at = {(team, domain): at for team, domain, at in rows}
    return [
        replace(c, wanted="failed", suppress=None) if c.absent and absent_wait(first_at[place(c)], c.at) else c
        for c in changes
    ]


async def report_by_carrier(
    tx: Tx,
    carrier: str,
    reports: Sequence[CarrierReport],
    *,
    at: int,
    publisher: Publisher,
    early: bool = False,
    skip_known: bool = False,
) -> list[bool | Exception]:
    """Apply reports that are keyed by the carrier's ids; return False for each id unknown for this carrier.

    `early`: store reports with unknown ids for a while, because the send may not be recorded yet. `skip_known`: skip
    reports that the timeline already contains verbatim.
    """
    ids = [(carrier_id,) for carrier_id in {carrier_id for carrier_id, _ in reports}]
    places = {row[0]: (row[1], row[2]) for row in await tx.run("places_by_carrier_id", carrier=carrier, ids=ids)}
    changes = [to_change(*places[carrier_id], report, at) for carrier_id, report in reports if carrier_id in places]
    if skip_known:
        changes = await _new(tx, changes)
    parts = await tx.run("parts_by_carrier_id", carrier=carrier, ids=ids)
    places |= {row[0]: (row[1], row[2]) for row in parts}
    changes += await _fold(tx, carrier, reports, {row[0]: row for row in parts}, at)
    if changes:
        await record(tx, changes, owner=None, publisher=publisher)
    known = places.keys() | await hear_of_codes(tx, carrier, [one for one in reports if one[0] not in places], at)
    unknown = [(carrier, id_, msgspec.json.encode(r).decode(), at) for id_, r in reports if id_ not in known]
    if early and unknown:
        await tx.run("insert_early_reports", reports=unknown)
    return [carrier_id in known for carrier_id, _ in reports]


async def hear_of_codes(tx: Tx, carrier: str, reports: Sequence[CarrierReport], at: int) -> set[str]:
    """Record delivery receipts of verification codes and return the carrier ids that matched.

    A delivered code stops the fallback to the next channel; a failed code starts the fallback now.
    """
    receipts = {id_: at if report.status == "failed" else None for id_, report in reports if report.status in RECEIPTS}
    if not receipts:
        return set()
    return {row[0] for row in await tx.run("note_receipts", carrier=carrier, receipts=list(receipts.items()))}


async def _new(tx: Tx, changes: Sequence[Change]) -> list[Change]:
    """Return the changes that the timeline does not contain yet, without duplicates."""
    keys = [(key,) for key in {c.message for c in changes}]
    await lock_messages(tx, keys)
    rows = await tx.run("told_of", messages=keys)
    known = {(message_, status, _without_sender(detail)) for message_, status, detail in rows}
    new = {(c.message, c.wanted, written(c.detail)): c for c in changes}
    return [change for words, change in new.items() if words not in known]


async def _fold(tx: Tx, carrier: str, reports: Sequence[CarrierReport], parts: dict[str, Any], at: int) -> list[Change]:
    """Return one change per receipt of a message part, to the combined state of all parts known so far."""
    known = [(id_, report) for id_, report in reports if id_ in parts]
    if not known:
        return []
    finished = {id_: report.status for id_, report in known if message_states.is_final(report.status)}
    if finished:
        await tx.run("update_parts", parts=[(carrier, id_, status) for id_, status in finished.items()])
    states: dict[tuple[int, int], list[str | None]] = defaultdict(list)
    for message_, position, status in await tx.run(
        "parts_of", places=list({tuple(row[1:3]) for row in parts.values()})
    ):
        states[message_, position].append(status)
    changes = []
    for id_, report in known:
        _, message_, position, number = parts[id_]
        of = states[message_, position]
        detail = report.detail | {"part": number, "parts": len(of), "part_status": report.status}
        wanted = message_states.fold_parts(of) or "sent"
        changes.append(Change(at=at, message=message_, position=position, wanted=wanted, detail=detail))
    return changes


async def report_returned(tx: Tx, id_: str, position: int, report: Report, *, at: int, publisher: Publisher) -> None:
    """Record a bounce that arrived at the signed return address of one recipient.

    The report is stored for later if the send is not recorded yet.
    """
    for message_, handed_over, _ in await tx.run("place_of", id=id_, position=position):
        if handed_over:
            await record(tx, [to_change(message_, position, report, at)], owner=None, publisher=publisher)
        else:
            kept = msgspec.json.encode(report).decode()
            await tx.run("insert_early_return", message=message_, position=position, report=kept, created_at=at)


def to_change(message_: int, position: int, report: Report, at: int) -> Change:
    return Change(
        at=at,
        message=message_,
        position=position,
        wanted=None if report.status in NOTES else report.status,
        note=report.status if report.status in NOTES else None,
        detail=report.detail,
        suppress=report.suppress,
        absent=report.absent,
    )


async def any_early(tx: Tx, at: int) -> bool:
    return bool(
        await tx.run("any_early_report", since=at - EARLY_MS)
        or await tx.run("any_early_return", since=at - EARLY_RETURN_MS)
    )


async def apply_early(tx: Tx, *, at: int, publisher: Publisher) -> None:
    """Apply reports that arrived before the record of their send, if the send is recorded now."""
    rows = await tx.run("take_early_reports", since=at - EARLY_MS)
    reports: dict[str, list[CarrierReport]] = defaultdict(list)
    for _, carrier, carrier_id, report in sorted(rows):
        reports[carrier].append(CarrierReport(carrier_id, msgspec.json.decode(report, type=Report)))
    for carrier, given in reports.items():
        await report_by_carrier(tx, carrier, given, at=at, publisher=publisher, skip_known=True)
    returned = [
        to_change(message_, position, msgspec.json.decode(report, type=Report), at)
        for message_, position, report in await tx.run("take_early_returns", since=at - EARLY_RETURN_MS)
    ]
    if returned:
        await record(tx, returned, owner=None, publisher=publisher)


async def quarantine(tx: Tx, *, now: int, moved: Mapping[int, int], publisher: Publisher) -> int:
    """Fail messages whose worker died three times while processing only that message; release their holds (P14).

    Returns the number of failed messages.
    """
    await tx.run("drop_poisoned_reports", deaths=DEATHS_MAX)
    rows = await tx.run("find_poison", deaths=DEATHS_MAX)
    changes = [
        Change(
            at=now + moved.get(team, 0),
            message=message_,
            position=position,
            wanted="failed",
            detail=own("quarantined", f"{DEATHS_MAX} workers died while it was alone in their hands"),
            claim=HeldClaim(key, epoch),
        )
        for key, epoch, message_, position, team in rows
    ]
    if not changes:
        return 0
    count = sum(map(bool, await record(tx, changes, owner=None, publisher=publisher)))
    if count:
        await notice_queue.note(tx, dead_letters(count, now))
    return count


async def _fence(tx: Tx, changes: Sequence[Change], owner: str | None) -> set[HeldClaim]:
    """Return the claims whose outcome may be recorded.

    Claims are compared with their epochs: a batch contains a key twice if a process froze and then claimed the same row
    again. A message that a carrier accepted counts even if the message was claimed again since, so that it is not sent
    twice.
    """
    claims = [c.claim for c in changes if c.claim]
    if not claims:
        return set()
    if owner is None:
        return {HeldClaim(*row[:2]) for row in await tx.run("fence_unclaimed", claims=claims)}
    live = {HeldClaim(*row[:2]) for row in await tx.run("fence", claims=claims, owner=owner)}
    if len(live) == len(claims):
        return live
    kept = {claim.key for claim in live}
    lost = {  # each key once
        c.claim.key: (c.claim.key, c.claim.epoch, c.message, c.position)
        for c in changes
        if c.claim and c.accepted and c.claim.key not in kept
    }
    if lost:
        live |= {HeldClaim(*row) for row in await tx.run("fence_claimed_again", claims=list(lost.values()))}
    return live


class _Rows:
    """Collects the rows of one recording transaction."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.events: list[Event] = []
        self.suppressions: list[tuple[Any, ...]] = []
        self.money: list[tuple[Message, str, int]] = []
        self.unused: list[tuple[Message, str]] = []  # emails counted against the quota but not sent, with the address
        self.seen: list[tuple[int, str, int]] = []  # team, address and message of first delivery attempts
        self.opt_outs: list[tuple[int, str, str, str, int]] = []
        self.writers: dict[tuple[str, str], tuple[int, int]] = {}  # (phone, channel) → (last sending team, time)
        self.counts: dict[tuple[int, int], reputation.Counts] = defaultdict(reputation.Counts)  # by team and hour
        self.steps: list[stats.Step] = []
        self.delays: list[tuple[Any, ...]] = []  # delays of emails that we deferred
        self.relayed_delays: list[tuple[Any, ...]] = []  # delays reported by a provider
        self.told_delays: list[tuple[int, int, int]] = []
        self.told: list[Callable[[], None]] = []  # metric updates to run after the commit

    def tell(
        self,
        change: Change,
        moved: Message,
        recipient: RecipientRow,
        type_: str,
        status: str | None,
        previous: str | None,
        sequence: int | None,
        detail: str | None,
    ) -> None:
        self.events.append(
            Event(
                id=self.publisher.new_id("evt_"),
                team=moved.team,
                subject=moved.id,
                message=moved.key,
                recipient=recipient.given,
                sequence=sequence,
                type=type_,
                status=status,
                previous_status=previous,
                message_status=moved.status,
                detail=detail,
                created_at=change.at,
            )
        )


async def _apply(
    tx: Tx,
    rows: _Rows,
    changes: Sequence[Change],
    messages: dict[int, Message],
    recipients: dict[tuple[int, int], RecipientRow],
) -> None:
    by_message: dict[int, list[RecipientRow]] = defaultdict(list)
    for recipient in recipients.values():
        by_message[recipient.message].append(recipient)
    touched: dict[tuple[int, int], RecipientRow] = {}
    for change in changes:
        found = recipients[change.message, change.position]
        is_sms = messages[change.message].channel == "sms"
        if is_sms and found.detail and f'"{SENDER}"' in found.detail and SENDER not in change.detail:
            used = msgspec.json.decode(found.detail).get(SENDER)  # receipts do not repeat the sender
            change = replace(change, detail=change.detail | {SENDER: used})
        _move(rows, change, messages[change.message], found, by_message[change.message])
        touched[change.message, change.position] = found
    moved = [messages[key] for key in {c.message for c in changes}]
    await tx.write(
        {
            "update_recipients": [
                (r.message, r.position, r.status, r.updated_at, r.late, r.carrier, r.carrier_id, r.detail)
                for r in touched.values()
            ],
            "update_messages": [(m.key, m.status, m.charge, m.sequence, m.ended_at) for m in moved],
        }
    )
    await _move_money(tx, rows.money, rows.unused)
    await _suppress(tx, rows)
    await list_phones(tx, rows.opt_outs, rows.publisher)
    if rows.seen:
        await tx.run("insert_seen", seen=rows.seen)
    if rows.writers:
        await tx.run("note_writers", writers=[(*to, *by) for to, by in sorted(rows.writers.items())])
    if ended := {m.batch for m in moved if m.batch and m.ended_at is not None}:
        rows.events += await batches.finish(tx, ended, rows.publisher, changes[-1].at)
    await _note_delays(tx, rows)
    await rows.publisher.publish(tx, rows.events)
    if rows.counts:
        await tx.run("count_reputation", counts=[(*place, *counts) for place, counts in sorted(rows.counts.items())])
    await stats.count(tx, rows.steps)
    tx.afterwards += rows.told


async def _note_delays(tx: Tx, rows: _Rows) -> None:
    if rows.delays:
        await tx.run("insert_delays", delays=rows.delays)
    if rows.relayed_delays:  # each key once: PostgreSQL cannot upsert a row twice in one statement
        await tx.run("insert_relayed_delays", delays=list({row[:2]: row for row in rows.relayed_delays}.values()))
    if rows.told_delays:
        await tx.run("settle_delays", delays=rows.told_delays)


def _without_sender(detail: str | None) -> str | None:
    if not detail or f'"{SENDER}"' not in detail:
        return detail
    return written({name: value for name, value in msgspec.json.decode(detail).items() if name != SENDER})


def written(detail: dict[str, Any]) -> str | None:
    return msgspec.json.encode(detail).decode() if detail else None


def _move(rows: _Rows, change: Change, moved: Message, recipient: RecipientRow, everyone: list[RecipientRow]) -> None:
    """Apply a change to a recipient and its message; collect the rows to write for its consequences."""
    detail = written(change.detail)
    recipient.updated_at = change.at
    if change.claim and recipient.carrier is None:
        rows.seen.append((moved.team, recipient.address, moved.key))
        if moved.channel != "email":
            rows.writers[recipient.address, moved.channel] = (moved.team, change.at)
    recipient.carrier = change.carrier or recipient.carrier
    recipient.carrier_id = change.carrier_id or recipient.carrier_id
    if change.note in (None, PUT_OFF):
        recipient.detail = detail or recipient.detail
    # After a first delivery attempt a recipient is no longer queued, even if the attempt was deferred.
    wanted = recipient.status if change.note else change.wanted or "sending"
    path = message_states.move(moved.channel, recipient.status, wanted, late_used=bool(recipient.late))
    rows.steps.append((moved.team, moved.channel, change.at, recipient.status, path))
    is_real = moved.sandbox != CAUGHT and not magic_recipients.is_magic(recipient.address)
    if path:
        _count(rows, change, moved, recipient, path, is_real=is_real)
    for status in path:
        previous, recipient.status = recipient.status, status
        if previous == "failed":
            recipient.late = 1
        derived = message_states.derive(moved.channel, frozenset([r.status for r in everyone]))
        moved.status = message_states.never_regress(moved.channel, moved.status, derived)
        moved.sequence += 1
        type_ = event.event_type(moved.channel, status)
        rows.tell(change, moved, recipient, type_, status, previous, moved.sequence, detail)
    if not path or not change.wanted or change.note or change.delay or change.again:
        _remark(rows, change, moved, recipient, detail, has_moved=bool(path))
    ended = not [r for r in everyone if r.status not in message_states.FINAL and not is_erased(r.address)]
    moved.ended_at = change.at if ended else None
    if moved.charge == "held" and (change.accepted or ended):
        kind, moved.charge = ("capture", "captured") if change.accepted else ("release", "released")
        rows.money.append((moved, kind, change.at))
    if path and path[-1] == "failed":
        _fail(rows, change, moved, recipient, is_real=is_real)
    # Also suppress if the recipient had already failed. Do not repeat a suppression for a known state: a user may have
    # removed it.
    if change.suppress and (path or recipient.status == "failed") and is_real:
        rows.suppressions.append(
            (moved.team, recipient.address, recipient.given, change.suppress, moved.id, detail, change.at)
        )


def _remark(
    rows: _Rows, change: Change, moved: Message, recipient: RecipientRow, detail: str | None, *, has_moved: bool
) -> None:
    """Add the timeline entries of a change that accompany a new status, or that appear without a new status."""
    status = recipient.status
    if change.note and change.note != event.DELAYED:
        rows.tell(change, moved, recipient, change.note, None, status, None, detail)
    elif not change.note and (not has_moved or not change.wanted) and not change.quiet:
        # A report that changes nothing, or a send to be retried: only the timeline gets an entry.
        type_ = "ignored" if change.wanted else PUT_OFF
        rows.tell(change, moved, recipient, type_, change.wanted, status, None, detail)
    if change.delay:
        moved.sequence += 1
        words = written(change.detail | {event.DELAY: change.delay})
        rows.tell(change, moved, recipient, event.DELAYED, status, status, moved.sequence, words)
    if moved.channel == "email" and (change.again or change.note == PUT_OFF):
        _put_off(rows, change)


def _fail(rows: _Rows, change: Change, moved: Message, recipient: RecipientRow, *, is_real: bool) -> None:
    """Collect the consequences of a failure: unused quota to return, or a phone that has opted out."""
    if moved.channel == "email":
        if is_real and not moved.sandbox and change.detail.get("reason") in UNUSED:
            rows.unused.append((moved, recipient.address))
    elif (listed := told_opt_out(change.detail)) and not magic_recipients.is_magic(recipient.address):
        rows.opt_outs.append((moved.team, recipient.address, moved.channel, listed, change.at))


def _put_off(rows: _Rows, change: Change) -> None:
    """Schedule the event `email.delayed` for a deferred email; mark the delay as published if it is published now."""
    place = (change.message, change.position, change.at)
    due_at = change.at + TOLD_MS
    if change.claim:
        rows.delays.append((*place, due_at, change.claim.key))
    else:
        rows.relayed_delays.append((*place, due_at, change.detail.get("gives_up_at")))
    if change.delay:
        rows.told_delays.append((change.message, change.position, 1))


def _count(
    rows: _Rows, change: Change, moved: Message, recipient: RecipientRow, path: Sequence[str], *, is_real: bool
) -> None:
    """Update reputation counters and metrics for a recipient's state transition."""
    if (
        is_real
        and moved.channel == "email"
        and any(counted := reputation.tally(recipient.status, path, event.is_hard("bounced", change.detail)))
    ):
        place = (moved.team, change.at - change.at % HOUR_MS)
        rows.counts[place] = rows.counts[place].plus(counted)
    ends = path[-1]
    if ends not in COUNTED or (ends == "failed" and "reason" in change.detail):  # our own failures are not bounces
        return
    if not is_real:
        who = SIMULATOR
    elif moved.channel == "email":
        who = provider_of(recipient.address.rpartition("@")[2], change.detail.get("host"))
    else:
        who = recipient.carrier or OTHER
    if ends == "delivered":
        took_s = (change.at - moved.created_at) / SECOND_MS
        rows.told.append(partial(metrics.delivery_s[moved.channel, who].observe, took_s))
    elif moved.channel == "email":
        count = metrics.complained if ends == "complained" else metrics.bounced
        rows.told.append(count[who, category_of(ends, change.detail)].inc)


async def _move_money(tx: Tx, entries: list[tuple[Message, str, int]], unused: list[tuple[Message, str]]) -> None:
    if not entries and not unused:
        return
    accounts = await lock_accounts(tx, {m.team for m, _, _ in entries} | {m.team for m, _ in unused})
    for moved, kind, _ in entries:
        SETTLE[kind](accounts[moved.team], moved.price)
    if unused:
        found = await tx.run("records_of", messages=list({(moved.key,) for moved, _ in unused}))
        records = {(team, id_): read_record(record) for team, id_, record in found}
        named = {who: times_named([*one.to_addresses, *one.cc, *one.bcc]) for who, one in records.items()}
        for moved, address in unused:
            times = named[moved.team, moved.id][address]
            pricing.give_quota_back(accounts[moved.team], times, pricing.month_of(moved.created_at))
    await save_accounts(tx, accounts.values())
    if entries:
        await tx.run("insert_ledger", entries=[(m.team, kind, m.price, m.id, at, m.turn) for m, kind, at in entries])


async def _suppress(tx: Tx, rows: _Rows) -> None:
    if not rows.suppressions:
        return
    distinct = {(row[0], row[1]): row for row in rows.suppressions}
    for team, address in await tx.run("insert_suppressions", suppressions=list(distinct.values())):
        rows.events.append(suppression_event(rows.publisher, "suppression.created", distinct[team, address]))


def suppression_event(publisher: Publisher, type_: str, row: Sequence[Any], at: int | None = None) -> Event:
    """Return the event `type_` for a suppression.

    `row`: team, address, email, reason, source message, detail, creation time. `at`: time of the event if later than
    the creation.
    """
    team, address, email, reason, source, detail, made_at = row
    data = {
        "email": email,
        "reason": reason,
        "source_message_id": source,
        "detail": msgspec.Raw(detail.encode()) if detail else None,
        "created_at": timestamp(made_at),
    }
    return Event(
        id=publisher.new_id("evt_"),
        team=team,
        subject=address,
        recipient=address,
        type=type_,
        detail=msgspec.json.encode(data).decode(),
        created_at=made_at if at is None else at,
    )


async def _settle_outbox(tx: Tx, changes: Iterable[Change]) -> None:
    """Delete finished outbox rows; reschedule rows that have a retry or further simulator reports."""
    done, later, promised = [], [], []
    for change in changes:
        if change.claim is None:
            continue
        key = change.claim.key
        if again := change.again:
            deferrals = msgspec.json.encode(again.deferrals).decode()
            tried = (again.attempt, deferrals, again.uncertain, again.absent_at)
            later.append((key, again.due_at, *tried, again.first_at, again.held_at))
        elif change.reports:
            reports, in_ms = msgspec.json.encode(change.reports).decode(), change.reports[0].after_ms
            note(tx, change.lane, in_ms)
            promised.append((key, change.lane, reports, change.at + in_ms, change.at))
        else:
            done.append((key,))
    await tx.write({"delete_outbox": done, "postpone": later, "promise": promised})
