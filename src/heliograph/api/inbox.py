"""The test inbox of a sandbox team: lists messages that simulators delivered, and waits for new ones."""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace

from heliograph.accept.verify_start import inbox_text
from heliograph.api.call import Call
from heliograph.api.reading import read_to
from heliograph.domain.delivery.content import CONTENTS, EmailContent, SmsContent
from heliograph.domain.delivery.lanes import INBOX
from heliograph.domain.delivery.magic_recipients import magic_code
from heliograph.domain.delivery.routing import simulator_ids
from heliograph.domain.field_docs import CreatedAt, Id, Records, says, such_as
from heliograph.domain.ids import PREFIXES, id_pattern, parse_timestamp, timestamp
from heliograph.domain.limits import MIB, PARSED
from heliograph.domain.mail.inbox_inspection import code_in, find_code, find_links
from heliograph.domain.refusals import InsufficientScope, InvalidRequest, MessageNotFound, RateLimitExceeded
from heliograph.domain.setup.records import Channel
from heliograph.domain.text import whole_number
from heliograph.storage.inbox import CHANNELS, Captured, CodeLine, InboxLine, InboxSearch
from heliograph.web.paging import LIMIT, Listed, read_limit
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import Query, answer, answer_of

WAIT_MAX = 30  # seconds
WAITS_OF_A_KEY, WAITS = 10, 100  # concurrent waits per process; each counts towards ACTIVE_MAX
GAP_S = 0.05  # minimum time between two queries of a waiting request
OCTETS_MAX = 8 * MIB  # content in one response, which has at least one message
KINDS = (*CHANNELS, "verification")

QUERY = (
    LIMIT,
    Query("to", "Only what was delivered to this address or phone."),
    Query("channel", "Only this channel; codes of Verify are `verification`.", {"type": "string", "enum": list(KINDS)}),
    Query(
        "after",
        "Only what is newer: an id of the inbox, or an RFC 3339 time, compared with `created_at`. "
        "Not a cursor, unlike in the other lists: that is `before` here.",
    ),
    Query("before", "Only what is older: the last id of the page before."),
    Query(
        "wait",
        "Seconds to wait when there is nothing: answers as soon as a message is there, or with an empty list.",
        {"type": "integer", "minimum": 0, "maximum": WAIT_MAX, "default": 0},
    ),
)


