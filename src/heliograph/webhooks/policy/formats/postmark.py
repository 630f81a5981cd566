"""Events in Postmark's format, compatible with Postmark's libraries and django-anymail (compat.md)."""

import base64
import hashlib
from typing import Any

import msgspec

from heliograph.domain.delivery.outcome import LocalReason
from heliograph.domain.events import StoredEvent, event_data, is_hard_bounce
from heliograph.domain.ids import timestamp, ulid_ms
from heliograph.domain.setup.records import Team
from heliograph.webhooks.policy.signature import SignatureInput

INBOUND = "email.received"
RECORD_TYPE_BY_TYPE = {  # our event type → Postmark's record type
    INBOUND: "Inbound",
    "email.delivered": "Delivery",
    "email.bounced": "Bounce",
    "email.failed": "Bounce",
    "email.complained": "SpamComplaint",
    "suppression.created": "SubscriptionChange",
    "suppression.deleted": "SubscriptionChange",
}
# (Type, TypeCode, Name, Description), from Postmark's list
HARD_BOUNCE = ("HardBounce", 1, "Hard bounce", "The server was unable to deliver your message (ex: unknown user).")
SOFT_BOUNCE = ("SoftBounce", 4096, "Soft bounce", "The message was not delivered; the address may be good.")
SPAM_COMPLAINT = ("SpamComplaint", 100001, "Spam complaint", "The subscriber explicitly marked this message as spam.")
SUPPRESSED_BOUNCE = (
    "ManuallyDeactivated",
    100002,
    "Manually deactivated",
    "The address is on the team's suppression list.",
)
SUPPRESSION_REASON_BY_REASON = {"bounce": HARD_BOUNCE[0], "complaint": SPAM_COMPLAINT[0], "manual": "ManualSuppression"}
USER = "heliograph"
TAG = "tag"  # name of the tag that holds Postmark's single tag
EPOCH_S = 1_577_836_800  # 2020-01-01
# Seconds since EPOCH_S suffice until 2088; together with the hash, an id has 53 bits
SECOND_COUNT, HASH_BITS = 1 << 31, 22
_SUPPRESSED: LocalReason = "suppressed"


def sign(signing: SignatureInput) -> dict[str, str]:
    """Return Basic authorization, because Postmark does not sign; receivers can check the password instead."""
    password = base64.b64encode(f"{USER}:{signing.secrets[0]}".encode()).decode()
    return {"Authorization": f"Basic {password}"}


def body(event: StoredEvent, team: Team) -> bytes:
    data, record_type = event_data(event), RECORD_TYPE_BY_TYPE.get(event.type, event.type)
    occurred_at = timestamp(event.created_at)
    if event.type == INBOUND:
        return msgspec.json.encode(_inbound_payload(data, occurred_at))
    payload = {"RecordType": record_type, "ServerID": team.record.ref, "MessageStream": "outbound"}
    if record_type == "SubscriptionChange":
        payload |= {
            "MessageID": data["source_message_id"],
            "Recipient": data["email"],
            "ChangedAt": occurred_at,
            "Origin": origin_of(data["reason"]),
            "SuppressSending": event.type == "suppression.created",
            "SuppressionReason": SUPPRESSION_REASON_BY_REASON[data["reason"]],
        }
    elif event.type in RECORD_TYPE_BY_TYPE:
        payload |= _message_fields(data)
        if record_type == "Delivery":
            payload |= {"Recipient": data["recipient"], "DeliveredAt": occurred_at, "Details": ""}
        else:
            payload |= _bounce_fields(event, data, occurred_at)
    else:
        payload |= data
    return msgspec.json.encode(payload)


