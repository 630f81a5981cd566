"""Searches messages and verifications over all channels, and reads one message with its timeline.

Every result is bounded. States and templates are found by their index (ADR 0023), whole addresses in a separate table
(ADR 0015), everything else by the trigram index (ADR 0029).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from heliograph.domain.delivery.message_states import STATES_BY_CHANNEL
from heliograph.domain.ids import PREFIXES, ulid
from heliograph.domain.search.trigrams import SearchQuery
from heliograph.domain.sending.send_options import tag_hash
from heliograph.domain.setup.records import Channel
from heliograph.runtime.clock import CLOCK_ERROR_MAX_MS, Clock
from heliograph.storage.contents import ANY_SIZE
from heliograph.storage.engine.database import Tx
from heliograph.storage.page_versions import read_message_version
from heliograph.storage.queues import QUEUES_AND_HELD
from heliograph.storage.search import query as index_query
from heliograph.storage.search.query import CountResult, SearchFilter
from heliograph.webhooks.store import StoredAttempt

FAILURE_STATES = ("bounced", "complained", "failed")  # states of a recipient by which messages can be searched
FAILED_BATCH = 500
LATEST_TIME = 1 << 47  # later than any time in an id
NEWEST = (1 << 62) - 1
CHANNELS: tuple[Channel, ...] = ("email", "sms", "whatsapp")
_MIN_RANDOM_PART, _MAX_RANDOM_PART = 0, (1 << 80) - 1  # limits of the random part of ids


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions for messages or verifications; None matches anything."""

    limit: int
    channel: Channel | None = None
    status: str | None = None
    failure: str | None = None  # one of FAILURE_STATES that any recipient has; set either `failure` or `status`
    address: str | None = None  # normalised; not combined with `needle`, `id_start`, `key_id` or `domain`
    needle: SearchQuery | None = None  # substring of a recipient, the subject or the id
    id_start: str | None = None  # beginning of the id, with its prefix
    template_id: str | None = None
    tag: tuple[str, str] | None = None  # name and value
    key_id: str | None = None
    domain: str | None = None  # domain of the sender
    oldest_first: bool = False
    created_after: int = 0
    created_before: int = LATEST_TIME
    before: str | None = None  # last id of the previous page
    # Offset of the team's test clock in ms: ids may be this much older than the times of their messages
    clock_offset: int = 0


class MessageListRow(msgspec.Struct, frozen=True):
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


class RecipientDetails(msgspec.Struct, frozen=True):
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
    row: MessageRow
    recipients: list[RecipientDetails]
    events: list[TimelineEvent]
    deliveries: dict[str, list[EventDelivery]]  # by event id
    version: str


class VerificationRow(msgspec.Struct, frozen=True):
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
    added: str  # optional fields of the request, as JSON
    reason: Literal["canceled"] | None  # reason of a failure; None if the carrier's error message explains it


Row = TypeVar("Row", MessageListRow, VerificationRow)


