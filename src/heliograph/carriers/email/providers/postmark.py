"""Postmark: webhooks with HTTP basic authentication. Each has a RecordType; bounces also have a Type."""

from collections.abc import Iterable
from typing import Any

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import (
    TRACKING_FIELD,
    EventKind,
    ProviderEvent,
    as_dict,
    as_text,
    first_text,
    tracking_id_in,
)
from heliograph.carriers.email.providers.provider import MailProvider, VerifiedCallback, decode_base64
from heliograph.carriers.http_client import decode_json, equal_constant_time

KIND_BY_BOUNCE_TYPE: dict[str, EventKind] = {
    "HardBounce": "bounced",
    "BadEmailAddress": "bounced",
    "SoftBounce": "failed",
    "DnsError": "failed",
    "Blocked": "failed",
    "SpamNotification": "failed",
    "VirusNotification": "failed",
    "DMARCPolicy": "failed",
    "SMTPApiError": "failed",
    "Unknown": "failed",
    "Transient": "deferred",
    "SpamComplaint": "complained",
    "Unsubscribe": "unsubscribed",
    "ManuallyDeactivated": "suppressed",
}
# Causes of bounce types; the Details of other types usually quote the server's reply.
CAUSE_BY_BOUNCE_TYPE = {
    "BadEmailAddress": "bad_address",
    "DnsError": "lookup",
    "Blocked": "blocklist",
    "SpamNotification": "spam",
    "VirusNotification": "spam",
    "DMARCPolicy": "authentication",
    "SMTPApiError": "rejected",
}
INACTIVE_RECIPIENT_TEXT = "marked as inactive"  # text of an SMTPApiError for a recipient on Postmark's suppression list


class Postmark(MailProvider):
    name = "postmark"

    def tracking_headers(self, message_id: str) -> dict[str, str]:
        return {TRACKING_FIELD: message_id, f"X-PM-Metadata-{TRACKING_FIELD}": message_id}

    def verify(self, callback: Callback) -> VerifiedCallback | None:
        scheme, _, encoded = callback.headers.get("authorization", "").partition(" ")
        credentials = decode_base64(encoded.strip()).decode("utf-8", "replace")
        if not equal_constant_time(credentials, self.options.secret) or scheme.lower() != "basic":
            return None
        return VerifiedCallback(payload=decode_json(callback.body))

    def parse_events(self, payload: Any) -> Iterable[ProviderEvent]:
        event = as_dict(payload)
        record_type, bounce_type = str(event.get("RecordType")), str(event.get("Type"))
        kind = _event_kind(record_type, bounce_type, bool(event.get("SuppressSending")))
        if bounce_type == "SMTPApiError" and INACTIVE_RECIPIENT_TEXT in str(event.get("Details")):
            kind = "suppressed"
        if kind is None:
            return
        id_ = as_text(event.get("MessageID"))
        yield ProviderEvent(
            kind=kind,
            event_name=f"{record_type} {bounce_type}" if record_type == "Bounce" else record_type,
            address=as_text(event.get("Recipient") or event.get("Email")),
            tracking_id=tracking_id_in(event.get("Metadata")),
            carrier_ids=(id_,) if id_ else (),
            text=first_text(event.get("Details"), event.get("Description")),
            cause=CAUSE_BY_BOUNCE_TYPE.get(bounce_type),
            at=as_text(event.get("DeliveredAt") or event.get("BouncedAt") or event.get("ChangedAt")),
        )


def _event_kind(record_type: str, bounce_type: str, suppresses: bool) -> EventKind | None:
    match record_type:
        case "Delivery":
            return "delivered"
        case "SpamComplaint":
            return "complained"
        case "SubscriptionChange" if suppresses:
            return "unsubscribed"
        case "Bounce":
            return KIND_BY_BOUNCE_TYPE.get(bounce_type)
    return None
