"""Compatibility API for Postal, messages: sent mails and their delivery attempts."""

from collections.abc import Mapping
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.postal.codec import envelope
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.events import DELAYED
from heliograph.domain.ids import PREFIXES, parse_timestamp
from heliograph.domain.refusals import MessageNotFound
from heliograph.domain.sending.send_options import MessageRecord, decode_record
from heliograph.storage.search.message_search import MessageDetails, TimelineEvent
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.webhooks.policy.formats.postal import TAG, message_id

PENDING = "Pending"
# our state → Postal's status; all states that are missing here have the status Sent
STATUS_BY_STATE = {"queued": PENDING, "sending": PENDING, "bounced": "Bounced", "failed": "HardFail"}
ATTEMPT_STATUS_BY_STATE = {"delivered": "Sent", "bounced": "Bounced", "failed": "HardFail"}
# All parts of a message that clients can request; parts that are not stored are empty.
EXPANSIONS = (
    *("status", "details", "inspection", "plain_body", "html_body", "attachments", "headers", "raw_message"),
    "activity_entries",
)


class PostalMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str | int
    expansions: bool | list[str] | None = msgspec.field(default=None, name="_expansions")


async def read(call: Call) -> Response:
    request = parse_request(PostalMessage, call.json)
    message = await _find_message(call, request.id)
    content = EmailContent(from_name="", from_address="", to=[], subject="")  # if the content was deleted by retention
    if message.row.content is not None:
        content = await run_large(message.row.size, msgspec.json.decode, message.row.content, type=EmailContent)
    requested = EXPANSIONS if request.expansions is True else request.expansions or ()
    parts = _parts(message, content)
    body = {"id": message.row.id, "token": message.row.id}
    return envelope("success", body | {name: parts[name] for name in EXPANSIONS if name in requested})


async def list_attempts(call: Call) -> Response:
    message = await _find_message(call, parse_request(PostalMessage, call.json).id)
    return envelope("success", [_attempt(n, event) for n, event in enumerate(_attempt_events(message), 1)])


def _attempt_events(message: MessageDetails) -> list[TimelineEvent]:
    return [event for event in message.events if event.status in ATTEMPT_STATUS_BY_STATE or event.type == DELAYED]


async def _find_message(call: Call, raw_id: str | int) -> MessageDetails:
    id_, messages = str(raw_id), call.context.store.messages
    is_email = id_.startswith(PREFIXES["email"])
    message = await messages.get_details(call.team, id_, (), call.reserve_memory) if is_email else None
    if message is None:
        raise MessageNotFound("No message was found that matches this id.", param="id")
    return message


def _parts(message: MessageDetails, content: EmailContent) -> Mapping[str, Any]:
    row, record = message.row, decode_record(message.row.record)
    last_attempt = max((event.created_at for event in _attempt_events(message)), default=None)
    return {
        "status": {
            "status": STATUS_BY_STATE.get(row.status, "Sent"),
            "last_delivery_attempt": _seconds(last_attempt) if last_attempt else None,
            "held": False,
            "hold_expiry": None,
        },
        "details": _details(row.id, record),
        "inspection": {"inspected": False, "spam": False, "spam_score": 0.0, "threat": False, "threat_details": None},
        "plain_body": content.text,
        "html_body": content.html,
        "attachments": [
            {"filename": file.filename, "content_type": file.content_type, "data": "", "size": file.size, "hash": ""}
            for file in content.attachments
        ],
        "headers": {name.lower(): [value] for name, value in content.headers.items()},
        "raw_message": "",
        "activity_entries": {"loads": [], "clicks": []},
    }


def _details(id_: str, record: MessageRecord) -> dict[str, Any]:
    created_ms = parse_timestamp(record.created_at)
    return {
        "rcpt_to": record.to_addresses[0] if record.to_addresses else "",
        "mail_from": record.from_,
        "subject": record.subject,
        "message_id": message_id(id_, record.from_),
        "timestamp": _seconds(created_ms) if created_ms else None,
        "direction": "outgoing",
        "size": "0",
        "bounce": 0,
        "bounce_for_id": 0,
        "tag": record.tags.get(TAG),
        "received_with_ssl": None,
    }


def _attempt(number: int, event: TimelineEvent) -> dict[str, Any]:
    text = msgspec.json.decode(event.detail).get("text", "") if event.detail else ""
    return {
        "id": number,
        "status": ATTEMPT_STATUS_BY_STATE.get(event.status or "", "SoftFail"),
        "details": text,
        "output": text,
        "sent_with_ssl": False,
        "log_id": event.id,
        "time": None,
        "timestamp": _seconds(event.created_at),
    }


def _seconds(at_ms: int) -> float:
    return at_ms / 1000
