"""Stores verifications: start (limits, credit hold), resend, finish (charge, response) and check (five guesses)."""

import hmac
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from heliograph.domain.delivery.lanes import INBOX
from heliograph.domain.delivery.outcome import CarrierAttempt
from heliograph.domain.event_data import VerificationEventData, encode_data
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import (
    DAY_MS,
    IDEMPOTENCY_LEASE_MS,
    IDEMPOTENCY_WINDOW_MS,
    MINUTE_MS,
    VERIFICATION_MS,
)
from heliograph.domain.refusals import (
    KeyLimitReached,
    Refusal,
    VerificationEnded,
    VerificationNotFound,
    VerifyRateLimited,
)
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import CAPTURED, IdempotencyKey, SendResult
from heliograph.domain.sending.key_limits import count_use
from heliograph.domain.sending.pricing import Account
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import Channel, Key
from heliograph.domain.verify import verification
from heliograph.domain.verify.conversion import Tally, areas, hour_of
from heliograph.domain.verify.verification import CANCELED, CheckResult
from heliograph.runtime import metrics
from heliograph.runtime.clock import Clock
from heliograph.storage import carrier_stats, conversion
from heliograph.storage.accept import (
    enqueue_key_limit_notices,
    find_stored_responses,
    insert_idempotency_keys,
    lock_accounts,
    publish_low_credit,
    replay_response,
    save_accounts,
)
from heliograph.storage.engine.database import Database, Tx, schedule_wakeup
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.events import Event, Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.outcomes import settle
from heliograph.storage.search import message_search
from heliograph.storage.search.message_search import Search, SearchPage, VerificationRow
from heliograph.storage.tags import tag_rows

log = structlog.get_logger()

PREFIX_WINDOW_MS = 10 * MINUTE_MS


class VelocityWindow(msgspec.Struct):
    """Recent verifications of a phone number and of its prefix, for the velocity limits; starts are oldest first."""

    phone_starts: list[int]
    prefix_starts: list[int]
    wrong_today: int  # wrong codes since the start of the day
    area_tallies: list[Tally]  # counters of the last day, ordered as `areas(phone)`
    is_known_phone: bool  # the phone completed a verification within 30 days


