"""Queries for the pages of messages and verifications: search over all channels, one message with its timeline.

Every result is bounded. States and templates are found by their index (ADR 0023), whole addresses in a separate table
(ADR 0015), everything else by the trigram index (ADR 0029).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from heliograph.domain.delivery.message_states import STATES
from heliograph.domain.ids import PREFIXES, ulid
from heliograph.domain.search.trigrams import SearchText
from heliograph.domain.sending.send_options import tag_hash
from heliograph.domain.setup.records import Channel
from heliograph.runtime.clock import OFF_MS, Clock
from heliograph.storage.contents import ANY_SIZE
from heliograph.storage.engine.database import Tx
from heliograph.storage.page_versions import message_pulse
from heliograph.storage.queues import EVERY
from heliograph.storage.search import query as find
from heliograph.storage.search.query import Counted, SearchFilter
from heliograph.webhooks.store import StoredAttempt

WRONG = ("bounced", "complained", "failed")  # states that one of several recipients may have
WRONG_PORTION = 500
FOREVER = 1 << 47  # later than any time in an id
NEWEST = (1 << 62) - 1
CHANNELS: tuple[Channel, ...] = ("email", "sms", "whatsapp")
_FIRST, _LAST = 0, (1 << 80) - 1  # limits of the random part of ids


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions for messages or verifications; None matches anything.

    `before`: the last id of the previous page.
    """

    limit: int
    channel: Channel | None = None
    status: str | None = None
    wrong: str | None = None  # one of WRONG: state of any recipient; not combined with `status`
    address: str | None = None  # normalised; not combined with the fields below
    needle: SearchText | None = None  # part of a recipient, of the subject or of the id
    id_start: str | None = None  # beginning of the id, with its prefix
    template_id: str | None = None
    tag: tuple[str, str] | None = None  # name and value
    key_id: str | None = None
    domain: str | None = None  # domain of the sender
    oldest_first: bool = False
    created_after: int = 0
    created_before: int = FOREVER
    before: str | None = None
    ahead: int = 0  # offset of the team's test clock in ms: ids may be this much older than the times of their messages


class MessageLine(msgspec.Struct, frozen=True):
    key: int
    id: str
    channel: Channel
    status: str
    template_id: str | None
    created_at: int
    record: str  # the API response to the send


class MessageRow(msgspec.Struct, frozen=True):
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
    record: str
    content: str | None  # None if deleted by retention
    batch: str | None  # id of the batch that contained the message
    size: int  # bytes of the content


class RecipientLine(msgspec.Struct, frozen=True):
    given: str
    kind: str
    status: str
    updated_at: int
    carrier: str | None
    detail: str | None


class TimelineEvent(msgspec.Struct, frozen=True):
    id: str
    type: str
    recipient: str | None
    status: str | None
    previous_status: str | None
    message_status: str | None
    sequence: int | None  # None if recorded in the timeline but not published
    detail: str | None
    created_at: int


class EventDelivery(msgspec.Struct, frozen=True):
    """The delivery of an event to one webhook."""

    webhook: str
    state: str
    attempt: int
    attempts: list[StoredAttempt]


class MessageDetails(msgspec.Struct, frozen=True, kw_only=True):
    facts: MessageRow
    recipients: list[RecipientLine]
    events: list[TimelineEvent]
    deliveries: dict[str, list[EventDelivery]]  # by event id
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
    to: str  # the phone, or the email address as the caller wrote it
    channel: Channel  # the last channel used
    channels: str  # in fallback order, separated by spaces
    resent: str  # times of resends, separated by spaces
    added: str  # fields added by the caller, as JSON
    reason: Literal["canceled"] | None  # reason of a failure; None if the carrier's error message explains it


Row = TypeVar("Row", MessageLine, VerificationLine)


