"""Postal's messages: sent mails and their delivery attempts."""

from collections.abc import Mapping
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.postal.codec import envelope
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.events import DELAYED
from heliograph.domain.ids import PREFIXES, parse_timestamp
from heliograph.domain.refusals import MessageNotFound
from heliograph.domain.sending.send_options import MessageRecord, read_record
from heliograph.storage.search.message_search import MessageDetails, TimelineEvent
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.webhooks.policy.formats.postal import TAG, message_id

WAITS = "Pending"
STATES = {"queued": WAITS, "sending": WAITS, "bounced": "Bounced", "failed": "HardFail"}  # every other state is Sent
TRIES = {"delivered": "Sent", "bounced": "Bounced", "failed": "HardFail"}
# All parts of a message that clients can request; parts that are not stored are empty.
PARTS = (
    *("status", "details", "inspection", "plain_body", "html_body", "attachments", "headers", "raw_message"),
    "activity_entries",
)


class PostalMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str | int
    expansions: bool | list[str] | None = msgspec.field(default=None, name="_expansions")


async def read(call: Call) -> Response:
    asked = given_as(PostalMessage, call.json)
    found = await _found(call, asked.id)
    content = EmailContent(from_name="", from_address="", to=[], subject="")  # deleted by retention
    if found.facts.content is not None:
        content = await work(found.facts.size, msgspec.json.decode, found.facts.content, type=EmailContent)
    wanted = PARTS if asked.expansions is True else asked.expansions or ()
    parts = _parts(found, content)
    told = {"id": found.facts.id, "token": found.facts.id}
    return envelope("success", told | {name: parts[name] for name in PARTS if name in wanted})


async def list_tries(call: Call) -> Response:
    found = await _found(call, given_as(PostalMessage, call.json).id)
    return envelope("success", [_try(n, event) for n, event in enumerate(_tries(found), 1)])


def _tries(found: MessageDetails) -> list[TimelineEvent]:
    return [event for event in found.events if event.status in TRIES or event.type == DELAYED]


async def _found(call: Call, given: str | int) -> MessageDetails:
    id_ = str(given)
    is_email = id_.startswith(PREFIXES["email"])
    found = await call.context.store.messages.whole(call.team, id_, (), call.hold) if is_email else None
    if found is None:
        raise MessageNotFound("No message was found that matches this id.", param="id")
    return found


def _parts(found: MessageDetails, content: EmailContent) -> Mapping[str, Any]:
    facts, record = found.facts, read_record(found.facts.record)
    last = max((event.created_at for event in _tries(found)), default=None)
    return {
        "status": {
            "status": STATES.get(facts.status, "Sent"),
            "last_delivery_attempt": _seconds(last) if last else None,
            "held": False,
            "hold_expiry": None,
        },
        "details": _details(facts.id, record),
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
    made = parse_timestamp(record.created_at)
    return {
        "rcpt_to": record.to_addresses[0] if record.to_addresses else "",
        "mail_from": record.from_,
        "subject": record.subject,
        "message_id": message_id(id_, record.from_),
        "timestamp": _seconds(made) if made else None,
        "direction": "outgoing",
        "size": "0",
        "bounce": 0,
        "bounce_for_id": 0,
        "tag": record.tags.get(TAG),
        "received_with_ssl": None,
    }


def _try(number: int, event: TimelineEvent) -> dict[str, Any]:
    words = msgspec.json.decode(event.detail).get("text", "") if event.detail else ""
    return {
        "id": number,
        "status": TRIES.get(event.status or "", "SoftFail"),
        "details": words,
        "output": words,
        "sent_with_ssl": False,
        "log_id": event.id,
        "time": None,
        "timestamp": _seconds(event.created_at),
    }


def _seconds(at_ms: int) -> float:
    return at_ms / 1000
