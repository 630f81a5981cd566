"""Stores verifications: start (limits, credit hold), resend, finish (charge, response) and check (five guesses)."""

import hmac
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from heliograph.domain.delivery.lanes import INBOX
from heliograph.domain.delivery.outcome import Asked
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import (
    DAY_MS,
    IDEMPOTENCY_LEASE_MS,
    IDEMPOTENCY_WINDOW_MS,
    MINUTE_MS,
    VERIFICATION_MS,
)
from heliograph.domain.refusals import Refusal, VerificationEnded, VerificationNotFound, VerifyRateLimited
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import CAUGHT, IdempotencyKey, Sent
from heliograph.domain.sending.pricing import Account
from heliograph.domain.sending.send_options import Added
from heliograph.domain.setup.records import Channel
from heliograph.domain.verify import verification
from heliograph.domain.verify.conversion import Tally, areas, hour_of
from heliograph.domain.verify.verification import CANCELED, CheckResult
from heliograph.runtime import metrics
from heliograph.runtime.clock import Clock
from heliograph.storage import carrier_stats, conversion
from heliograph.storage.accept import (
    find_remembered,
    lock_accounts,
    remember,
    replayed,
    save_accounts,
    tell_low_credit,
)
from heliograph.storage.engine.database import Database, Tx, note
from heliograph.storage.engine.group_commit import GroupCommit
from heliograph.storage.events import Event, Publisher
from heliograph.storage.leases import Leases
from heliograph.storage.outcomes import SETTLE
from heliograph.storage.search import message_search
from heliograph.storage.search.message_search import Search, SearchPage, VerificationLine
from heliograph.storage.tags import tag_rows

log = structlog.get_logger()

PREFIX_WINDOW_MS = 10 * MINUTE_MS


class Recent(msgspec.Struct):
    """Recent starts of a phone number and of its prefix, oldest first, for the velocity limits."""

    phone_starts: list[int]
    prefix_starts: list[int]
    wrong_today: int
    tallies: list[Tally]  # counters of the last day, ordered as `areas(phone)`
    known: bool  # the phone completed a verification within 30 days