class SearchPage(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """One page of results, in order.

    `after`: cursor of the next page; None if this is the last page.
    """

    lines: Sequence[Row]
    after: str | None = None
    is_cut: bool = False  # the search stopped before the page was full


# -- lists -----------------------------------------------------------------------------------------------------


async def messages(tx: Tx, team: int, wanted: Search) -> SearchPage[MessageLine]:
    """Return one page of a team's messages, through the cheapest index for the conditions."""
    if wanted.tag and not wanted.wrong and not _needs_index(wanted):
        return await _tagged(tx, team, wanted, wanted.tag)
    if wanted.address is not None:
        return await _to(tx, team, wanted)
    if wanted.wrong and not wanted.oldest_first:
        return await _gone_wrong(tx, team, wanted)
    if _needs_index(wanted):
        return await _parts(tx, team, wanted)
    low, high = _ends(wanted)
    channels = _channels(wanted)
    given: dict[str, Any] = {"team": team, "limit": wanted.limit + 1, **_times(wanted)}
    rows: list[Any] = []
    query = "search_messages"
    if wanted.status or wanted.template_id:
        query = "messages_in_states"
        given["states"] = await _states(tx, team, wanted, channels)
    for channel in channels:
        prefix = PREFIXES[channel]
        rows += await tx.run(query, low=prefix + low, high=prefix + high, **given)
    lines = sorted((MessageLine(*row) for row in rows), key=lambda line: line.id[4:], reverse=True)
    return _page(lines, wanted.limit, None)


async def count(tx: Tx, team: int, wanted: Search, most: int) -> Counted:
    """Count messages up to `most`; approximate if the trigram index is needed."""
    wanted = msgspec.structs.replace(wanted, before=None)
    if _needs_index(wanted):
        ends = await _keys(tx, team, wanted)
        return await find.count(tx, _aim(team, wanted), *ends, most) if ends else Counted(0)
    low, high = _ends(wanted)
    channels, counted = _channels(wanted), 0
    query, given = "count_messages", dict[str, Any]()
    if wanted.wrong:
        query, given = "count_wrong", {"status": wanted.wrong}
    elif wanted.status or wanted.template_id:
        query, given = "count_in_states", {"states": await _states(tx, team, wanted, channels)}
    for channel in channels:
        prefix = PREFIXES[channel]
        rows = await tx.run(query, team=team, low=prefix + low, high=prefix + high, most=most, **given)
        counted += rows[0][0]
    return Counted(min(most, counted), counted >= most)


async def states(tx: Tx, team: int, wanted: Search, most: int) -> dict[str, int]:
    """Count the messages of a tag or template by state, up to `most` per channel."""
    if wanted.tag is None:
        every = dict.fromkeys(state for channel in _channels(wanted) for state in STATES[channel])
        return {one: (await count(tx, team, msgspec.structs.replace(wanted, status=one), most)).number for one in every}
    low, high = _ends(msgspec.structs.replace(wanted, before=None))
    found = Counter[str]()
    for channel in _channels(wanted):
        ends = {"low": PREFIXES[channel] + low, "high": PREFIXES[channel] + high}
        rows = await tx.run("states_of_tagged", team=team, tag=tag_hash(*wanted.tag), most=most, **ends)
        for state, number in rows:
            found[state] += number
    return found


async def outcomes(tx: Tx, messages: Iterable[int]) -> dict[int, dict[str, int]]:
    """Map each message to the number of its recipients by state."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for message, status, number in await tx.run("recipients_in_states", messages=[(key,) for key in messages]):
        found[message][status] = number
    return found


async def verifications(tx: Tx, team: int, wanted: Search, now: int) -> SearchPage[VerificationLine]:
    low, high = (PREFIXES["verification"] + end for end in _ends(wanted))
    given = {"team": team, "now": now, "limit": wanted.limit + 1, "low": low, "high": high, **_times(wanted)}
    if wanted.tag:
        filters = {"tag": tag_hash(*wanted.tag), "phone": wanted.address, "status": wanted.status}
        rows = await tx.run("tagged_verifications", **filters, **given)
    elif wanted.address is not None:
        rows = await tx.run("search_phone", phone=wanted.address, status=wanted.status, **given)
    elif wanted.status is None:
        rows = await tx.run("search_verifications", **given)
    else:
        rows = []
        for stored in {wanted.status, "pending"} if wanted.status == "expired" else {wanted.status}:
            rows += await tx.run("verifications_in_state", stored=stored, status=wanted.status, **given)
    lines = sorted((VerificationLine(*row) for row in rows), key=lambda line: line.id, reverse=True)
    return _page(lines, wanted.limit, None)


def _channels(wanted: Search) -> list[Channel]:
    """Return the channels that a matching message can have."""
    states = wanted.wrong or wanted.status
    return [
        channel
        for channel in CHANNELS
        if wanted.channel in (None, channel)
        and (states is None or states in STATES[channel])
        and (wanted.id_start is None or wanted.id_start.startswith(PREFIXES[channel]))
    ]


def seen_by(clock: Clock, team: int, wanted: Search) -> Search:
    """Return the search adjusted to the team's test clock."""
    return msgspec.structs.replace(wanted, ahead=clock.moved[team]) if team in clock.moved else wanted


def _ends(wanted: Search) -> tuple[str, str]:
    """Return the lowest and highest id, without prefix, of the search."""
    low = ulid(max(0, wanted.created_after - OFF_MS - wanted.ahead), _LAST)
    high = ulid(max(0, wanted.created_before + OFF_MS), _FIRST)
    if wanted.id_start:
        low, high = max(low, wanted.id_start[4:]), min(high, wanted.id_start[4:] + "~")
    return low, min(high, wanted.before[4:]) if wanted.before else high


def _times(wanted: Search) -> dict[str, int]:
    return {"created_after": wanted.created_after, "created_before": wanted.created_before}


async def _states(tx: Tx, team: int, wanted: Search, channels: Sequence[Channel]) -> list[tuple[str, str]]:
    """Return each pair of state and template that a matching message can have."""
    states = {wanted.status} if wanted.status else {state for channel in channels for state in STATES[channel]}
    if wanted.template_id:
        return [(state, wanted.template_id) for state in states if state]
    found = await tx.run("templates_in_states", team=team, states=[(state,) for state in states])
    return [tuple(row) for row in found]


def _page(lines: Sequence[Row], limit: int, floor: str | None) -> SearchPage[Row]:
    if len(lines) > limit:
        return SearchPage(lines=lines[:limit], after=lines[limit - 1].id)
    return SearchPage(lines=lines, after=floor, is_cut=floor is not None)


def _needs_index(wanted: Search) -> bool:
    """Return whether the search needs the trigram index."""
    has_facts = wanted.key_id or wanted.domain or (wanted.wrong and wanted.template_id)
    return bool(wanted.needle or has_facts or wanted.oldest_first)


def _aim(team: int, wanted: Search) -> SearchFilter:
    return SearchFilter(
        team=team,
        needle=wanted.needle,
        channel=wanted.channel,
        template_id=wanted.template_id,
        key_id=wanted.key_id,
        domain=wanted.domain,
        tag=wanted.tag,
        given={"status": wanted.status, "wrong": wanted.wrong, **_times(wanted)},
    )


async def _keys(tx: Tx, team: int, wanted: Search) -> tuple[int, int] | None:
    """Return the first and the last key that a matching message can have. None if there are none."""
    low, high = _ends(msgspec.structs.replace(wanted, before=None))
    firsts, lasts = list[int](), list[int]()
    for prefix in (PREFIXES[channel] for channel in _channels(wanted)):
        firsts += [row[0] for row in await tx.run("first_key", team=team, low=prefix + low)]
        lasts += [row[0] for row in await tx.run("last_key", team=team, high=prefix + high)]
    if not firsts or not lasts:
        return None
    first, last = min(firsts), max(lasts)
    if wanted.before:
        at = await _key(tx, team, wanted.before)
        first, last = (max(first, at + 1), last) if wanted.oldest_first else (first, min(last, at - 1))
    return (first, last) if first <= last else None


async def _parts(tx: Tx, team: int, wanted: Search) -> SearchPage[MessageLine]:
    """Search with the trigram index."""
    ends = await _keys(tx, team, wanted)
    if ends is None:
        return SearchPage(lines=[])
    found = await find.find(tx, _aim(team, wanted), *ends, wanted.limit + 1, wanted.oldest_first)
    return _page([MessageLine(*row[:7]) for row in found.rows], wanted.limit, found.reached)


async def _gone_wrong(tx: Tx, team: int, wanted: Search) -> SearchPage[MessageLine]:
    """Search the index of recipients that bounced, complained or failed.

    Other conditions are checked per message, for at most about WALK messages per channel.
    """
    low, high = _ends(wanted)
    aim, given = _aim(team, wanted), {"team": team, "status": wanted.wrong}
    lines, floors = list[MessageLine](), list[str]()
    for prefix in (PREFIXES[channel] for channel in _channels(wanted)):
        start, looked, rows = prefix + high, 0, list[Any]()
        while len(rows) <= wanted.limit:
            ids = await tx.run("wrong_messages", low=prefix + low, high=start, limit=WRONG_PORTION, **given)
            some = await tx.run("wrong_still", ids=[tuple(row) for row in ids], **given, **_times(wanted))
            rows += filter(aim.fits, some)
            looked += len(ids)
            if len(ids) < WRONG_PORTION:
                break
            start = ids[-1][0]
            if looked >= find.WALK:
                floors.append(start[4:])
                break
        lines += [MessageLine(*row[:7]) for row in rows]
    floor = max(floors, default="")
    lines = sorted((line for line in lines if line.id[4:] >= floor), key=lambda line: line.id[4:], reverse=True)
    return _page(lines, wanted.limit, PREFIXES["email"] + floor if floor else None)


async def _tagged(tx: Tx, team: int, wanted: Search, tag: tuple[str, str]) -> SearchPage[MessageLine]:
    """Search the index of tags."""
    low, high = _ends(wanted)
    given = {name: getattr(wanted, name) for name in ("address", "status", "template_id")} | _times(wanted)
    rows: list[Any] = []
    for prefix in (PREFIXES[channel] for channel in _channels(wanted)):
        ends = {"low": prefix + low, "high": prefix + high, "limit": wanted.limit + 1}
        rows += await tx.run("tagged_messages", team=team, tag=tag_hash(*tag), **ends, **given)
    lines = sorted((MessageLine(*row) for row in rows), key=lambda line: line.id[4:], reverse=True)
    return _page(lines, wanted.limit, None)


async def _to(tx: Tx, team: int, wanted: Search) -> SearchPage[MessageLine]:
    """Search by address: messages still waiting first, then attempted ones block by block, newest first."""
    ((oldest, span),) = await tx.run("seen_spans")
    names = ("address", "channel", "status", "template_id", "created_after", "created_before")
    before = await _key(tx, team, wanted.before) if wanted.before else NEWEST
    given = {"team": team, "before": before, **{name: getattr(wanted, name) for name in names}}
    rows = await tx.run("search_unseen", lanes=EVERY, limit=wanted.limit + 1, **given)
    lines = {row[0]: MessageLine(*row) for row in rows}
    seen, stride = 0, 1
    span = None if span is None else min(span, before >> 12)
    while span is not None and span >= oldest and seen <= wanted.limit:
        spans = [(number,) for number in range(span, max(span - stride, oldest - 1), -1)]
        rows = await tx.run("search_seen", spans=spans, limit=wanted.limit + 1 - seen, **given)
        lines |= {row[0]: MessageLine(*row) for row in rows}
        seen += len(rows)
        span, stride = span - stride, min(2 * stride, 1024)
        if not rows:  # skip a gap between keys
            ((span,),) = await tx.run("seen_span_below", span=span + 1)
    return _page(sorted(lines.values(), key=lambda line: line.key, reverse=True), wanted.limit, None)


async def _key(tx: Tx, team: int, id_: str) -> int:
    """Return the key of the message with this id, or the key it would have if deleted."""
    rows = await tx.run("key_below", team=team, id=id_)
    return int(rows[0][0]) + (rows[0][1] != id_) if rows else 0


# -- one message ---------------------------------------------------------------------------------------------------


async def facts(tx: Tx, team: int, id_: str, most: int = ANY_SIZE) -> MessageRow | None:
    """Return a message, without its content if that is longer than `most`. None if not found."""
    rows = await tx.run("message_facts", team=team, id=id_, most=most)
    return MessageRow(*rows[0]) if rows else None


async def whole(tx: Tx, team: int, id_: str, webhooks: Iterable[str], most: int = ANY_SIZE) -> MessageDetails | None:
    """Return a message with recipients, timeline and webhook deliveries. None if not found."""
    found = await facts(tx, team, id_, most)
    if found is None:
        return None
    key, seen = found.key, await message_pulse(tx, team, id_)
    events = [TimelineEvent(*row) for row in await tx.run("message_events", message=key)]
    pairs = [(webhook, event.id) for webhook in webhooks for event in events if event.sequence is not None]
    return MessageDetails(
        facts=found,
        recipients=[RecipientLine(*row) for row in await tx.run("message_recipients", message=key)],
        events=events,
        deliveries=await _deliveries(tx, pairs) if pairs else {},
        pulse=seen.word if seen else "",
    )


async def _deliveries(tx: Tx, pairs: Sequence[tuple[str, str]]) -> dict[str, list[EventDelivery]]:
    made = await tx.run("deliveries_of_events", pairs=pairs)
    attempts: dict[int, list[StoredAttempt]] = defaultdict(list)
    for key, *attempt in await tx.run("attempts_of", deliveries=[(row[0],) for row in made]):
        attempts[key].append(StoredAttempt(*attempt))
    by_event: dict[str, list[EventDelivery]] = defaultdict(list)
    for key, event, webhook, state, attempt in made:
        by_event[event].append(EventDelivery(webhook, state, attempt, attempts[key]))
    return by_event