class SearchPage(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """One page of search results, in order."""

    rows: Sequence[Row]
    after: str | None = None  # cursor of the next page; None if this is the last page
    is_incomplete: bool = False  # the search stopped before the page was full


# -- lists -----------------------------------------------------------------------------------------------------


async def search_messages(tx: Tx, team: int, search: Search) -> SearchPage[MessageListRow]:
    """Return one page of a team's messages, through the cheapest index for the conditions."""
    if search.tag and not search.failure and not _needs_index(search):
        return await _search_tagged(tx, team, search, search.tag)
    if search.address is not None:
        return await _search_by_address(tx, team, search)
    if search.failure and not search.oldest_first:
        return await _search_failed(tx, team, search)
    if _needs_index(search):
        return await _search_index(tx, team, search)
    lowest, highest = _id_range(search)
    channels = _possible_channels(search)
    params: dict[str, Any] = {"team": team, "limit": search.limit + 1, **_time_params(search)}
    rows: list[Any] = []
    query = "search_messages"
    if search.status or search.template_id:
        query = "messages_in_states"
        params["states"] = await _possible_states(tx, team, search, channels)
    for channel in channels:
        prefix = PREFIXES[channel]
        rows += await tx.run(query, low=prefix + lowest, high=prefix + highest, **params)
    message_rows = sorted((MessageListRow(*row) for row in rows), key=lambda row: row.id[4:], reverse=True)
    return _result_page(message_rows, search.limit, None)


async def count_messages(tx: Tx, team: int, search: Search, limit: int) -> CountResult:
    """Count messages up to `limit`; approximate if the trigram index is needed."""
    search = msgspec.structs.replace(search, before=None)
    if _needs_index(search):
        if not (key_range := await _key_range(tx, team, search)):
            return CountResult(0)
        return await index_query.count_messages(tx, _search_filter(team, search), *key_range, limit)
    lowest, highest = _id_range(search)
    channels, total = _possible_channels(search), 0
    query, params = "count_messages", dict[str, Any]()
    if search.failure:
        query, params = "count_failed", {"status": search.failure}
    elif search.status or search.template_id:
        query, params = "count_in_states", {"states": await _possible_states(tx, team, search, channels)}
    for channel in channels:
        prefix = PREFIXES[channel]
        rows = await tx.run(query, team=team, low=prefix + lowest, high=prefix + highest, most=limit, **params)
        total += rows[0][0]
    return CountResult(min(limit, total), total >= limit)


async def count_by_state(tx: Tx, team: int, search: Search, limit: int) -> dict[str, int]:
    """Return state → number of messages with the searched tag or template.

    Counts the newest `limit` messages of each channel with the tag, or up to `limit` per state with the template.
    """
    if search.tag is None:
        all_states = dict.fromkeys(
            state for channel in _possible_channels(search) for state in STATES_BY_CHANNEL[channel]
        )
        return {
            state: (await count_messages(tx, team, msgspec.structs.replace(search, status=state), limit)).number
            for state in all_states
        }
    lowest, highest = _id_range(msgspec.structs.replace(search, before=None))
    counts = Counter[str]()
    for channel in _possible_channels(search):
        id_range = {"low": PREFIXES[channel] + lowest, "high": PREFIXES[channel] + highest}
        rows = await tx.run("states_of_tagged", team=team, tag=tag_hash(*search.tag), most=limit, **id_range)
        for state, number in rows:
            counts[state] += number
    return counts


async def count_recipients_by_state(tx: Tx, messages: Iterable[int]) -> dict[int, dict[str, int]]:
    """Return message key → state → number of recipients in that state."""
    counts_by_message: dict[int, dict[str, int]] = defaultdict(dict)
    for message, status, count in await tx.run("recipients_in_states", messages=[(key,) for key in messages]):
        counts_by_message[message][status] = count
    return counts_by_message


async def search_verifications(tx: Tx, team: int, search: Search, now: int) -> SearchPage[VerificationRow]:
    lowest, highest = (PREFIXES["verification"] + id_part for id_part in _id_range(search))
    params = {"team": team, "now": now, "limit": search.limit + 1, "low": lowest, "high": highest}
    params |= _time_params(search)
    if search.tag:
        filters = {"tag": tag_hash(*search.tag), "phone": search.address, "status": search.status}
        rows = await tx.run("tagged_verifications", **filters, **params)
    elif search.address is not None:
        rows = await tx.run("search_phone", phone=search.address, status=search.status, **params)
    elif search.status is None:
        rows = await tx.run("search_verifications", **params)
    else:
        rows = []
        for stored_status in {search.status, "pending"} if search.status == "expired" else {search.status}:
            rows += await tx.run("verifications_in_state", stored=stored_status, status=search.status, **params)
    verification_rows = sorted((VerificationRow(*row) for row in rows), key=lambda row: row.id, reverse=True)
    return _result_page(verification_rows, search.limit, None)


def _possible_channels(search: Search) -> list[Channel]:
    """Return the channels that a matching message can have."""
    states = search.failure or search.status
    return [
        channel
        for channel in CHANNELS
        if search.channel in (None, channel)
        and (states is None or states in STATES_BY_CHANNEL[channel])
        and (search.id_start is None or search.id_start.startswith(PREFIXES[channel]))
    ]


def with_team_clock(clock: Clock, team: int, search: Search) -> Search:
    """Return the search with its times shifted to the team's test clock."""
    return msgspec.structs.replace(search, clock_offset=clock.offsets[team]) if team in clock.offsets else search


def _id_range(search: Search) -> tuple[str, str]:
    """Return the lowest and the highest id that a matching message can have, without the ids' prefix."""
    lowest = ulid(max(0, search.created_after - CLOCK_ERROR_MAX_MS - search.clock_offset), _MAX_RANDOM_PART)
    highest = ulid(max(0, search.created_before + CLOCK_ERROR_MAX_MS), _MIN_RANDOM_PART)
    if search.id_start:
        lowest, highest = max(lowest, search.id_start[4:]), min(highest, search.id_start[4:] + "~")
    return lowest, min(highest, search.before[4:]) if search.before else highest


def _time_params(search: Search) -> dict[str, int]:
    return {"created_after": search.created_after, "created_before": search.created_before}


async def _possible_states(tx: Tx, team: int, search: Search, channels: Sequence[Channel]) -> list[tuple[str, str]]:
    """Return each pair of state and template that a matching message can have."""
    statuses = (
        {search.status} if search.status else {state for channel in channels for state in STATES_BY_CHANNEL[channel]}
    )
    if search.template_id:
        return [(state, search.template_id) for state in statuses if state]
    rows = await tx.run("templates_in_states", team=team, states=[(state,) for state in statuses])
    return [tuple(row) for row in rows]


def _result_page(rows: Sequence[Row], limit: int, continue_at: str | None) -> SearchPage[Row]:
    if len(rows) > limit:
        return SearchPage(rows=rows[:limit], after=rows[limit - 1].id)
    return SearchPage(rows=rows, after=continue_at, is_incomplete=continue_at is not None)


def _needs_index(search: Search) -> bool:
    """Return whether the search needs the trigram index."""
    needs_terms = search.key_id or search.domain or (search.failure and search.template_id)
    return bool(search.needle or needs_terms or search.oldest_first)


def _search_filter(team: int, search: Search) -> SearchFilter:
    return SearchFilter(
        team=team,
        needle=search.needle,
        channel=search.channel,
        template_id=search.template_id,
        key_id=search.key_id,
        domain=search.domain,
        tag=search.tag,
        sql_params={"status": search.status, "wrong": search.failure, **_time_params(search)},
    )


async def _key_range(tx: Tx, team: int, search: Search) -> tuple[int, int] | None:
    """Return the first and the last key that a matching message can have. None if no message can match."""
    lowest, highest = _id_range(msgspec.structs.replace(search, before=None))
    first_keys, last_keys = list[int](), list[int]()
    for prefix in (PREFIXES[channel] for channel in _possible_channels(search)):
        first_keys += [row[0] for row in await tx.run("first_key", team=team, low=prefix + lowest)]
        last_keys += [row[0] for row in await tx.run("last_key", team=team, high=prefix + highest)]
    if not first_keys or not last_keys:
        return None
    first_key, last_key = min(first_keys), max(last_keys)
    if search.before:
        key = await _key_of_id(tx, team, search.before)
        if search.oldest_first:
            first_key = max(first_key, key + 1)
        else:
            last_key = min(last_key, key - 1)
    return (first_key, last_key) if first_key <= last_key else None


async def _search_index(tx: Tx, team: int, search: Search) -> SearchPage[MessageListRow]:
    """Return a page of matching messages, found with the trigram index."""
    key_range = await _key_range(tx, team, search)
    if key_range is None:
        return SearchPage(rows=[])
    result = await index_query.find_messages(
        tx, _search_filter(team, search), *key_range, search.limit + 1, search.oldest_first
    )
    return _result_page([MessageListRow(*row[:7]) for row in result.rows], search.limit, result.continue_at)


async def _search_failed(tx: Tx, team: int, search: Search) -> SearchPage[MessageListRow]:
    """Return a page of matching messages from the index of recipients that bounced, complained or failed.

    Other conditions are checked per message, for at most about READ_MAX messages per channel.
    """
    lowest, highest = _id_range(search)
    search_filter, params = _search_filter(team, search), {"team": team, "status": search.failure}
    message_rows, last_ids = list[MessageListRow](), list[str]()
    for prefix in (PREFIXES[channel] for channel in _possible_channels(search)):
        upper_id, checked, rows = prefix + highest, 0, list[Any]()
        while len(rows) <= search.limit:
            ids = await tx.run("failed_messages", low=prefix + lowest, high=upper_id, limit=FAILED_BATCH, **params)
            batch = await tx.run("still_failed", ids=[tuple(row) for row in ids], **params, **_time_params(search))
            rows += filter(search_filter.matches, batch)
            checked += len(ids)
            if len(ids) < FAILED_BATCH:
                break
            upper_id = ids[-1][0]
            if checked >= index_query.READ_MAX:
                last_ids.append(upper_id[4:])
                break
        message_rows += [MessageListRow(*row[:7]) for row in rows]
    last_id = max(last_ids, default="")
    message_rows = sorted(
        (row for row in message_rows if row.id[4:] >= last_id), key=lambda row: row.id[4:], reverse=True
    )
    return _result_page(message_rows, search.limit, PREFIXES["email"] + last_id if last_id else None)


async def _search_tagged(tx: Tx, team: int, search: Search, tag: tuple[str, str]) -> SearchPage[MessageListRow]:
    """Return a page of matching messages from the index of tags."""
    lowest, highest = _id_range(search)
    params = {name: getattr(search, name) for name in ("address", "status", "template_id")} | _time_params(search)
    rows: list[Any] = []
    for prefix in (PREFIXES[channel] for channel in _possible_channels(search)):
        id_range = {"low": prefix + lowest, "high": prefix + highest, "limit": search.limit + 1}
        rows += await tx.run("tagged_messages", team=team, tag=tag_hash(*tag), **id_range, **params)
    message_rows = sorted((MessageListRow(*row) for row in rows), key=lambda row: row.id[4:], reverse=True)
    return _result_page(message_rows, search.limit, None)


async def _search_by_address(tx: Tx, team: int, search: Search) -> SearchPage[MessageListRow]:
    """Return a page of matching messages to an address, newest first.

    Waiting messages are read from the queues; attempted ones from the index of recipients, block by block.
    """
    ((oldest_block, block),) = await tx.run("recipient_index_range")
    field_names = ("address", "channel", "status", "template_id", "created_after", "created_before")
    before_key = await _key_of_id(tx, team, search.before) if search.before else NEWEST
    params = {"team": team, "before": before_key, **{name: getattr(search, name) for name in field_names}}
    rows = await tx.run("search_queued", lanes=QUEUES_AND_HELD, limit=search.limit + 1, **params)
    row_by_key = {row[0]: MessageListRow(*row) for row in rows}
    found_count, step = 0, 1
    block = None if block is None else min(block, before_key >> 12)
    while block is not None and block >= oldest_block and found_count <= search.limit:
        blocks = [(number,) for number in range(block, max(block - step, oldest_block - 1), -1)]
        rows = await tx.run("search_recipient_index", spans=blocks, limit=search.limit + 1 - found_count, **params)
        row_by_key |= {row[0]: MessageListRow(*row) for row in rows}
        found_count += len(rows)
        block, step = block - step, min(2 * step, 1024)
        if not rows:  # no matching rows in this block: continue at the next older block
            ((block,),) = await tx.run("next_recipient_block", span=block + 1)
    return _result_page(sorted(row_by_key.values(), key=lambda row: row.key, reverse=True), search.limit, None)


async def _key_of_id(tx: Tx, team: int, id_: str) -> int:
    """Return the key of the message with this id; if it was deleted, the key that the message would have."""
    rows = await tx.run("message_key_before", team=team, id=id_)
    return int(rows[0][0]) + (rows[0][1] != id_) if rows else 0


# -- one message ---------------------------------------------------------------------------------------------------


async def read_row(tx: Tx, team: int, id_: str, content_max: int = ANY_SIZE) -> MessageRow | None:
    """Return a message, without its content if that is longer than `content_max`. None if not found."""
    rows = await tx.run("message_details", team=team, id=id_, most=content_max)
    return MessageRow(*rows[0]) if rows else None


async def read_details(
    tx: Tx, team: int, id_: str, webhooks: Iterable[str], content_max: int = ANY_SIZE
) -> MessageDetails | None:
    """Return a message with recipients, timeline and webhook deliveries. None if not found."""
    message = await read_row(tx, team, id_, content_max)
    if message is None:
        return None
    key, version = message.key, await read_message_version(tx, team, id_)
    events = [TimelineEvent(*row) for row in await tx.run("message_events", message=key)]
    pairs = [(webhook, event.id) for webhook in webhooks for event in events if event.sequence is not None]
    return MessageDetails(
        row=message,
        recipients=[RecipientDetails(*row) for row in await tx.run("message_recipients", message=key)],
        events=events,
        deliveries=await _read_deliveries(tx, pairs) if pairs else {},
        version=version.version if version else "",
    )


async def _read_deliveries(tx: Tx, pairs: Sequence[tuple[str, str]]) -> dict[str, list[EventDelivery]]:
    delivery_rows = await tx.run("deliveries_of_events", pairs=pairs)
    attempts: dict[int, list[StoredAttempt]] = defaultdict(list)
    for key, *attempt in await tx.run("attempts_of", deliveries=[(row[0],) for row in delivery_rows]):
        attempts[key].append(StoredAttempt(*attempt))
    deliveries_by_event: dict[str, list[EventDelivery]] = defaultdict(list)
    for key, event, webhook, state, attempt in delivery_rows:
        deliveries_by_event[event].append(EventDelivery(webhook, state, attempt, attempts[key]))
    return deliveries_by_event
