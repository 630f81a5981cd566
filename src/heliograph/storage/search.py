"""What pages about messages and verifications ask: search over all channels, one message with all that became of it.

Every answer is bounded. A filter that few messages pass walks at most WALK of them and says how far it came; recipients
have a table of their own (ADR 0015).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from heliograph.rules.ids import PREFIXES, ulid
from heliograph.rules.limits import HOUR_MS
from heliograph.rules.setup.records import Channel
from heliograph.storage.deliveries import StoredAttempt
from heliograph.storage.engine.database import Tx

WALK = 10_000  # rows of a channel that one search looks through
SHOWN = 50  # newest rows of a list whose changes are noticed while its page is open
FOREVER = 1 << 47  # later than any time in an id
NEWEST = (1 << 62) - 1
CHANNELS: tuple[Channel, ...] = ("email", "sms", "whatsapp")
_FIRST, _LAST = 0, (1 << 80) - 1  # random parts of ids


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages; None: any. `before` is the id that the page before ended with."""

    limit: int
    channel: Channel | None = None
    status: str | None = None
    address: str | None = None  # normal form
    subject: str | None = None  # a part of it; not together with an address
    template_id: str | None = None
    created_after: int = 0
    created_before: int = FOREVER
    before: str | None = None


class Line(msgspec.Struct, frozen=True):
    key: int
    id: str
    channel: Channel
    status: str
    template_id: str | None
    created_at: int
    record: str  # the answer to its sender


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first. `after`: where the next page begins; None: there is none."""

    lines: Sequence[Any]
    after: str | None = None
    is_cut: bool = False  # the search stopped before the page was full


class Facts(msgspec.Struct, frozen=True):
    key: int
    id: str
    channel: Channel
    status: str
    sandbox: int
    key_id: str
    template_id: str | None
    template_version: int | None
    country: str | None
    price: int
    charge: str
    created_at: int
    ended_at: int | None
    has_body: int
    record: str


class RecipientLine(msgspec.Struct, frozen=True):
    given: str
    kind: str
    status: str
    updated_at: int
    carrier: str | None
    detail: str | None


class EventLine(msgspec.Struct, frozen=True):
    id: str
    type: str
    recipient: str | None
    status: str | None
    previous_status: str | None
    message_status: str | None
    sequence: int | None  # None: noted, not published
    detail: str | None
    created_at: int


class DeliveryLine(msgspec.Struct, frozen=True):
    key: int
    event: str
    webhook: str
    state: str
    attempt: int


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    facts: Facts
    content: bytes | None  # None: retention has taken it
    recipients: list[RecipientLine]
    events: list[EventLine]
    deliveries: dict[str, list[tuple[DeliveryLine, list[StoredAttempt]]]]  # by event
    pulse: str


class VerificationLine(msgspec.Struct, frozen=True):
    id: str
    phone: str
    status: str
    sandbox: int
    wrong: int
    price: int
    charge: str
    error_message: str | None
    key_id: str
    created_at: int
    expires_at: int
    simulated: int


# -- lists -----------------------------------------------------------------------------------------------------


async def messages(tx: Tx, team: int, wanted: Wanted) -> Found:
    if wanted.address is not None:
        return await _seen(tx, team, wanted)
    low, high = ulid(wanted.created_after, _LAST), _high(wanted)
    prefixes = [PREFIXES[channel] for channel in CHANNELS if wanted.channel in (None, channel)]
    floor = None
    if wanted.status or wanted.template_id or wanted.subject:
        floor = await _floor(tx, "message_floor", team, prefixes, low, high)
    needle = msgspec.json.encode(wanted.subject or "").decode()[1:-1]
    filters = {"status": wanted.status, "template_id": wanted.template_id, "subject": wanted.subject, "needle": needle}
    rows: list[Any] = []
    for prefix in prefixes:
        span = {"low": prefix + _below(floor, low), "high": prefix + high}
        rows += await tx.run("search_messages", team=team, limit=wanted.limit + 1, **span, **filters)
    lines = sorted((Line(*row) for row in rows), key=lambda line: line.id[4:], reverse=True)
    return _page(lines, wanted.limit, floor and PREFIXES["email"] + floor)


async def verifications(tx: Tx, team: int, wanted: Wanted, now: int) -> Found:
    prefix = PREFIXES["verification"]
    low, high, floor = ulid(wanted.created_after, _LAST), _high(wanted), None
    given = {"team": team, "now": now, "status": wanted.status, "limit": wanted.limit + 1, "high": prefix + high}
    if wanted.address is not None:
        rows = await tx.run("search_phone", phone=wanted.address, low=prefix + low, **given)
    else:
        if wanted.status:
            floor = await _floor(tx, "verification_floor", team, [prefix], low, high)
        rows = await tx.run("search_verifications", low=prefix + _below(floor, low), **given)
    return _page([VerificationLine(*row) for row in rows], wanted.limit, floor and prefix + floor)


def _high(wanted: Wanted) -> str:
    """The part of the id that the search begins below."""
    high = ulid(wanted.created_before, _FIRST)
    return min(high, wanted.before[4:]) if wanted.before else high


async def _floor(tx: Tx, query: str, team: int, prefixes: Iterable[str], low: str, high: str) -> str | None:
    """The oldest id, without prefix, that a walk through all channels reaches; None: the end."""
    found = []
    for prefix in prefixes:
        found += await tx.run(query, team=team, low=prefix + low, high=prefix + high, walk=WALK)
    return max((row[0][4:] for row in found), default=None)


def _below(floor: str | None, low: str) -> str:
    """So that the floor itself is still looked at: a shorter text sorts just before it."""
    return floor[:-1] if floor else low


def _page(lines: Sequence[Any], limit: int, floor: str | None) -> Found:
    if len(lines) > limit:
        return Found(lines=lines[:limit], after=lines[limit - 1].id)
    return Found(lines=lines, after=floor, is_cut=floor is not None)


async def _seen(tx: Tx, team: int, wanted: Wanted) -> Found:
    """From span to span, the newest first, in growing strides."""
    ((oldest, span),) = await tx.run("seen_spans")
    names = ("address", "channel", "status", "template_id", "created_after", "created_before")
    given = {name: getattr(wanted, name) for name in names}
    before = await _key(tx, team, wanted.before) if wanted.before else NEWEST
    lines: list[Line] = []
    stride = 1
    while span is not None and span >= oldest and len(lines) <= wanted.limit:
        spans = [(number,) for number in range(span, max(span - stride, oldest - 1), -1)]
        limit = wanted.limit + 1 - len(lines)
        rows = await tx.run("search_seen", team=team, spans=spans, before=before, limit=limit, **given)
        lines += [Line(*row) for row in rows]
        span, stride = span - stride, min(2 * stride, 1024)
    return _page(lines, wanted.limit, None)


async def _key(tx: Tx, team: int, id_: str) -> int:
    rows = await tx.run("message_facts", team=team, id=id_)
    return int(rows[0][0]) if rows else NEWEST


# -- one ---------------------------------------------------------------------------------------------------------


async def facts(tx: Tx, team: int, id_: str) -> tuple[Facts, bytes | None] | None:
    """With its content, while that is kept."""
    rows = await tx.run("message_facts", team=team, id=id_)
    if not rows:
        return None
    found = Facts(*rows[0])
    body = await tx.run("message_content", message=found.key)
    return found, body[0][0].encode() if body else None


async def whole(tx: Tx, team: int, id_: str, webhooks: Iterable[str]) -> Whole | None:
    found = await facts(tx, team, id_)
    if found is None:
        return None
    key = found[0].key
    events = [EventLine(*row) for row in await tx.run("message_events", message=key)]
    pairs = [(webhook, event.id) for webhook in webhooks for event in events if event.sequence is not None]
    return Whole(
        facts=found[0],
        content=found[1],
        recipients=[RecipientLine(*row) for row in await tx.run("message_recipients", message=key)],
        events=events,
        deliveries=await _deliveries(tx, pairs) if pairs else {},
        pulse=(await pulse(tx, team, id_) or ("", False))[0],
    )


async def _deliveries(
    tx: Tx, pairs: Sequence[tuple[str, str]]
) -> dict[str, list[tuple[DeliveryLine, list[StoredAttempt]]]]:
    made = [DeliveryLine(*row) for row in await tx.run("deliveries_of_events", pairs=pairs)]
    attempts: dict[int, list[StoredAttempt]] = defaultdict(list)
    for key, *attempt in await tx.run("attempts_of", deliveries=[(one.key,) for one in made]):
        attempts[key].append(StoredAttempt(*attempt))
    by_event: dict[str, list[tuple[DeliveryLine, list[StoredAttempt]]]] = defaultdict(list)
    for one in made:
        by_event[one.event].append((one, attempts[one.key]))
    return by_event


async def pulse(tx: Tx, team: int, id_: str) -> tuple[str, bool] | None:
    """A word that changes with the timeline, and whether the message has ended."""
    rows = await tx.run("message_pulse", team=team, id=id_)
    return (f"{rows[0][1] or 0}", rows[0][0] is not None) if rows else None


async def team_pulse(tx: Tx, team: int, now: int) -> dict[str, str]:
    """Words that change with what a team's lists and overview show."""
    spans = {channel: f"{PREFIXES[channel]}~" for channel in ("email", "sms")}  # the third's ids are the last of all
    hour = now - now % HOUR_MS - HOUR_MS
    (row,) = await tx.run("team_pulse", team=team, now=now, hour=hour, shown=SHOWN, **spans)
    return {
        "accepted": _word(row[:3]),
        "events": _word(row[3:5]),
        "account": _word(row[5:8]),
        "cleared": _word(row[8:9]),
        "verifications": _word(row[9:]),
    }


async def webhook_pulse(tx: Tx, webhook: str) -> dict[str, str]:
    (row,) = await tx.run("webhook_pulse", webhook=webhook, shown=SHOWN)
    return {"deliveries": _word(row)}


async def queues_pulse(tx: Tx) -> dict[str, str]:
    (row,) = await tx.run("queues_pulse", most=SHOWN * 20)
    return {"queues": _word(row)}


def _word(values: Iterable[Any]) -> str:
    return "-".join("" if value is None else str(value) for value in values)


async def verification(tx: Tx, team: int, id_: str, now: int) -> VerificationLine | None:
    """Never its code: nobody has that."""
    rows = await tx.run("verification_facts", team=team, id=id_, now=now)
    return VerificationLine(*rows[0]) if rows else None