class Start(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    key_id: str
    phone: str  # phone number, or a normalised email address
    given_address: str | None = None  # the email address as the caller wrote it
    prefix: str
    channels: Sequence[str] = ("sms",)  # in fallback order
    is_magic: bool
    sandbox: bool
    captured: bool = False  # the code is sent only to simulators, even for a real recipient
    salt: str
    digest: str
    price: int
    created_at: int
    expires_at: int
    credit_low: int = 0  # `credit.low` is published when the credit falls below this amount; 0: never
    sandbox_limit: int | None = None  # maximum per day over real carriers; None if not counted
    owner: str  # the process that will call the carrier
    check: Callable[[VelocityWindow], None]  # raises if a limit is reached
    restricted_key: Key | None = None  # the caller's key if it has restrictions
    idempotency_key: IdempotencyKey | None = None
    added: ExtraFields = ExtraFields()


class Resend(msgspec.Struct, frozen=True, kw_only=True):
    """Request to send the same code again, under the same limits as a start."""

    start: Start  # repeated start, with the price 0
    digest: Callable[[str], str]  # salt → digest of the code that would be sent


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    key_id: str
    status: str  # pending or failed; a verification whose code was sent before stays pending
    error_message: str | None
    response: bytes
    at: int
    owner: str
    idempotency_key: IdempotencyKey | None = None
    is_simulated: bool = False  # a simulator accepted the code; no real recipient got it
    attempts: Sequence[CarrierAttempt] = ()
    channel: str = "sms"  # the last channel used
    next_at: int | None = None  # when to use the next channel, unless a receipt arrives first
    carrier: str | None = None  # the carrier that will send the receipt
    carrier_id: str | None = None
    counted_at: int | None = None  # when the start was counted; None: a failure does not change the counter


class Check(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    at: int
    digest: Callable[[str], str]  # salt → digest of the code to check


class _VerificationRow(msgspec.Struct, frozen=True):
    team: int
    id: str
    status: str
    wrong_guesses: int
    salt: str
    digest: str
    expires_at: int
    price: int
    charge: str
    owner: str | None
    phone: str
    given_address: str | None
    channel: str
    sandbox: int
    lease_until: int | None
    was_sent: int
    added: str
    key_id: str


class DueCode(msgspec.Struct, frozen=True):
    """A code that is due to be sent over its next channel."""

    team: int
    id: str
    key_id: str
    phone: str
    to: str
    channel: Channel
    channels: str
    expires_at: int
    sandbox: int
    added: str  # optional fields of the request: tags, metadata, locale; as JSON


async def start_verifications(
    tx: Tx, items: Sequence[Start], publisher: Publisher, leases: Leases
) -> list[SendResult[Any] | None | Exception]:
    """Start each verification, unless a limit is reached.

    Returns for each item: None if the caller must now send the code, a stored response if the idempotency key was used
    before, or the refusal.
    """
    accounts = await lock_accounts(tx, {item.team for item in items})
    credit_before = {team: account.available for team, account in accounts.items()}
    stored_responses = await find_stored_responses(
        tx, [(item.key_id, item.idempotency_key.hash) for item in items if item.idempotency_key], leases
    )
    recent_starts = await _read_recent_starts(tx, items)
    results: list[SendResult[Any] | None | Exception] = []
    started_items: list[Start] = []
    limited_keys: dict[str, tuple[int, int]] = {}
    for item in items:
        account_before = msgspec.structs.replace(accounts[item.team])
        try:
            if item.idempotency_key and (
                stored_response := replay_response(stored_responses, item.key_id, item.idempotency_key, item.created_at)
            ):
                results.append(stored_response)
                continue
            _check_start(item, recent_starts, accounts[item.team])
        except Refusal as refusal:
            accounts[item.team] = account_before
            results.append(refusal)
            if isinstance(refusal, KeyLimitReached):
                limited_keys[item.key_id] = (item.team, item.created_at)
            continue
        recent_starts.add(item)
        started_items.append(item)
        results.append(None)
    if limited_keys:
        await enqueue_key_limit_notices(tx, limited_keys)
    if started_items:
        lease_until = await leases.deadline(tx, IDEMPOTENCY_LEASE_MS)
        await insert_idempotency_keys(
            tx,
            [_idempotency_row(item, lease_until) for item in started_items if item.idempotency_key],
            stored_responses,
            leases,
        )
        await _insert_started(tx, started_items, accounts, lease_until)
        count_outcome(tx, "started", len(started_items))
        thresholds = {item.team: (item.credit_low, item.created_at) for item in started_items}
        await publish_low_credit(tx, publisher, credit_before, accounts, thresholds)
    return results


def count_outcome(tx: Tx, outcome: str, count: int = 1) -> None:
    """Count `outcome` in the metrics after the commit."""
    tx.after_commit.append(lambda: metrics.verifications[outcome].inc(count))


async def dry_run(tx: Tx, item: Start) -> None:
    """Check limits and credit as `start_verifications` does, without writing anything."""
    accounts = await lock_accounts(tx, {item.team})
    _check_start(item, await _read_recent_starts(tx, [item]), accounts[item.team])


async def resend_code(tx: Tx, item: Resend, leases: Leases) -> SendResult[Any] | None:
    """Count a resend and lease the verification to this process, so that the caller can send the code again.

    Returns the stored response if the idempotency key was used before, otherwise None. Raises a Refusal if the
    verification has ended, its code is being sent, or a limit is reached.
    """
    new_start, now = item.start, item.start.created_at
    row = (await _lock_verifications(tx, [(new_start.team, new_start.id)]))[new_start.team, new_start.id]
    keys = [(new_start.key_id, new_start.idempotency_key.hash)] if new_start.idempotency_key else []
    stored_responses = await find_stored_responses(tx, keys, leases)
    if new_start.idempotency_key and (
        replay := replay_response(stored_responses, new_start.key_id, new_start.idempotency_key, now)
    ):
        return replay
    # After the master secret was replaced, the digest differs, and a new verification is needed.
    is_same_code = hmac.compare_digest(row.digest, item.digest(row.salt))
    if verification.current_status(row.status, now, row.expires_at) != "pending" or not is_same_code:
        raise VerificationEnded(param="id")
    if row.owner is not None:
        raise VerifyRateLimited("This code is being sent right now.", param="id", retry_after=1)
    accounts = await lock_accounts(tx, {new_start.team})
    _check_start(new_start, await _read_recent_starts(tx, [new_start]), accounts[new_start.team])
    await save_accounts(tx, accounts.values())
    lease_until = await leases.deadline(tx, IDEMPOTENCY_LEASE_MS)
    await insert_idempotency_keys(
        tx, [_idempotency_row(new_start, lease_until)] if new_start.idempotency_key else [], stored_responses, leases
    )
    lease = {"owner": new_start.owner, "lease_until": lease_until}
    await tx.run("resend_verification", team=new_start.team, id=new_start.id, at=str(now), **lease)
    await conversion.count_verifications(tx, [(new_start.team, new_start.phone, now, 1, 0)])
    return None


async def cancel_verification(tx: Tx, team: int, id_: str, now: int, publisher: Publisher) -> None:
    """Cancel a pending verification; no effect in any other state."""
    row = (await _lock_verifications(tx, [(team, id_)])).get((team, id_))
    if row and verification.current_status(row.status, now, row.expires_at) == "pending":
        await tx.run("cancel_verification", team=team, id=id_, error=CANCELED)
        await publisher.publish(tx, [_event(publisher, row, "failed", now, CANCELED)])
        count_outcome(tx, "canceled")


async def finish_verifications(tx: Tx, items: Sequence[Finish], publisher: Publisher) -> list[None | Exception]:
    """Record the results of sends: settle credit holds, store idempotent responses, publish failures."""
    rows = await _lock_verifications(tx, [(item.team, item.id) for item in items])
    accounts = await lock_accounts(tx, {item.team for item in items})
    result_rows, ledger_rows, events, keys, unsent_starts = [], [], [], [], []
    for item in items:
        row = rows.get((item.team, item.id))
        if row is None or row.owner != item.owner:
            # A background job considered this process dead and failed the verification, or the team was deleted. The
            # response to the caller still reports the carrier's result.
            continue
        price, charge = row.price, row.charge
        if charge == "held":
            kind = "release" if item.status == "failed" else "capture"
            settle(accounts[item.team], kind, price, row.key_id, row.expires_at - VERIFICATION_MS)
            ledger_rows.append((item.team, kind, price, item.id, item.at, 0))
            charge = "released" if kind == "release" else "captured"
        if item.status == "failed" and item.counted_at is not None:
            unsent_starts.append((row.team, row.phone, item.counted_at, -1, 0))
        is_failed = item.status == "failed" and not row.was_sent and row.status == "pending"
        if is_failed:
            events.append(_event(publisher, row, "failed", item.at, item.error_message, item.channel))
            count_outcome(tx, "failed")
        result_rows.append(
            (
                item.team,
                item.id,
                "failed" if is_failed else row.status,
                item.error_message if row.status == "pending" else CANCELED if row.status == "failed" else None,
                charge,
                int(item.is_simulated),
                item.channel,
                int(row.was_sent or item.status == "pending"),
                item.next_at if row.status == "pending" else None,
                item.carrier,
                item.carrier_id,
            )
        )
        if item.idempotency_key:
            expires_at = item.at + IDEMPOTENCY_WINDOW_MS
            lease = (item.owner, row.lease_until)
            keys.append(
                (item.key_id, item.idempotency_key.hash, *lease, item.id, 202, item.response.decode(), expires_at)
            )
    if result_rows:
        await tx.run("finish_verifications", rows=result_rows)
    if ledger_rows:
        await save_accounts(tx, accounts.values())
        await tx.run("insert_ledger", entries=ledger_rows)
    # A start whose code was not sent must not count as a code that was not entered.
    await conversion.count_verifications(tx, unsent_starts)
    await publisher.publish(tx, events)
    if keys:
        await tx.run("complete_idempotency", keys=keys)
    if any(item.is_simulated and rows[item.team, item.id].sandbox for item in items):
        schedule_wakeup(tx, INBOX)
    await carrier_stats.count_attempts(
        tx, items[-1].owner, [(item.at, attempt) for item in items for attempt in item.attempts]
    )
    return [None] * len(items)


async def check_codes(tx: Tx, items: Sequence[Check], publisher: Publisher) -> list[CheckResult | Exception]:
    """Compare each candidate code with the sent one; count wrong guesses and publish `verified` or `exhausted`."""
    rows = await _lock_verifications(tx, list({(item.team, item.id) for item in items}))
    states = {key: (row.status, row.wrong_guesses) for key, row in rows.items()}
    results: list[CheckResult | Exception] = []
    events, verified_phones = [], []
    for item in items:
        key = (item.team, item.id)
        row = rows.get(key)
        if row is None:
            item.digest("00" * 16)  # the same work as for a known id, so that timing does not reveal unknown ids
            results.append(VerificationNotFound(f"No verification {item.id}. {VerificationNotFound.fix}", param="id"))
            continue
        status, wrong_guesses = states[key]
        is_match = hmac.compare_digest(row.digest, item.digest(row.salt))
        result = verification.check_code(status, wrong_guesses, item.at, row.expires_at, is_match)
        if result.status != status and result.status in ("verified", "exhausted"):
            events.append(_event(publisher, row, result.status, item.at))
            count_outcome(tx, result.status)
        if result.verified:
            verified_phones.append((row.team, row.phone, item.at, 0, 1))
        states[key] = (result.status, result.wrong_codes)
        results.append(result)
    changed_rows = [
        (*key, *state) for key, state in states.items() if state != (rows[key].status, rows[key].wrong_guesses)
    ]
    if changed_rows:
        await tx.run("update_checked", rows=changed_rows)
    await conversion.count_verifications(tx, verified_phones)
    await publisher.publish(tx, events)
    return results


async def fail_abandoned(tx: Tx, owner: str, expired_before: int, now: int, publisher: Publisher) -> int:
    """Fail verifications whose process died while sending: those of `owner`, and those whose lease has expired.

    Returns the number of failed verifications; no caller has received their ids. A verification whose code was already
    sent over an earlier channel does not fail: only its lease is released.
    """
    ids = await tx.run("abandoned_verifications", over=expired_before, owner=owner)
    if not ids:
        return 0
    rows = await _lock_verifications(tx, [(team, id_) for team, id_ in ids])
    items = [
        Finish(
            id=row.id,
            team=row.team,
            key_id="",
            status="failed",
            error_message="interrupted",
            response=b"",
            at=now,
            owner=row.owner,
            channel=row.channel,
            counted_at=row.expires_at - VERIFICATION_MS,
        )
        for row in rows.values()
        if row.owner is not None and not row.was_sent
    ]
    if items:
        await finish_verifications(tx, items, publisher)
    # A code that was sent before stays valid; another process sends it over the channel that is due.
    await tx.run("release_verifications", ids=[(row.team, row.id) for row in rows.values() if row.was_sent])
    return len(items)


def _check_start(item: Start, recent_starts: "_RecentStarts", account: Account) -> None:
    """Use up sandbox quota, check the velocity limits and hold credit; raise a Refusal if a limit is reached."""
    if item.sandbox_limit is not None:
        pricing.count_sandbox_send(account, item.sandbox_limit, item.created_at)
    if not item.is_magic:
        item.check(recent_starts.window(item))
    if item.restricted_key is not None:
        count_use(account, item.restricted_key, 1, item.price, item.created_at)
    pricing.hold(account, item.price)


class _RecentStarts(msgspec.Struct, frozen=True):
    """Recent verification starts, against which the limits are checked.

    Each accepted start of a batch is added, so that it counts for the next one.
    """

    phone_starts: dict[tuple[int, str], list[tuple[int, int]]]  # (time of the start, wrong codes)
    prefix_starts: dict[tuple[int, str], list[int]]
    tallies: dict[tuple[int, str], Tally]
    known_phones: set[tuple[int, str]]

    def window(self, item: Start) -> VelocityWindow:
        """Return the velocity window of a verification's phone number."""
        starts, day_start = self.phone_starts[item.team, item.phone], item.created_at - item.created_at % DAY_MS
        return VelocityWindow(
            [at for at, _ in starts],
            self.prefix_starts[item.team, item.prefix],
            sum(wrong for at, wrong in starts if at >= day_start),
            [self.tallies[item.team, area] for area in areas(item.phone)],
            (item.team, item.phone) in self.known_phones,
        )

    def add(self, item: Start) -> None:
        """Count an accepted start, for the later items of the batch."""
        self.phone_starts[item.team, item.phone].append((item.created_at, 0))
        self.prefix_starts[item.team, item.prefix].append(item.created_at)
        for area in areas(item.phone):
            self.tallies[item.team, area].setdefault(hour_of(item.created_at), [0, 0])[0] += 1


async def _read_recent_starts(tx: Tx, items: Sequence[Start]) -> _RecentStarts:
    limited_items = [item for item in items if not item.is_magic]
    time_by_phone = {(item.team, item.phone): item.created_at for item in limited_items}
    recent_starts = _RecentStarts(
        defaultdict(list), defaultdict(list), await conversion.read_tallies(tx, time_by_phone), set()
    )
    if time_by_phone:
        # A code can be resent until its verification expires, and each resend counts like a start.
        since_by_phone = {key: now - DAY_MS for key, now in time_by_phone.items()}
        phones = [(*key, since - VERIFICATION_MS) for key, since in since_by_phone.items()]
        for team, phone, at, wrong, resent in await tx.run("phone_starts", phones=phones):
            phone_times = [(at, wrong), *((int(start_time), 0) for start_time in resent.split())]
            recent_starts.phone_starts[team, phone] += [
                start_time for start_time in phone_times if start_time[0] > since_by_phone[team, phone]
            ]
        since_by_prefix = {(item.team, item.prefix): item.created_at - PREFIX_WINDOW_MS for item in limited_items}
        prefixes = [(*key, since - VERIFICATION_MS) for key, since in since_by_prefix.items()]
        for team, prefix, at, resent in await tx.run("prefix_starts", prefixes=prefixes):
            prefix_times = (at, *map(int, resent.split()))
            recent_starts.prefix_starts[team, prefix] += [
                start_time for start_time in prefix_times if start_time > since_by_prefix[team, prefix]
            ]
        recent_starts.known_phones.update(await conversion.find_known_phones(tx, time_by_phone))
    return recent_starts


def _idempotency_row(item: Start, lease_until: int) -> tuple[Any, ...]:
    key = item.idempotency_key
    assert key
    expires_at = item.created_at + IDEMPOTENCY_WINDOW_MS
    return (item.key_id, key.hash, key.fingerprint, item.owner, lease_until, None, None, expires_at)


async def _insert_started(tx: Tx, items: list[Start], accounts: dict[int, Account], lease_until: int) -> None:
    rows = [
        (
            item.id,
            item.team,
            item.key_id,
            item.phone,
            item.given_address,
            item.prefix,
            " ".join(item.channels),
            item.channels[0],
            int(item.is_magic),
            CAPTURED if item.captured else int(item.sandbox),
            item.salt,
            item.digest,
            item.price,
            "held" if item.price else "none",
            item.owner,
            lease_until,
            item.created_at,
            item.expires_at,
            msgspec.json.encode(item.added).decode(),
        )
        for item in items
    ]
    await tx.run("insert_verifications", verifications=rows)
    if tags := [row for item in items for row in tag_rows(item.team, item.id, item.added.tags)]:
        await tx.run("insert_tags", tags=tags)
    await conversion.count_verifications(tx, [(item.team, item.phone, item.created_at, 1, 0) for item in items])
    holds = [(item.team, "hold", item.price, item.id, item.created_at, 0) for item in items if item.price]
    if holds or any(item.sandbox_limit is not None or item.restricted_key is not None for item in items):
        await save_accounts(tx, accounts.values())
    if holds:
        await tx.run("insert_ledger", entries=holds)


async def _lock_verifications(tx: Tx, ids: list[tuple[int, str]]) -> dict[tuple[int, str], _VerificationRow]:
    return {(row[0], row[1]): _VerificationRow(*row) for row in await tx.run("lock_verifications", ids=ids)}


def _event(
    publisher: Publisher, row: _VerificationRow, status: str, at: int, error: str | None = None, channel: str = ""
) -> Event:
    to = row.given_address or row.phone
    data = VerificationEventData(
        id=row.id,
        channel=channel or row.channel,
        to=to,
        status=status,
        sandbox=bool(row.sandbox),
        expires_at=timestamp(row.expires_at),
        error_message=error,
        previous_status=row.status,
    )
    return Event(
        id=publisher.new_id("evt_"),
        team=row.team,
        subject=row.id,
        recipient=to,
        type=f"verification.{status}",
        status=status,
        previous_status=row.status,
        detail=encode_data(msgspec.structs.asdict(data) | msgspec.json.decode(row.added)),
        created_at=at,
    )


class Verifications:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher, leases: Leases) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self._leases = leases
        self._start_commits: GroupCommit[Start, SendResult[Any] | None] = GroupCommit(
            database, lambda tx, items: start_verifications(tx, items, publisher, leases)
        )
        self._finish_commits: GroupCommit[Finish, None] = GroupCommit(
            database, lambda tx, items: finish_verifications(tx, items, publisher)
        )
        self._check_commits: GroupCommit[Check, CheckResult] = GroupCommit(
            database, lambda tx, items: check_codes(tx, items, publisher)
        )

    async def start(self, item: Start) -> SendResult[Any] | None:
        return await self._start_commits.submit(item)

    async def dry_run(self, item: Start) -> None:
        await self._database.read(lambda tx: dry_run(tx, item))

    async def resend(self, item: Resend) -> SendResult[Any] | None:
        try:
            return await self._database.write(lambda tx: resend_code(tx, item, self._leases))
        except KeyLimitReached:
            limited_keys = {item.start.key_id: (item.start.team, item.start.created_at)}
            await self._database.write(lambda tx: enqueue_key_limit_notices(tx, limited_keys))
            raise

    async def cancel(self, team: int, id_: str) -> None:
        now = self._clock.team_now(team)
        await self._database.write(lambda tx: cancel_verification(tx, team, id_, now, self._publisher))

    async def claim_codes(self, owner: str, limit: int) -> list[DueCode]:
        """Claim verifications whose next channel is due, so that this process sends their codes."""
        now = self._clock.now()
        params = {"now": now, "moved": [(team, now + offset) for team, offset in self._clock.offsets.items()]}

        async def claim(tx: Tx) -> list[DueCode]:
            lease_until = await self._leases.deadline(tx, IDEMPOTENCY_LEASE_MS)
            rows = await tx.run("claim_codes", owner=owner, lease_until=lease_until, limit=limit, **params)
            if surplus := rows[limit:]:  # this process could not send the surplus before the lease expires
                log.error("claimed more than requested", rows=len(surplus))
                await tx.run("release_verifications", ids=[(team, id_) for team, id_, *_ in surplus])
            return [DueCode(*row) for row in rows[:limit]]

        if not await self._database.read(lambda tx: tx.run("any_code_due", **params)):
            return []
        return await self._database.write(claim)

    async def finish(self, item: Finish) -> None:
        await self._finish_commits.submit(item)

    async def check(self, item: Check) -> CheckResult:
        return await self._check_commits.submit(item)

    async def get(self, team: int, id_: str) -> VerificationRow | None:
        """Return a verification without its code (only a digest is stored). None if not found."""
        now = self._clock.team_now(team)
        rows = await self._database.read(lambda tx: tx.run("find_verification", team=team, id=id_, now=now))
        return VerificationRow(*rows[0]) if rows else None

    async def search(self, team: int, search: Search) -> SearchPage[VerificationRow]:
        now, search = self._clock.team_now(team), message_search.with_team_clock(self._clock, team, search)
        return await self._database.read_standby(lambda tx: message_search.search_verifications(tx, team, search, now))
