"""Postmark: webhooks with HTTP basic authentication; each has a RecordType, and bounces also a Type."""

from collections.abc import Iterable
from typing import Any

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import (
    FIELD,
    ProviderEvent,
    What,
    along_in,
    fields_of,
    str_of,
    text_of,
)
from heliograph.carriers.email.providers.provider import Genuine, MailProvider, decoded
from heliograph.carriers.http_client import read_json, same

BOUNCES: dict[str, What] = {
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
CAUSES = {
    "BadEmailAddress": "bad_address",
    "DnsError": "lookup",
    "Blocked": "blocklist",
    "SpamNotification": "spam",
    "VirusNotification": "spam",
    "DMARCPolicy": "authentication",
    "SMTPApiError": "rejected",
}
INACTIVE = "marked as inactive"  # text of an SMTPApiError for a recipient on Postmark's suppression list


class Postmark(MailProvider):
    name = "postmark"

    def along(self, message_id: str) -> dict[str, str]:
        return {FIELD: message_id, f"X-PM-Metadata-{FIELD}": message_id}

    def verify(self, callback: Callback) -> Genuine | None:
        kind, _, login = callback.headers.get("authorization", "").partition(" ")
        given = decoded(login.strip()).decode("utf-8", "replace")
        if not same(given, self.options.secret) or kind.lower() != "basic":
            return None
        return Genuine(payload=read_json(callback.body))

    def read(self, payload: Any) -> Iterable[ProviderEvent]:
        event = fields_of(payload)
        record, type_ = str(event.get("RecordType")), str(event.get("Type"))
        what = _what(record, type_, bool(event.get("SuppressSending")))
        if type_ == "SMTPApiError" and INACTIVE in str(event.get("Details")):
            what = "suppressed"
        if what is None:
            return
        id_ = str_of(event.get("MessageID"))
        yield ProviderEvent(
            what=what,
            word=f"{record} {type_}" if record == "Bounce" else record,
            address=str_of(event.get("Recipient") or event.get("Email")),
            along=along_in(event.get("Metadata")),
            carrier_ids=(id_,) if id_ else (),
            text=text_of(event.get("Details"), event.get("Description")),
            cause=CAUSES.get(type_),
            at=str_of(event.get("DeliveredAt") or event.get("BouncedAt") or event.get("ChangedAt")),
        )


def _what(record: str, type_: str, suppresses: bool) -> What | None:
    match record:
        case "Delivery":
            return "delivered"
        case "SpamComplaint":
            return "complained"
        case "SubscriptionChange" if suppresses:
            return "unsubscribed"
        case "Bounce":
            return BOUNCES.get(type_)
    return None