class InboxView(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a simulator delivered it."""

    id: Annotated[Id, such_as("eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    channel: Annotated[str, says("The channel; `verification` for a code of Verify.", enum=list(KINDS))]
    to: Annotated[list[str], says("To whom a simulator delivered it.", example=["you@example.com"])]
    from_: Annotated[str | None, says("The sender; null where the carrier chooses it.", example="hello@demo.test")] = (
        msgspec.field(name="from")
    )
    subject: Annotated[str | None, says("The subject of an email.", example="Your code")]
    text: Annotated[
        str | None,
        says("The plain text; null when there is none, or when it is no longer kept.", example="Your code is 246810."),
    ]
    html: Annotated[str | None, says("The HTML of an email.")]
    code: Annotated[str | None, says("The one-time code in it, if one was found.", example="246810")]
    links: Annotated[list[str], says("The links in it, in their order.")]
    created_at: CreatedAt


class InboxList(Listed, frozen=True, kw_only=True):
    has_more: Annotated[bool, says("`true` when there is more: get it with `before` = the last id of this page.")]
    data: Records[InboxView]


async def list_all(call: Call) -> Response:
    _check_sandbox(call)
    query = call.query()
    limit, wait_s, wanted, kinds = read_limit(query), _wait(query), _wanted(query), _kinds(query)
    wanted = replace(wanted, limit=limit)
    found = await _find(call, kinds, wanted)
    if not found.data and wait_s:
        found = await _wait_for(call, kinds, wanted, wait_s)
    return await answer_of(sum(len(one.text or "") + len(one.html or "") for one in found.data), lambda: found)


async def read(call: Call) -> Response:
    _check_sandbox(call)
    id_, store = call.params["id"], call.context.store
    if id_.startswith(PREFIXES["verification"]):
        if code := await store.inbox.code(call.team, id_):
            return answer(_code(call, code))
    elif item := await store.inbox.item(call.team, id_, simulator_ids(store.setup.current.carriers), call.hold):
        to = [one.given for one in item.recipients]
        return await answer_of(item.size, lambda: _view(id_, item.channel, to, item.created_at, item.content))
    raise MessageNotFound(f"The test inbox has no message {id_[:80]!r}. {MessageNotFound.fix}", param="id")


def _check_sandbox(call: Call) -> None:
    if not call.caller.team.sandbox:
        raise InsufficientScope(
            "The test inbox is read with a key of a sandbox team, and the team of this key is live. "
            "Its messages are at GET /v1/emails, /v1/sms and /v1/whatsapp."
        )


# -- query parameters --------------------------------------------------------------------------------------------


def _wait(query: dict[str, str]) -> int:
    given = query.get("wait", "0")
    seconds = whole_number(given, 2)
    if seconds is None or seconds > WAIT_MAX:
        raise InvalidRequest(f"wait is a number of seconds from 0 to {WAIT_MAX}, not {given[:80]!r}.", param="wait")
    return seconds


def _kinds(query: dict[str, str]) -> Sequence[str]:
    kind = query.get("channel")
    if kind is not None and kind not in KINDS:
        raise InvalidRequest(f"channel is one of {', '.join(KINDS)}.", param="channel")
    return (kind,) if kind else KINDS


def _wanted(query: dict[str, str]) -> InboxSearch:
    after, before = query.get("after", ""), query.get("before", "")
    since = None
    if after and not _is_id(after):
        since, after = parse_timestamp(after), ""
        if since is None:
            raise InvalidRequest("after is an id of the inbox, or a time such as 2026-11-15T09:30:00Z.", param="after")
        since = max(0, since)  # ids encode no earlier time
    if before and not _is_id(before):
        raise InvalidRequest("before is the last id of the page before.", param="before")
    return InboxSearch(address=read_to(query, None), after=after, since=since, before=before)


def _is_id(text: str) -> bool:
    return any(re.fullmatch(id_pattern(kind), text) for kind in KINDS)


# -- search ------------------------------------------------------------------------------------------------------


async def _find(call: Call, kinds: Sequence[str], wanted: InboxSearch) -> InboxList:
    """Return matching messages and codes of `kinds`, newest first, as many as fit into one response."""
    store, lines = call.context.store, list[InboxLine | CodeLine]()
    carriers, more = simulator_ids(store.setup.current.carriers), False
    if channels := [channel for channel in CHANNELS if channel in kinds]:
        messages = await store.inbox.messages(call.team, channels, carriers, wanted)
        lines, more = [*messages.lines], messages.before is not None
    if "verification" in kinds:
        codes = await store.inbox.codes(call.team, wanted)
        lines, more = [*lines, *codes.lines], more or codes.before is not None
    lines.sort(key=lambda line: line.id[4:], reverse=True)
    shown = _fitting(lines[: wanted.limit])
    whole = await store.inbox.whole([line for line in shown if isinstance(line, InboxLine)], carriers, call.hold)
    views = await work(PARSED * sum(len(one.content or "") for one in whole), _views, whole)
    data = [_code(call, line) if isinstance(line, CodeLine) else views[line.id] for line in shown]
    return InboxList(has_more=bool(data) and (more or len(shown) < len(lines)), data=data)


def _fitting(lines: list[InboxLine | CodeLine]) -> list[InboxLine | CodeLine]:
    octets = 0
    for count, line in enumerate(lines):
        octets += line.size if isinstance(line, InboxLine) else 0
        if count and octets > OCTETS_MAX:
            return lines[:count]
    return lines


async def _wait_for(call: Call, kinds: Sequence[str], wanted: InboxSearch, wait_s: float) -> InboxList:
    """Wait up to `wait_s` for a match; query on each delivery wakeup and at poll intervals.

    No database connection or memory reservation is held while waiting.
    """
    context, time = call.context, asyncio.get_running_loop().time
    hints, waits, key = context.store.hints, context.state.waits, call.caller.key.id
    if waits[key] >= WAITS_OF_A_KEY or waits.total() >= WAITS:
        raise RateLimitExceeded(
            f"At most {WAITS_OF_A_KEY} requests of a key wait for the test inbox at once.", retry_after=1
        )
    waits[key] += 1
    try:
        end = time() + wait_s
        while True:
            found = await _find(call, kinds, wanted)
            left = end - time()
            if found.data or left <= 0 or context.state.draining or call.request.gone:
                return found
            await hints.bells[INBOX].wait(min(left, hints.poll_s))
            await asyncio.sleep(min(GAP_S, max(0.0, end - time())))
    finally:
        waits[key] -= 1


# -- responses ---------------------------------------------------------------------------------------------------


def _views(captured: Sequence[Captured]) -> dict[str, InboxView]:
    return {
        one.line.id: _view(one.line.id, one.line.channel, one.to, one.line.created_at, one.content) for one in captured
    }


def _view(id_: str, channel: Channel, to: list[str], created_at: int, content: str | None) -> InboxView:
    sender = subject = text = html = None
    if content:
        read = msgspec.json.decode(content, type=CONTENTS[channel])
        if isinstance(read, EmailContent):
            sender, subject, text, html = read.from_address, read.subject, read.text, read.html
        else:
            sender, text = read.sender_id if isinstance(read, SmsContent) else None, read.body
    return InboxView(
        id=id_,
        channel=channel,
        to=to,
        from_=sender,
        subject=subject,
        text=text,
        html=html,
        code=code_in(subject, text, html),
        links=find_links(html, text),
        created_at=timestamp(created_at),
    )


def _code(call: Call, line: CodeLine) -> InboxView:
    """Return the inbox entry of a verification.

    It shows the code while pending, if the team allows its keys to read codes (contract 8).
    """
    readable = call.caller.team.record.verify.inbox
    pending = readable and line.status == "pending" and not line.magic
    text = inbox_text(call.context, call.caller, line.id, line.added) if pending else None
    return InboxView(
        id=line.id,
        channel="verification",
        to=[line.phone],
        from_=None,
        subject=None,
        text=text,
        html=None,
        code=find_code(text) if text else magic_code(line.phone) if readable and line.magic else None,
        links=[],
        created_at=timestamp(line.created_at),
    )
