"""Compatibility API for Postmark, outbound messages: sent mails and their state.

There are no opens or clicks, because nothing is tracked.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.compat.call import Call
from heliograph.compat.postmark.codec import COUNT_MAX, STREAM, check_stream, read_page, read_query, time_range
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.events import DELAYED
from heliograph.domain.ids import PREFIXES, timestamp
from heliograph.domain.mail.address import format_name_addr, parse_address, parse_name_addr
from heliograph.domain.refusals import InvalidRequest, MessageNotFound
from heliograph.domain.sending.send_options import decode_record
from heliograph.storage.search.message_search import (
    MessageDetails,
    MessageListRow,
    MessageRow,
    Search,
    TimelineEvent,
)
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import json_response, large_json_response
from heliograph.webhooks.policy.formats.postmark import TAG, bounce_number

QUEUED = "queued"
STATUS_BY_STATE = {QUEUED: "Queued", "sending": "Processed"}  # states that are missing here: Sent
EVENT_TYPE_BY_STATUS = {"delivered": "Delivered", "bounced": "Bounced", "complained": "Bounced", "failed": "Bounced"}
METADATA_PREFIX = "metadata_"


async def list_all(call: Call) -> Response:
    query = read_query(call)
    rows, total = await read_page(query, _search_pages(call, _parse_search(query)), _make_filter(query))
    octets = sum(len(row.record) for row in rows)
    await call.reserve_memory(octets)
    return await large_json_response(
        octets, lambda: {"TotalCount": total, "Messages": [_message_json(row) for row in rows]}
    )


async def read(call: Call) -> Response:
    message = await _find_message(call)
    row = message.row
    content = EmailContent(from_name="", from_address="", to=[], subject="")  # if the content was deleted by retention
    if row.content is not None:
        content = await run_large(row.size, msgspec.json.decode, row.content, type=EmailContent)
    return await large_json_response(row.size, lambda: _message_json(row) | _details_json(message, content))


async def read_source(call: Call) -> Response:
    """Return an empty source, as Postmark does for expired sources: sources are not stored."""
    await _find_message(call)
    return json_response({"Body": ""})


async def list_opens(call: Call) -> Response:
    return json_response({"TotalCount": 0, "Opens": list[Any]()})


async def list_clicks(call: Call) -> Response:
    return json_response({"TotalCount": 0, "Clicks": list[Any]()})


async def _find_message(call: Call) -> MessageDetails:
    id_, messages = call.params["id"], call.context.store.messages
    is_email = id_.startswith(PREFIXES["email"])
    message = await messages.get_details(call.team, id_, (), call.reserve_memory) if is_email else None
    if message is None:
        raise MessageNotFound(f"No message {id_[:80]!r}. Check the MessageID.", param="MessageID")
    return message


# -- filters ------------------------------------------------------------------------------------------------------


def _parse_search(query: Mapping[str, str]) -> Search:
    check_stream(query.get("messagestream", STREAM))
    status = query.get("status", "").lower()
    if status not in ("", QUEUED, "sent", "processed"):
        raise InvalidRequest("status must be queued, sent or processed.", param="status")
    after, before = time_range(query)
    return Search(
        limit=COUNT_MAX,
        channel="email",
        status=QUEUED if status == QUEUED else None,
        address=_parse_recipient(query["recipient"]) if "recipient" in query else None,
        tag=(TAG, query["tag"]) if "tag" in query else None,
        created_after=after,
        created_before=before,
    )


def _parse_recipient(text: str) -> str:
    address = parse_address(text.replace(" ", "+"))  # a plus that was not percent-encoded arrives as a space
    if address is None:
        raise InvalidRequest(f"recipient must be a complete email address, not {text[:80]!r}.", param="recipient")
    return address.normal


async def _search_pages(call: Call, search: Search) -> AsyncIterator[Sequence[MessageListRow]]:
    while True:
        page = await call.context.store.messages.search(call.team, search)
        yield page.rows
        if page.after is None:
            return
        search = replace(search, before=page.after)


def _make_filter(query: Mapping[str, str]) -> Callable[[MessageListRow], bool]:
    """Return the filter for query parameters that the store's search does not support."""
    sender, subject = query.get("fromemail", "").lower(), query.get("subject", "").lower()
    metadata = {
        name.removeprefix(METADATA_PREFIX): text for name, text in query.items() if name.startswith(METADATA_PREFIX)
    }
    only_sent = query.get("status", QUEUED).lower() != QUEUED

    def matches(row: MessageListRow) -> bool:
        if only_sent and row.status == QUEUED:
            return False
        if not (sender or subject or metadata):
            return True
        record = decode_record(row.record)
        record_metadata = {name.lower(): str(value) for name, value in record.metadata.items()}
        return (
            sender in record.from_.lower()
            and subject in record.subject.lower()
            and metadata.items() <= record_metadata.items()
        )

    return matches


# -- records --------------------------------------------------------------------------------------------------------


def _message_json(row: MessageRow | MessageListRow) -> dict[str, Any]:
    record = decode_record(row.record)
    return {
        "MessageID": row.id,
        "MessageStream": STREAM,
        "Tag": record.tags.get(TAG),
        "To": [_mailbox_json(recipient) for recipient in record.to_addresses],
        "Cc": [_mailbox_json(recipient) for recipient in record.cc],
        "Bcc": [_mailbox_json(recipient) for recipient in record.bcc],
        "Recipients": [*record.to_addresses, *record.cc, *record.bcc],
        "ReceivedAt": record.created_at,
        "From": record.from_,
        "Subject": record.subject,
        "Attachments": [],
        "Status": STATUS_BY_STATE.get(row.status, "Sent"),
        "TrackOpens": False,
        "TrackLinks": "None",
        "Metadata": record.metadata,
    }


def _mailbox_json(text: str) -> dict[str, str]:
    name, address = parse_name_addr(text) or (None, None)
    return {"Email": address.original if address else text, "Name": name or ""}


def _details_json(message: MessageDetails, content: EmailContent) -> dict[str, Any]:
    details = {
        "TextBody": content.text or "",
        "HtmlBody": content.html or "",
        "Body": "",
        "Attachments": [file.filename for file in content.attachments],
        "Sandboxed": bool(message.row.sandbox),
        "MessageEvents": [
            _event_json(event)
            for event in message.events
            if event.status in EVENT_TYPE_BY_STATUS or event.type == DELAYED
        ],
    }
    if content.to:  # the content was not deleted by retention, and contains the recipients' names
        details |= {
            "From": format_name_addr(content.from_name, content.from_address),
            "To": [_mailbox_json(recipient) for recipient in content.to],
            "Cc": [_mailbox_json(recipient) for recipient in content.cc],
        }
    return details


def _event_json(event: TimelineEvent) -> dict[str, Any]:
    type_ = EVENT_TYPE_BY_STATUS.get(event.status or "", "Transient")
    text = msgspec.json.decode(event.detail).get("text", "") if event.detail else ""
    details = {"DeliveryMessage": text}
    if type_ == "Bounced":
        details = {"Summary": text, "BounceID": str(bounce_number(event.id))}
    return {"Recipient": event.recipient, "Type": type_, "ReceivedAt": timestamp(event.created_at), "Details": details}
