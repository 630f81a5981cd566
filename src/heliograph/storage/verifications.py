"""Verifications in the store: start (limits, hold, key), finish (charge, answer), check (five guesses, one success)."""

import hmac
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from heliograph.rules import pricing, verification
from heliograph.rules.acceptance import Answer, Once
from heliograph.rules.limits import DAY_MS, IDEMPOTENCY_LEASE_MS, IDEMPOTENCY_WINDOW_MS, MINUTE_MS
from heliograph.rules.pricing import Account
from heliograph.rules.refusals import Refusal, VerificationNotFound
from heliograph.rules.verification import CheckResult
from heliograph.storage.accepts import find_remembered, lock_accounts, remember, replayed, save_accounts
from heliograph.storage.database import Tx
from heliograph.storage.outcomes import SETTLE, NewId

PREFIX_WINDOW_MS = 10 * MINUTE_MS


class Recent(msgspec.Struct):
    """What the phone and its prefix have asked for lately, oldest first."""

    phone_starts: list[int]
    prefix_starts: list[int]
    wrong_today: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    key_id: str
    phone: str
    prefix: str
    magic: bool
    sandbox: bool
    salt: str
    digest: str
    price: int
    created_at: int
    expires_at: int
    owner: str  # the process that will ask the carrier
    check: Callable[[Recent], None]  # raises when a limit is reached
    once: Once | None = None


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    key_id: str
    status: str  # pending or failed
    error_message: str | None
    response: bytes
    at: int
    owner: str
    once: Once | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    at: int
    digest: Callable[[str], str]  # salt → digest of the candidate


async def start(tx: Tx, items: Sequence[Start]) -> list[Answer | None | Exception]:
    """None: go and ask a carrier. An answer: this key was served before."""
    now = items[-1].created_at
    accounts = await lock_accounts(tx, {item.team for item in items})
    remembered = await find_remembered(tx, [(i.key_id, i.once.hash) for i in items if i.once])
    phones, prefixes = await _recent(tx, items, now)
    answers: list[Answer | None | Exception] = []
    begun: list[Start] = []
    for item in items:
        phone, prefix = phones[item.team, item.phone], prefixes[item.team, item.prefix]
        try:
            if item.once and (replay := replayed(remembered, item.key_id, item.once, now)):
                answers.append(replay)
                continue
            if not item.magic:
                today = now - now % DAY_MS
                wrong_today = sum(wrong for at, wrong in phone if at >= today)
                item.check(Recent([at for at, _ in phone], prefix, wrong_today))
            pricing.hold(accounts[item.team], item.price)
        except Refusal as refusal:
            answers.append(refusal)
            continue
        phone.append((item.created_at, 0))
        prefix.append(item.created_at)
        begun.append(item)
        answers.append(None)
    if begun:
        await _begin(tx, begun, accounts, now)
    return answers


async def finish(tx: Tx, items: Sequence[Finish], new_id: NewId) -> list[None | Exception]:
    rows = await _lock(tx, [(i.team, i.id) for i in items])
    accounts = await lock_accounts(tx, {i.team for i in items})
    done, entries, events, keys = [], [], [], []
    for item in items:
        _, _, _, _, _, _, _, price, charge, owner = rows[item.team, item.id]
        if owner != item.owner:
            continue  # housekeeping thought us dead and gave it up: the answer still tells what the carrier said
        if charge == "held":
            kind = "release" if item.status == "failed" else "capture"
            SETTLE[kind](accounts[item.team], price)
            entries.append((item.team, kind, price, item.id, item.at))
            charge = "released" if kind == "release" else "captured"
        if item.status == "failed":
            detail = msgspec.json.encode({"error": item.error_message}).decode()
            events.append(_event(new_id, item.team, item.id, "failed", "pending", detail, item.at))
        done.append((item.team, item.id, item.status, item.error_message, charge))
        if item.once:
            expires = item.at + IDEMPOTENCY_WINDOW_MS
            keys.append((item.key_id, item.once.hash, item.owner, 202, item.response.decode(), expires))
    if done:
        await tx.run("finish_verifications", rows=done)
    if entries:
        await save_accounts(tx, accounts.values())
        await tx.run("insert_ledger", entries=entries)
    if events:
        await tx.run("insert_events", events=events)
    if keys:
        await tx.run("complete_idempotency", keys=keys)
    return [None] * len(items)