def _inbound_payload(data: dict[str, Any], occurred_at: str) -> dict[str, Any]:
    """Return an inbound mail's payload; attachments' content is only in GET /v1/received/:id/attachments/:id."""
    to, recipient = [*map(_full_address, data["to"])], next(iter(data["recipients"]), "")
    headers = [{"Name": name, "Value": value} for name, value in data["headers"]]
    first_by_name = {name.lower(): value for name, value in reversed(data["headers"])}
    return {
        "MessageStream": "inbound",
        "From": data["from"],
        "FromName": "",
        "FromFull": _full_address(data["from"]),
        "To": ", ".join(data["to"]),
        "ToFull": to,
        "Cc": ", ".join(data["cc"]),
        "CcFull": [*map(_full_address, data["cc"])],
        "Bcc": "",
        "BccFull": [],
        "OriginalRecipient": recipient,
        "MailboxHash": _mailbox_hash(recipient),
        "ReplyTo": first_by_name.get("reply-to", ""),
        "Subject": data["subject"],
        "MessageID": data["id"],
        "Date": first_by_name.get("date", occurred_at),
        "TextBody": data["text"] or "",
        "HtmlBody": data["html"] or "",
        "StrippedTextReply": data["reply_text"] or "",
        "Tag": "",
        "Headers": headers,
        "Attachments": [
            {
                "Name": attachment["filename"],
                "Content": "",
                "Data": "",  # clients read it if Content is empty; Postmark's test payloads do the same
                "ContentType": attachment["content_type"],
                "ContentLength": attachment["size"],
                "ContentID": attachment["content_id"] or "",
                "ID": attachment["id"],
            }
            for attachment in data["attachments"]
        ],
    }


def _full_address(address: str) -> dict[str, str]:
    return {"Email": address, "Name": "", "MailboxHash": _mailbox_hash(address)}


def _mailbox_hash(address: str) -> str:
    """Return the part of the local part after the plus sign."""
    return address.rpartition("@")[0].partition("+")[2]


def bounce_record(event: StoredEvent, team: Team) -> dict[str, Any]:
    """Return a bounce as in Postmark's list of bounces. Unlike the webhook's body, it may name a Bcc recipient."""
    data = event_data(event)
    common = {"RecordType": "Bounce", "ServerID": team.record.ref, "MessageStream": "outbound"}
    bounce = _bounce_fields(event, data | {"recipient": event.recipient}, timestamp(event.created_at))
    return common | _message_fields(data) | bounce


def origin_of(reason: str) -> str:
    return "Customer" if reason == "manual" else "Recipient"


def _message_fields(data: dict[str, Any]) -> dict[str, Any]:
    fields = {"MessageID": data["id"], "Metadata": data.get("metadata", {})}
    tag = data.get("tags", {}).get(TAG)
    return fields | {"Tag": tag} if tag else fields


def _bounce_fields(event: StoredEvent, data: dict[str, Any], occurred_at: str) -> dict[str, Any]:
    details = data.get("bounce") or data.get("error") or {}
    type_, code, name, description = HARD_BOUNCE
    is_inactive = event.status == "complained" or is_hard_bounce(event.status, details)
    if event.status == "complained":
        type_, code, name, description = SPAM_COMPLAINT
    elif not is_inactive:
        type_, code, name, description = SUPPRESSED_BOUNCE if details.get("reason") == _SUPPRESSED else SOFT_BOUNCE
    return {
        "ID": bounce_number(event.id),
        "Type": type_,
        "TypeCode": code,
        "Name": name,
        "Description": description,
        "Details": details.get("text", ""),
        "Email": data["recipient"],
        "From": data["from"],
        "Subject": data["subject"],
        "BouncedAt": occurred_at,
        "Inactive": is_inactive,
        "CanActivate": True,
        "DumpAvailable": False,
    }


def bounce_number(id_: str) -> int:
    """Return the numeric id of a bounce, with at most 53 bits: the event's time in seconds, then bits of a hash."""
    second = (ulid_ms(id_.partition("_")[2]) // 1000 - EPOCH_S) % SECOND_COUNT
    return second << HASH_BITS | int.from_bytes(hashlib.blake2b(id_.encode()).digest()) % (1 << HASH_BITS)


def bounce_second(number: int) -> int:
    return (number >> HASH_BITS) + EPOCH_S