class Start(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    key_id: str
    phone: str  # or a normalised email address
    given: str | None = None  # the email address as the caller wrote it
    prefix: str
    channels: Sequence[str] = ("sms",)  # in fallback order
    magic: bool
    sandbox: bool
    caught: bool = False  # captured: goes only to simulators, whatever the recipient
    salt: str
    digest: str
    price: int
    created_at: int
    expires_at: int
    credit_low: int = 0  # notify when credit falls below; 0 = never
    sandbox_most: int | None = None  # maximum per day over real carriers; None if not counted
    owner: str  # the process that will call the carrier
    check: Callable[[Recent], None]  # raises if a limit is reached
    retry_key: IdempotencyKey | None = None
    added: Added = Added()


class Resend(msgspec.Struct, frozen=True, kw_only=True):
    """Request to send the same code again, under the limits of a start."""

    start: Start  # its price is 0
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
    retry_key: IdempotencyKey | None = None
    simulated: bool = False  # a simulator accepted the code; no real recipient got it
    asked: Sequence[Asked] = ()
    channel: str = "sms"  # the last channel used
    next_at: int | None = None  # when to use the next channel, unless a receipt arrives first
    carrier: str | None = None  # the carrier that will send the receipt
    carrier_id: str | None = None
    counted_at: int | None = None  # when the start was counted; None leaves the counter unchanged on failure


class Check(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    at: int
    digest: Callable[[str], str]  # salt → digest of the candidate


class _Row(msgspec.Struct, frozen=True):
    team: int
    id: str
    status: str
    wrong: int
    salt: str
    digest: str
    expires_at: int
    price: int
    charge: str
    owner: str | None
    phone: str
    given: str | None
    channel: str
    sandbox: int
    lease_until: int | None
    sent: int
    added: str


class Claimed(msgspec.Struct, frozen=True):
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
    added: str  # JSON


async def start(
    tx: Tx, items: Sequence[Start], publisher: Publisher, leases: Leases
) -> list[Sent[Any] | None | Exception]:
    """Begin each verification under the limits.

    For each item: None if the caller must now send the code, a stored response if the idempotency key was used before,
    or the refusal.
    """
    accounts = await lock_accounts(tx, {item.team for item in items})
    credit = {team: account.available for team, account in accounts.items()}
    remembered = await find_remembered(tx, [(i.key_id, i.retry_key.hash) for i in items if i.retry_key], leases)
    lately = await _lately(tx, items)
    answers: list[Sent[Any] | None | Exception] = []
    begun: list[Start] = []
    for item in items:
        before = msgspec.structs.replace(accounts[item.team])
        try:
            if item.retry_key and (replay := replayed(remembered, item.key_id, item.retry_key, item.created_at)):
                answers.append(replay)
                continue
            _decide(item, lately, accounts[item.team])
        except Refusal as refusal:
            accounts[item.team] = before
            answers.append(refusal)
            continue
        lately.add(item)
        begun.append(item)
        answers.append(None)
    if begun:
        lease_until = await leases.until(tx, IDEMPOTENCY_LEASE_MS)
        await remember(tx, [_key(i, lease_until) for i in begun if i.retry_key], remembered, leases)
        await _begin(tx, begun, accounts, lease_until)
        tell(tx, "started", len(begun))
        low = {i.team: (i.credit_low, i.created_at) for i in begun}
        await tell_low_credit(tx, publisher, credit, accounts, low)
    return answers


def tell(tx: Tx, outcome: str, count: int = 1) -> None:
    """Count `outcome` in the metrics after the commit."""
    tx.afterwards.append(lambda: metrics.verified[outcome].inc(count))


async def rehearse(tx: Tx, item: Start) -> None:
    """Check limits and credit as `start` does, without writing (dry_run)."""
    accounts = await lock_accounts(tx, {item.team})
    _decide(item, await _lately(tx, [item]), accounts[item.team])


async def again(tx: Tx, item: Resend, leases: Leases) -> Sent[Any] | None:
    """Count a resend and lease the verification to this process, so that the caller can send the code again.

    Returns the stored response if the idempotency key was used before, otherwise None. Raises a refusal if the
    verification has ended, is being sent, or a limit is reached.
    """
    start_, now = item.start, item.start.created_at
    row = (await _lock(tx, [(start_.team, start_.id)]))[start_.team, start_.id]
    keys = [(start_.key_id, start_.retry_key.hash)] if start_.retry_key else []
    remembered = await find_remembered(tx, keys, leases)
    if start_.retry_key and (replay := replayed(remembered, start_.key_id, start_.retry_key, now)):
        return replay
    is_same = hmac.compare_digest(row.digest, item.digest(row.salt))  # differs after the master secret was replaced
    if verification.current_status(row.status, now, row.expires_at) != "pending" or not is_same:
        raise VerificationEnded(param="id")
    if row.owner is not None:
        raise VerifyRateLimited("This code is being sent right now.", param="id", retry_after=1)
    accounts = await lock_accounts(tx, {start_.team})
    _decide(start_, await _lately(tx, [start_]), accounts[start_.team])
    await save_accounts(tx, accounts.values())
    lease_until = await leases.until(tx, IDEMPOTENCY_LEASE_MS)
    await remember(tx, [_key(start_, lease_until)] if start_.retry_key else [], remembered, leases)
    await tx.run(
        "resend_verification", team=start_.team, id=start_.id, at=str(now), owner=start_.owner, lease_until=lease_until
    )
    await conversion.count(tx, [(start_.team, start_.phone, now, 1, 0)])
    return None


async def cancel(tx: Tx, team: int, id_: str, now: int, publisher: Publisher) -> None:
    """Cancel a pending verification; no effect in any other state."""
    row = (await _lock(tx, [(team, id_)])).get((team, id_))
    if row and verification.current_status(row.status, now, row.expires_at) == "pending":
        await tx.run("cancel_verification", team=team, id=id_, error=CANCELED)
        await publisher.publish(tx, [_event(publisher, row, "failed", now, CANCELED)])
        tell(tx, "canceled")


async def finish(tx: Tx, items: Sequence[Finish], publisher: Publisher) -> list[None | Exception]:
    """Record the results of sends: settle the credit hold, store the idempotent response, publish failures."""
    rows = await _lock(tx, [(i.team, i.id) for i in items])
    accounts = await lock_accounts(tx, {i.team for i in items})
    done, entries, events, keys, failed = [], [], [], [], []
    for item in items:
        row = rows.get((item.team, item.id))
        if row is None or row.owner != item.owner:
            # Housekeeping considered this process dead and failed the verification, or the team was deleted. The
            # response to the caller still reports the carrier's result.
            continue
        price, charge = row.price, row.charge
        if charge == "held":
            kind = "release" if item.status == "failed" else "capture"
            SETTLE[kind](accounts[item.team], price)
            entries.append((item.team, kind, price, item.id, item.at, 0))
            charge = "released" if kind == "release" else "captured"
        if item.status == "failed" and item.counted_at is not None:
            failed.append((row.team, row.phone, item.counted_at, -1, 0))
        fails = item.status == "failed" and not row.sent and row.status == "pending"
        if fails:
            events.append(_event(publisher, row, "failed", item.at, item.error_message, item.channel))
            tell(tx, "failed")
        done.append(
            (
                item.team,
                item.id,
                "failed" if fails else row.status,
                item.error_message if row.status == "pending" else CANCELED if row.status == "failed" else None,
                charge,
                int(item.simulated),
                item.channel,
                int(row.sent or item.status == "pending"),
                item.next_at if row.status == "pending" else None,
                item.carrier,
                item.carrier_id,
            )
        )
        if item.retry_key:
            expires = item.at + IDEMPOTENCY_WINDOW_MS
            fence = (item.owner, row.lease_until)
            keys.append((item.key_id, item.retry_key.hash, *fence, item.id, 202, item.response.decode(), expires))
    if done:
        await tx.run("finish_verifications", rows=done)
    if entries:
        await save_accounts(tx, accounts.values())
        await tx.run("insert_ledger", entries=entries)
    await conversion.count(tx, failed)  # no code was sent, so the start does not count as an unentered code
    await publisher.publish(tx, events)
    if keys:
        await tx.run("complete_idempotency", keys=keys)
    if any(item.simulated and rows[item.team, item.id].sandbox for item in items):
        note(tx, INBOX)
    await carrier_stats.count(tx, items[-1].owner, [(item.at, one) for item in items for one in item.asked])
    return [None] * len(items)


async def check(tx: Tx, items: Sequence[Check], publisher: Publisher) -> list[CheckResult | Exception]:
    """Compare each candidate code; count wrong guesses and publish `verified` or `exhausted`."""
    rows = await _lock(tx, list({(i.team, i.id) for i in items}))
    states = {area: (row.status, row.wrong) for area, row in rows.items()}
    results: list[CheckResult | Exception] = []
    events, verified = [], []
    for item in items:
        area = (item.team, item.id)
        row = rows.get(area)
        if row is None:
            item.digest("00" * 16)  # do the same work as for a known id, so that timing reveals nothing
            results.append(VerificationNotFound(f"No verification {item.id}. {VerificationNotFound.fix}", param="id"))
            continue
        status, wrong = states[area]
        matches = hmac.compare_digest(row.digest, item.digest(row.salt))
        result = verification.check(status, wrong, item.at, row.expires_at, matches)
        if result.status != status and result.status in ("verified", "exhausted"):
            events.append(_event(publisher, row, result.status, item.at))
            tell(tx, result.status)
        if result.verified:
            verified.append((row.team, row.phone, item.at, 0, 1))
        states[area] = (result.status, result.wrong)
        results.append(result)
    changed = [(*area, *state) for area, state in states.items() if state != (rows[area].status, rows[area].wrong)]
    if changed:
        await tx.run("update_checked", rows=changed)
    await conversion.count(tx, verified)
    await publisher.publish(tx, events)
    return results


async def give_up(tx: Tx, owner: str, over: int, now: int, publisher: Publisher) -> int:
    """Fail verifications whose process died while sending: those of `owner`, and those whose lease expired by `over`.

    Returns the number of failed verifications. No caller has received the id of such a verification, unless its code
    was sent before; then only the lease is released.
    """
    ids = await tx.run("abandoned_verifications", over=over, owner=owner)
    if not ids:
        return 0
    rows = await _lock(tx, [(team, id_) for team, id_ in ids])
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
        if row.owner is not None and not row.sent
    ]
    if items:
        await finish(tx, items, publisher)
    # A code sent before stays valid; another process sends the code over the channel that was due.
    await tx.run("free_verifications", ids=[(row.team, row.id) for row in rows.values() if row.sent])
    return len(items)


def _decide(item: Start, lately: "_Lately", account: Account) -> None:
    """Take sandbox quota, check the velocity limits and hold credit; raises a refusal if one of these fails."""
    if item.sandbox_most is not None:
        pricing.take_sandbox(account, item.sandbox_most, item.created_at)
    if not item.magic:
        item.check(lately.recent(item))
    pricing.hold(account, item.price)


class _Lately(msgspec.Struct, frozen=True):
    """Recent starts before a batch, extended by each accepted start of the batch."""

    phones: dict[tuple[int, str], list[tuple[int, int]]]  # (time of the start, wrong codes)
    prefixes: dict[tuple[int, str], list[int]]
    tallies: dict[tuple[int, str], Tally]
    known: set[tuple[int, str]]

    def recent(self, item: Start) -> Recent:
        """Return the velocity window of a start."""
        phone, today = self.phones[item.team, item.phone], item.created_at - item.created_at % DAY_MS
        return Recent(
            [at for at, _ in phone],
            self.prefixes[item.team, item.prefix],
            sum(wrong for at, wrong in phone if at >= today),
            [self.tallies[item.team, area] for area in areas(item.phone)],
            (item.team, item.phone) in self.known,
        )

    def add(self, item: Start) -> None:
        """Count an accepted start for the items after it in the batch."""
        self.phones[item.team, item.phone].append((item.created_at, 0))
        self.prefixes[item.team, item.prefix].append(item.created_at)
        for area in areas(item.phone):
            self.tallies[item.team, area].setdefault(hour_of(item.created_at), [0, 0])[0] += 1


async def _lately(tx: Tx, items: Sequence[Start]) -> _Lately:
    limited = [item for item in items if not item.magic]
    asked = {(item.team, item.phone): item.created_at for item in limited}
    lately = _Lately(defaultdict(list), defaultdict(list), await conversion.tallies(tx, asked), set())
    if asked:
        # A code can be resent until its verification expires, and each resend counts like a start.
        day = {place: now - DAY_MS for place, now in asked.items()}
        phones = [(*place, since - VERIFICATION_MS) for place, since in day.items()]
        for team, phone, at, wrong, resent in await tx.run("phone_starts", phones=phones):
            times = [(at, wrong), *((int(one), 0) for one in resent.split())]
            lately.phones[team, phone] += [one for one in times if one[0] > day[team, phone]]
        window = {(item.team, item.prefix): item.created_at - PREFIX_WINDOW_MS for item in limited}
        prefixes = [(*place, since - VERIFICATION_MS) for place, since in window.items()]
        for team, prefix, at, resent in await tx.run("prefix_starts", prefixes=prefixes):
            times_ = (at, *map(int, resent.split()))
            lately.prefixes[team, prefix] += [one for one in times_ if one > window[team, prefix]]
        lately.known.update(await conversion.known(tx, asked))
    return lately


def _key(item: Start, lease_until: int) -> tuple[Any, ...]:
    assert item.retry_key
    expires_at = item.created_at + IDEMPOTENCY_WINDOW_MS
    return (
        item.key_id,
        item.retry_key.hash,
        item.retry_key.fingerprint,
        item.owner,
        lease_until,
        None,
        None,
        expires_at,
    )


async def _begin(tx: Tx, begun: list[Start], accounts: dict[int, Account], lease_until: int) -> None:
    rows = [
        (
            i.id,
            i.team,
            i.key_id,
            i.phone,
            i.given,
            i.prefix,
            " ".join(i.channels),
            i.channels[0],
            int(i.magic),
            CAUGHT if i.caught else int(i.sandbox),
            i.salt,
            i.digest,
            i.price,
            "held" if i.price else "none",
            i.owner,
            lease_until,
            i.created_at,
            i.expires_at,
            msgspec.json.encode(i.added).decode(),
        )
        for i in begun
    ]
    await tx.run("insert_verifications", verifications=rows)
    if tags := [row for i in begun for row in tag_rows(i.team, i.id, i.added.tags)]:
        await tx.run("insert_tags", tags=tags)
    await conversion.count(tx, [(i.team, i.phone, i.created_at, 1, 0) for i in begun])
    holds = [(i.team, "hold", i.price, i.id, i.created_at, 0) for i in begun if i.price]
    if holds or any(i.sandbox_most is not None for i in begun):
        await save_accounts(tx, accounts.values())
    if holds:
        await tx.run("insert_ledger", entries=holds)


async def _lock(tx: Tx, ids: list[tuple[int, str]]) -> dict[tuple[int, str], _Row]:
    return {(row[0], row[1]): _Row(*row) for row in await tx.run("lock_verifications", ids=ids)}


def _event(publisher: Publisher, row: _Row, status: str, at: int, error: str | None = None, channel: str = "") -> Event:
    to = row.given or row.phone
    data = {
        "id": row.id,
        "channel": channel or row.channel,
        "to": to,
        "status": status,
        "sandbox": bool(row.sandbox),
        "expires_at": timestamp(row.expires_at),
        "error_message": error,
        "previous_status": row.status,
        **msgspec.json.decode(row.added),
    }
    return Event(
        id=publisher.new_id("evt_"),
        team=row.team,
        subject=row.id,
        recipient=to,
        type=f"verification.{status}",
        status=status,
        previous_status=row.status,
        detail=msgspec.json.encode(data).decode(),
        created_at=at,
    )


class Verifications:
    def __init__(self, database: Database, clock: Clock, publisher: Publisher, leases: Leases) -> None:
        self._database = database
        self._clock = clock
        self._publisher = publisher
        self._leases = leases
        self._starts: GroupCommit[Start, Sent[Any] | None] = GroupCommit(
            database, lambda tx, items: start(tx, items, publisher, leases)
        )
        self._finishes: GroupCommit[Finish, None] = GroupCommit(
            database, lambda tx, items: finish(tx, items, publisher)
        )
        self._checks: GroupCommit[Check, CheckResult] = GroupCommit(
            database, lambda tx, items: check(tx, items, publisher)
        )

    async def start(self, item: Start) -> Sent[Any] | None:
        return await self._starts.submit(item)

    async def rehearse(self, item: Start) -> None:
        await self._database.read(lambda tx: rehearse(tx, item))

    async def again(self, item: Resend) -> Sent[Any] | None:
        return await self._database.write(lambda tx: again(tx, item, self._leases))

    async def cancel(self, team: int, id_: str) -> None:
        now = self._clock.of(team)
        await self._database.write(lambda tx: cancel(tx, team, id_, now, self._publisher))

    async def claim_codes(self, owner: str, limit: int) -> list[Claimed]:
        """Claim verifications whose next channel is due, so that this process sends their codes."""
        now = self._clock.now()
        by = {"now": now, "moved": [(team, now + ahead) for team, ahead in self._clock.moved.items()]}

        async def story(tx: Tx) -> list[Claimed]:
            lease_until = await self._leases.until(tx, IDEMPOTENCY_LEASE_MS)
            rows = await tx.run("claim_codes", owner=owner, lease_until=lease_until, limit=limit, **by)
            if surplus := rows[limit:]:  # no task here would send the surplus before the lease expires
                log.error("claimed more than requested", rows=len(surplus))
                await tx.run("free_verifications", ids=[(team, id_) for team, id_, *_ in surplus])
            return [Claimed(*row) for row in rows[:limit]]

        if not await self._database.read(lambda tx: tx.run("any_code_due", **by)):
            return []
        return await self._database.write(story)

    async def finish(self, item: Finish) -> None:
        await self._finishes.submit(item)

    async def check(self, item: Check) -> CheckResult:
        return await self._checks.submit(item)

    async def get(self, team: int, id_: str) -> VerificationLine | None:
        """Return a verification without its code (only a digest is stored). None if not found."""
        now = self._clock.of(team)
        rows = await self._database.read(lambda tx: tx.run("find_verification", team=team, id=id_, now=now))
        return VerificationLine(*rows[0]) if rows else None

    async def search(self, team: int, wanted: Search) -> SearchPage[VerificationLine]:
        now, wanted = self._clock.of(team), message_search.seen_by(self._clock, team, wanted)
        return await self._database.read(lambda tx: message_search.verifications(tx, team, wanted, now))
