"""Postmark's outbound messages: sent mails and their state. Nothing is tracked, so there are no opens or clicks."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.compat.call import Call
from heliograph.compat.postmark.codec import COUNT_MAX, STREAM, asked, check_stream, page_of, span
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.events import DELAYED
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.mail.address import name_addr, parse_address, parse_name_addr
from heliograph.domain.refusals import InvalidRequest, MessageNotFound
from heliograph.domain.sending.send_options import MessageRecord, read_record
from heliograph.storage.search.message_search import (
    MessageDetails,
    MessageLine,
    MessageRow,
    Search,
    TimelineEvent,
)
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_of
from heliograph.webhooks.policy.formats.postmark import TAG, bounce_number

WAITS = "queued"
STATES = {WAITS: "Queued", "sending": "Processed"}  # every other state is Sent
EVENTS = {"delivered": "Delivered", "bounced": "Bounced", "complained": "Bounced", "failed": "Bounced"}
METADATA = "metadata_"


async def list_all(call: Call) -> Response:
    query = asked(call)
    lines, total = await page_of(query, _pages(call, _wanted(query)), _fits(query))
    octets = sum(len(line.record) for line in lines)
    await call.hold(octets)
    return await answer_of(octets, lambda: {"TotalCount": total, "Messages": [_message(line) for line in lines]})


async def read(call: Call) -> Response:
    found = await _found(call)
    facts = found.facts
    content = EmailContent(from_name="", from_address="", to=[], subject="")  # deleted by retention
    if facts.content is not None:
        content = await work(facts.size, msgspec.json.decode, facts.content, type=EmailContent)
    return await answer_of(facts.size, lambda: _message(facts) | _details(found, content))


async def read_source(call: Call) -> Response:
    """Return an empty source, because sources are not stored; Postmark does the same for an expired source."""
    await _found(call)
    return answer({"Body": ""})


async def list_opens(call: Call) -> Response:
    return answer({"TotalCount": 0, "Opens": list[Any]()})


async def list_clicks(call: Call) -> Response:
    return answer({"TotalCount": 0, "Clicks": list[Any]()})


async def _found(call: Call) -> MessageDetails:
    id_ = call.params["id"]
    is_email = id_.startswith(PREFIXES["email"])
    found = await call.context.store.messages.whole(call.team, id_, (), call.hold) if is_email else None
    if found is None:
        raise MessageNotFound(f"No message {id_[:80]!r}. Check the MessageID.", param="MessageID")
    return found


# -- filters ------------------------------------------------------------------------------------------------------


def _wanted(query: Mapping[str, str]) -> Search:
    check_stream(query.get("messagestream", STREAM))
    status = query.get("status", "").lower()
    if status not in ("", WAITS, "sent", "processed"):
        raise InvalidRequest("status is queued, sent or processed.", param="status")
    after, before = span(query)
    return Search(
        limit=COUNT_MAX,
        channel="email",
        status=WAITS if status == WAITS else None,
        address=_address(query["recipient"]) if "recipient" in query else None,
        tag=(TAG, query["tag"]) if "tag" in query else None,
        created_after=after,
        created_before=before,
    )


def _address(text: str) -> str:
    address = parse_address(text.replace(" ", "+"))  # an unencoded plus arrives as a space
    if address is None:
        raise InvalidRequest(f"recipient is a whole email address, not {text[:80]!r}.", param="recipient")
    return address.normal


async def _pages(call: Call, wanted: Search) -> AsyncIterator[Sequence[MessageLine]]:
    while True:
        page = await call.context.store.messages.search(call.team, wanted)
        yield page.lines
        if page.after is None:
            return
        wanted = replace(wanted, before=page.after)


def _fits(query: Mapping[str, str]) -> Callable[[MessageLine], bool]:
    """Return a filter for the query parameters that the store's search does not support."""
    sender, subject = query.get("fromemail", "").lower(), query.get("subject", "").lower()
    metadata = {name.removeprefix(METADATA): text for name, text in query.items() if name.startswith(METADATA)}
    left = query.get("status", WAITS).lower() != WAITS

    def fits(line: MessageLine) -> bool:
        if left and line.status == WAITS:
            return False
        if not (sender or subject or metadata):
            return True
        record = read_record(line.record)
        own = {name.lower(): str(value) for name, value in record.metadata.items()}
        return sender in record.from_.lower() and subject in record.subject.lower() and metadata.items() <= own.items()

    return fits


# -- records --------------------------------------------------------------------------------------------------------


def _message(found: MessageRow | MessageLine) -> dict[str, Any]:
    record = read_record(found.record)
    return {
        "MessageID": found.id,
        "MessageStream": STREAM,
        "Tag": record.tags.get(TAG),
        "To": [_mailbox(one) for one in record.to_addresses],
        "Cc": [_mailbox(one) for one in record.cc],
        "Bcc": [_mailbox(one) for one in record.bcc],
        "Recipients": _recipients(record),
        "ReceivedAt": record.created_at,
        "From": record.from_,
        "Subject": record.subject,
        "Attachments": [],
        "Status": STATES.get(found.status, "Sent"),
        "TrackOpens": False,
        "TrackLinks": "None",
        "Metadata": record.metadata,
    }


def _recipients(record: MessageRecord) -> list[str]:
    return [*record.to_addresses, *record.cc, *record.bcc]


def _mailbox(text: str) -> dict[str, str]:
    name, address = parse_name_addr(text) or (None, None)
    return {"Email": address.given if address else text, "Name": name or ""}


def _details(found: MessageDetails, content: EmailContent) -> dict[str, Any]:
    told = {
        "TextBody": content.text or "",
        "HtmlBody": content.html or "",
        "Body": "",
        "Attachments": [file.filename for file in content.attachments],
        "Sandboxed": bool(found.facts.sandbox),
        "MessageEvents": [_event(event) for event in found.events if event.status in EVENTS or event.type == DELAYED],
    }
    if content.to:  # the content has the recipients' names
        told |= {
            "From": name_addr(content.from_name, content.from_address),
            "To": [_mailbox(one) for one in content.to],
            "Cc": [_mailbox(one) for one in content.cc],
        }
    return told


def _event(event: TimelineEvent) -> dict[str, Any]:
    type_ = EVENTS.get(event.status or "", "Transient")
    words = msgspec.json.decode(event.detail).get("text", "") if event.detail else ""
    details = {"Summary": words, "BounceID": str(bounce_number(event.id))} if type_ == "Bounced" else {}
    if type_ != "Bounced":
        details = {"DeliveryMessage": words}
    return {"Recipient": event.recipient, "Type": type_, "ReceivedAt": timestamp(event.created_at), "Details": details}
