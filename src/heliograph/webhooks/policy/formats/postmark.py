"""Events in Postmark's format, compatible with Postmark's libraries and django-anymail (compat.md)."""

import base64
import hashlib
from typing import Any

import msgspec

from heliograph.domain.delivery.outcome import Own
from heliograph.domain.events import StoredEvent, event_data, is_hard
from heliograph.domain.ids import timestamp, ulid_ms
from heliograph.domain.setup.records import Team
from heliograph.webhooks.policy.signature import Signing

INBOUND = "email.received"
TYPES = {  # our type: Postmark's record type
    INBOUND: "Inbound",
    "email.delivered": "Delivery",
    "email.bounced": "Bounce",
    "email.failed": "Bounce",
    "email.complained": "SpamComplaint",
    "suppression.created": "SubscriptionChange",
    "suppression.deleted": "SubscriptionChange",
}
# Type, TypeCode, Name and Description, from Postmark's list.
HARD = ("HardBounce", 1, "Hard bounce", "The server was unable to deliver your message (ex: unknown user).")
SOFT = ("SoftBounce", 4096, "Soft bounce", "The message was not delivered; the address may be good.")
SPAM = ("SpamComplaint", 100001, "Spam complaint", "The subscriber explicitly marked this message as spam.")
HELD = ("ManuallyDeactivated", 100002, "Manually deactivated", "The address is on the team's suppression list.")
REASONS = {"bounce": HARD[0], "complaint": SPAM[0], "manual": "ManualSuppression"}
USER = "heliograph"
TAG = "tag"  # our tag that holds Postmark's single tag
SINCE_S = 1_577_836_800  # start of 2020
SECONDS, HASH_BITS = 1 << 31, 22  # together 53 bits, until 2088
_SUPPRESSED: Own = "suppressed"


def sign(signing: Signing) -> dict[str, str]:
    """Return Basic authentication headers: Postmark signs nothing.

    Receivers check the password, as django-anymail does with WEBHOOK_SECRET.
    """
    password = base64.b64encode(f"{USER}:{signing.secrets[0]}".encode()).decode()
    return {"Authorization": f"Basic {password}"}


def body(event: StoredEvent, team: Team) -> bytes:
    own, kind = event_data(event), TYPES.get(event.type, event.type)
    at = timestamp(event.created_at)
    if event.type == INBOUND:
        return msgspec.json.encode(_inbound(own, at))
    told = {"RecordType": kind, "ServerID": team.record.ref, "MessageStream": "outbound"}
    if kind == "SubscriptionChange":
        told |= {
            "MessageID": own["source_message_id"],
            "Recipient": own["email"],
            "ChangedAt": at,
            "Origin": origin_of(own["reason"]),
            "SuppressSending": event.type == "suppression.created",
            "SuppressionReason": REASONS[own["reason"]],
        }
    elif event.type in TYPES:
        told |= _about(own) | (_delivery(own, at) if kind == "Delivery" else _bounce(event, own, at))
    else:
        told |= own
    return msgspec.json.encode(told)


def _inbound(own: dict[str, Any], at: str) -> dict[str, Any]:
    """Return the payload of an inbound mail. Attachment content is only in GET /v1/received/:id/attachments/:id."""
    to, recipient = [*map(_full, own["to"])], next(iter(own["recipients"]), "")
    headers = [{"Name": name, "Value": value} for name, value in own["headers"]]
    first = {name.lower(): value for name, value in reversed(own["headers"])}
    return {
        "MessageStream": "inbound",
        "From": own["from"],
        "FromName": "",
        "FromFull": _full(own["from"]),
        "To": ", ".join(own["to"]),
        "ToFull": to,
        "Cc": ", ".join(own["cc"]),
        "CcFull": [*map(_full, own["cc"])],
        "Bcc": "",
        "BccFull": [],
        "OriginalRecipient": recipient,
        "MailboxHash": _hash(recipient),
        "ReplyTo": first.get("reply-to", ""),
        "Subject": own["subject"],
        "MessageID": own["id"],
        "Date": first.get("date", at),
        "TextBody": own["text"] or "",
        "HtmlBody": own["html"] or "",
        "StrippedTextReply": own["reply_text"] or "",
        "Tag": "",
        "Headers": headers,
        "Attachments": [
            {
                "Name": one["filename"],
                "Content": "",
                "Data": "",  # read by clients if Content is empty, as in Postmark's test payloads
                "ContentType": one["content_type"],
                "ContentLength": one["size"],
                "ContentID": one["content_id"] or "",
                "ID": one["id"],
            }
            for one in own["attachments"]
        ],
    }


def _full(address: str) -> dict[str, str]:
    return {"Email": address, "Name": "", "MailboxHash": _hash(address)}


def _hash(address: str) -> str:
    """Return the part of the local part after the plus sign."""
    return address.rpartition("@")[0].partition("+")[2]


def bounced(event: StoredEvent, team: Team) -> dict[str, Any]:
    """Return a bounce as in the list of bounces, which may show a Bcc recipient."""
    own = event_data(event)
    common = {"RecordType": "Bounce", "ServerID": team.record.ref, "MessageStream": "outbound"}
    told = _bounce(event, own | {"recipient": event.recipient}, timestamp(event.created_at))
    return common | _about(own) | told


def origin_of(reason: str) -> str:
    return "Customer" if reason == "manual" else "Recipient"


def _about(own: dict[str, Any]) -> dict[str, Any]:
    about = {"MessageID": own["id"], "Metadata": own.get("metadata", {})}
    tag = own.get("tags", {}).get(TAG)
    return about | {"Tag": tag} if tag else about


def _delivery(own: dict[str, Any], at: str) -> dict[str, Any]:
    return {"Recipient": own["recipient"], "DeliveredAt": at, "Details": ""}


def _bounce(event: StoredEvent, own: dict[str, Any], at: str) -> dict[str, Any]:
    words = own.get("bounce") or own.get("error") or {}
    type_, code, name, about = HARD
    is_inactive = event.status == "complained" or is_hard(event.status, words)
    if event.status == "complained":
        type_, code, name, about = SPAM
    elif not is_inactive:
        type_, code, name, about = HELD if words.get("reason") == _SUPPRESSED else SOFT
    return {
        "ID": bounce_number(event.id),
        "Type": type_,
        "TypeCode": code,
        "Name": name,
        "Description": about,
        "Details": words.get("text", ""),
        "Email": own["recipient"],
        "From": own["from"],
        "Subject": own["subject"],
        "BouncedAt": at,
        "Inactive": is_inactive,
        "CanActivate": True,
        "DumpAvailable": False,
    }


def bounce_number(id_: str) -> int:
    """Return a numeric bounce id that fits in 53 bits and encodes the second of the event."""
    second = (ulid_ms(id_.partition("_")[2]) // 1000 - SINCE_S) % SECONDS
    return second << HASH_BITS | int.from_bytes(hashlib.blake2b(id_.encode()).digest()) % (1 << HASH_BITS)


def second_of(number: int) -> int:
    return (number >> HASH_BITS) + SINCE_S