async def check(tx: Tx, items: Sequence[Check], new_id: NewId) -> list[CheckResult | Exception]:
    rows = await _lock(tx, list({(i.team, i.id) for i in items}))
    states = {place: (row[2], row[3]) for place, row in rows.items()}
    results: list[CheckResult | Exception] = []
    events = []
    for item in items:
        place = (item.team, item.id)
        row = rows.get(place)
        if row is None:
            item.digest("00" * 16)  # the same work as for a known one, so that time tells nothing
            results.append(VerificationNotFound(f"No verification {item.id}. {VerificationNotFound.fix}", param="id"))
            continue
        status, wrong = states[place]
        matches = hmac.compare_digest(row[5], item.digest(row[4]))
        result = verification.check(status, wrong, item.at, row[6], matches)
        if result.status != status and result.status in ("verified", "exhausted"):
            events.append(_event(new_id, item.team, item.id, result.status, status, None, item.at))
        states[place] = (result.status, result.wrong)
        results.append(result)
    changed = [(*place, *state) for place, state in states.items() if state != tuple(rows[place][2:4])]
    if changed:
        await tx.run("update_checked", rows=changed)
    if events:
        await tx.run("insert_events", events=events)
    return results


async def give_up(tx: Tx, owner: str, now: int, new_id: NewId) -> int:
    """Verifications whose process died in mid-dispatch: failed, hold released."""
    ids = await tx.run("abandoned_verifications", now=now, owner=owner)
    if not ids:
        return 0
    rows = await _lock(tx, [(team, id_) for team, id_ in ids])
    items = [
        Finish(
            id=id_,
            team=team,
            key_id="",
            status="failed",
            error_message="interrupted",
            response=b"",
            at=now,
            owner=rows[team, id_][9],
        )
        for team, id_ in ids
        if rows[team, id_][9] is not None
    ]
    await finish(tx, items, new_id)
    return len(items)


async def _recent(
    tx: Tx, items: Sequence[Start], now: int
) -> tuple[dict[tuple[int, str], list[tuple[int, int]]], dict[tuple[int, str], list[int]]]:
    phones: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    prefixes: dict[tuple[int, str], list[int]] = defaultdict(list)
    asked = {(i.team, i.phone) for i in items if not i.magic}
    if asked:
        for team, phone, at, wrong in await tx.run("phone_starts", phones=list(asked), since=now - DAY_MS):
            phones[team, phone].append((at, wrong))
        wide = list({(i.team, i.prefix) for i in items if not i.magic})
        for team, prefix, at in await tx.run("prefix_starts", prefixes=wide, since=now - PREFIX_WINDOW_MS):
            prefixes[team, prefix].append(at)
    return phones, prefixes


async def _begin(tx: Tx, begun: list[Start], accounts: dict[int, Account], now: int) -> None:
    lease = now + IDEMPOTENCY_LEASE_MS
    expires = now + IDEMPOTENCY_WINDOW_MS
    keys = [(i.key_id, i.once.hash, i.once.fingerprint, i.owner, lease, None, None, expires) for i in begun if i.once]
    await remember(tx, keys, now)
    rows = [
        (
            i.id,
            i.team,
            i.key_id,
            i.phone,
            i.prefix,
            int(i.magic),
            int(i.sandbox),
            i.salt,
            i.digest,
            i.price,
            "held" if i.price else "none",
            i.owner,
            lease,
            i.created_at,
            i.expires_at,
        )
        for i in begun
    ]
    await tx.run("insert_verifications", verifications=rows)
    holds = [(i.team, "hold", i.price, i.id, i.created_at) for i in begun if i.price]
    if holds:
        await save_accounts(tx, accounts.values())
        await tx.run("insert_ledger", entries=holds)


async def _lock(tx: Tx, ids: list[tuple[int, str]]) -> dict[tuple[int, str], Any]:
    return {(row[0], row[1]): row for row in await tx.run("lock_verifications", ids=ids)}


def _event(
    new_id: NewId, team: int, id_: str, status: str, previous: str, detail: str | None, at: int
) -> tuple[Any, ...]:
    type_ = f"verification.{status}"
    return (new_id("evt_"), team, id_, None, None, 1, type_, status, previous, None, detail, at)
