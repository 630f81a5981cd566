"""The test inbox of a sandbox team: lists messages delivered by simulators, and waits for new ones."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace

from heliograph.accept.verify_start import code_message_text
from heliograph.api.call import Call
from heliograph.api.reading import parse_to
from heliograph.domain.delivery.content import CONTENT_TYPE_BY_CHANNEL, EmailContent, SmsContent
from heliograph.domain.delivery.lanes import INBOX
from heliograph.domain.delivery.routing import simulator_ids
from heliograph.domain.field_docs import CreatedAt, Id, Records, describe, with_example
from heliograph.domain.ids import PREFIXES, id_pattern, parse_timestamp, timestamp
from heliograph.domain.limits import MIB, SCAN_COST_FACTOR
from heliograph.domain.mail.inbox_inspection import find_code, find_links, find_message_code
from heliograph.domain.refusals import InsufficientScope, InvalidRequest, MessageNotFound, RateLimitExceeded
from heliograph.domain.setup.records import Channel
from heliograph.domain.text import parse_int
from heliograph.storage.inbox import CHANNELS, CapturedMessage, CodeRow, InboxRow, InboxSearch
from heliograph.web.paging import LIMIT, ListPage, read_limit
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response, large_json_response

WAIT_MAX = 30  # seconds
# maximum concurrent waiting requests in this process; they also count against `app.ACTIVE_MAX`
WAITS_PER_KEY_MAX, WAITS_MAX = 10, 100
QUERY_GAP_S = 0.05  # minimum time between two database queries of a waiting request
OCTETS_MAX = 8 * MIB  # maximum bytes of content in a response; a single message may be larger
KINDS = (*CHANNELS, "verification")

QUERY = (
    LIMIT,
    QueryParam("to", "Only messages delivered to this address or phone number."),
    QueryParam(
        "channel", "Only this channel; `verification` for one-time codes.", {"type": "string", "enum": list(KINDS)}
    ),
    QueryParam(
        "after",
        "Only newer messages: an id of the inbox, or an RFC 3339 time, compared with `created_at`. "
        "Unlike in other lists, this is not the page cursor; use `before` to get the next page.",
    ),
    QueryParam("before", "Only older messages: the last id of the previous page."),
    QueryParam(
        "wait",
        "Seconds to wait if no message matches. Returns as soon as one arrives, or an empty list after the wait.",
        {"type": "integer", "minimum": 0, "maximum": WAIT_MAX, "default": 0},
    ),
)


class InboxView(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a simulator delivered."""

    id: Annotated[Id, with_example("eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    channel: Annotated[str, describe("The channel; `verification` for a one-time code.", enum=list(KINDS))]
    to: Annotated[list[str], describe("The recipients.", example=["you@example.com"])]
    from_: Annotated[str | None, describe("The sender; null if the carrier chooses it.", example="hello@demo.test")] = (
        msgspec.field(name="from")
    )
    subject: Annotated[str | None, describe("The subject of an email.", example="Your code")]
    text: Annotated[
        str | None,
        describe("The plain text; null if there is none or it is no longer stored.", example="Your code is 246810."),
    ]
    html: Annotated[str | None, describe("The HTML of an email.")]
    code: Annotated[str | None, describe("The one-time code found in the message, if any.", example="246810")]
    links: Annotated[list[str], describe("The links in the message, in order.")]
    created_at: CreatedAt


class InboxList(ListPage, frozen=True, kw_only=True):
    has_more: Annotated[
        bool, describe("`true` if there is a next page: get it with `before` = the last id of this page.")
    ]
    data: Records[InboxView]


async def list_all(call: Call) -> Response:
    _check_sandbox(call)
    query = call.query()
    limit, wait_s, search, kinds = read_limit(query), _parse_wait(query), _parse_search(query), _parse_kinds(query)
    search = replace(search, limit=limit)
    result = await _search_inbox(call, kinds, search)
    if not result.data and wait_s:
        result = await _wait_for_match(call, kinds, search, wait_s)
    return await large_json_response(
        sum(len(message.text or "") + len(message.html or "") for message in result.data), lambda: result
    )


async def read(call: Call) -> Response:
    _check_sandbox(call)
    id_, store = call.params["id"], call.context.store
    if id_.startswith(PREFIXES["verification"]):
        if code := await store.inbox.get_code(call.team, id_):
            return json_response(_code_view(call, code))
    elif item := await store.inbox.get_message(
        call.team, id_, simulator_ids(store.setup.current.carriers), call.reserve_memory
    ):
        to = [recipient.given_address for recipient in item.recipients]
        return await large_json_response(
            item.size, lambda: _message_view(id_, item.channel, to, item.created_at, item.content)
        )
    raise MessageNotFound(f"The test inbox has no message {id_[:80]!r}. {MessageNotFound.fix}", param="id")


def _check_sandbox(call: Call) -> None:
    if not call.caller.team.sandbox:
        raise InsufficientScope(
            "The test inbox needs a key of a sandbox team, and this key's team is live. "
            "List its messages with GET /v1/emails, /v1/sms and /v1/whatsapp."
        )


# -- query parameters --------------------------------------------------------------------------------------------


def _parse_wait(query: dict[str, str]) -> int:
    text = query.get("wait", "0")
    seconds = parse_int(text, 2)
    if seconds is None or seconds > WAIT_MAX:
        raise InvalidRequest(f"wait must be a number of seconds from 0 to {WAIT_MAX}, not {text[:80]!r}.", param="wait")
    return seconds


def _parse_kinds(query: dict[str, str]) -> Sequence[str]:
    kind = query.get("channel")
    if kind is not None and kind not in KINDS:
        raise InvalidRequest(f"channel must be one of {', '.join(KINDS)}.", param="channel")
    return (kind,) if kind else KINDS


def _parse_search(query: dict[str, str]) -> InboxSearch:
    after, before = query.get("after", ""), query.get("before", "")
    since = None
    if after and not _is_id(after):
        since, after = parse_timestamp(after), ""
        if since is None:
            raise InvalidRequest(
                "after must be an id of the inbox, or a time such as 2026-11-15T09:30:00Z.", param="after"
            )
        since = max(0, since)  # the time in an id cannot be negative
    if before and not _is_id(before):
        raise InvalidRequest("before must be the last id of the previous page.", param="before")
    return InboxSearch(address=parse_to(query, None), after=after, since=since, before=before)


def _is_id(text: str) -> bool:
    return any(re.fullmatch(id_pattern(kind), text) for kind in KINDS)


# -- search ------------------------------------------------------------------------------------------------------


async def _search_inbox(call: Call, kinds: Sequence[str], search: InboxSearch) -> InboxList:
    """Return matching messages and codes of `kinds`, newest first, as many as fit in a response."""
    store, rows = call.context.store, list[InboxRow | CodeRow]()
    carriers, has_more = simulator_ids(store.setup.current.carriers), False
    if channels := [channel for channel in CHANNELS if channel in kinds]:
        messages = await store.inbox.list_messages(call.team, channels, carriers, search)
        rows, has_more = [*messages.rows], messages.before is not None
    if "verification" in kinds:
        codes = await store.inbox.list_codes(call.team, search)
        rows, has_more = [*rows, *codes.rows], has_more or codes.before is not None
    rows.sort(key=lambda row: row.id[4:], reverse=True)
    page_rows = _limit_size(rows[: search.limit])
    captured = await store.inbox.get_contents(
        [row for row in page_rows if isinstance(row, InboxRow)], carriers, call.reserve_memory
    )
    views = await run_large(
        SCAN_COST_FACTOR * sum(len(message.content or "") for message in captured), _message_views, captured
    )
    data = [_code_view(call, row) if isinstance(row, CodeRow) else views[row.id] for row in page_rows]
    return InboxList(has_more=bool(data) and (has_more or len(page_rows) < len(rows)), data=data)


def _limit_size(rows: list[InboxRow | CodeRow]) -> list[InboxRow | CodeRow]:
    octets = 0
    for count, row in enumerate(rows):
        octets += row.size if isinstance(row, InboxRow) else 0
        if count and octets > OCTETS_MAX:
            return rows[:count]
    return rows


async def _wait_for_match(call: Call, kinds: Sequence[str], search: InboxSearch, wait_s: float) -> InboxList:
    """Wait up to `wait_s` for a match; query after each wakeup, and once per poll interval.

    While waiting, the request holds no database connection and reserves no memory.
    """
    context, loop_time = call.context, asyncio.get_running_loop().time
    wakeups, waits, key = context.store.wakeups, context.state.inbox_waits, call.caller.key.id
    if waits[key] >= WAITS_PER_KEY_MAX or waits.total() >= WAITS_MAX:
        raise RateLimitExceeded(
            f"At most {WAITS_PER_KEY_MAX} requests per key can wait for the test inbox at the same time.", retry_after=1
        )
    waits[key] += 1
    try:
        deadline = loop_time() + wait_s
        while True:
            result = await _search_inbox(call, kinds, search)
            remaining_s = deadline - loop_time()
            if result.data or remaining_s <= 0 or context.state.draining or call.request.gone:
                return result
            await wakeups.by_kind[INBOX].wait(min(remaining_s, wakeups.poll_s))
            await asyncio.sleep(min(QUERY_GAP_S, max(0.0, deadline - loop_time())))
    finally:
        waits[key] -= 1


# -- responses ---------------------------------------------------------------------------------------------------


def _message_views(captured: Sequence[CapturedMessage]) -> dict[str, InboxView]:
    return {
        message.row.id: _message_view(
            message.row.id, message.row.channel, message.recipients, message.row.created_at, message.content
        )
        for message in captured
    }


def _message_view(id_: str, channel: Channel, to: list[str], created_at: int, content: str | None) -> InboxView:
    sender = subject = text = html = None
    if content:
        decoded = msgspec.json.decode(content, type=CONTENT_TYPE_BY_CHANNEL[channel])
        if isinstance(decoded, EmailContent):
            sender, subject, text, html = decoded.from_address, decoded.subject, decoded.text, decoded.html
        else:
            sender, text = decoded.sender_id if isinstance(decoded, SmsContent) else None, decoded.body
    return InboxView(
        id=id_,
        channel=channel,
        to=to,
        from_=sender,
        subject=subject,
        text=text,
        html=html,
        code=find_message_code(subject, text, html),
        links=find_links(html, text),
        created_at=timestamp(created_at),
    )


def _code_view(call: Call, row: CodeRow) -> InboxView:
    """Return the inbox entry of a verification.

    It contains the code while the verification is pending, if the team allows its keys to read codes (contract 8).
    """
    is_readable = call.caller.team.record.verify.inbox and row.status == "pending"
    text = code_message_text(call.context, call.caller, row) if is_readable else None
    return InboxView(
        id=row.id,
        channel="verification",
        to=[row.phone],
        from_=None,
        subject=None,
        text=text,
        html=None,
        code=find_code(text) if text else None,
        links=[],
        created_at=timestamp(row.created_at),
    )
