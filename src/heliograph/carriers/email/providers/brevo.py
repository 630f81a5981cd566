"""Brevo: webhooks with a bearer token, each with one event or a batch of events."""

from collections.abc import Iterable
from typing import Any

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import (
    TRACKING_FIELD,
    EventKind,
    ProviderEvent,
    as_text,
    find_message_id,
    first_text,
)
from heliograph.carriers.email.providers.provider import MailProvider, VerifiedCallback
from heliograph.carriers.http_client import decode_json, equal_constant_time

KIND_BY_EVENT: dict[str, EventKind] = {
    "delivered": "delivered",
    "hard_bounce": "bounced",
    "hardBounce": "bounced",
    "invalid_email": "bounced",
    "invalid": "bounced",
    "soft_bounce": "failed",
    "softBounce": "failed",
    "error": "failed",
    "blocked": "suppressed",
    "deferred": "deferred",
    "spam": "complained",
    "complaint": "complained",
    "unsubscribed": "unsubscribed",
    "unsubscribe": "unsubscribed",
}
CAUSE_BY_EVENT = {"invalid_email": "bad_address", "invalid": "bad_address"}


class Brevo(MailProvider):
    name = "brevo"

    def tracking_headers(self, message_id: str) -> dict[str, str]:
        return {TRACKING_FIELD: message_id, "X-Mailin-custom": f"{TRACKING_FIELD}:{message_id}"}

    def verify(self, callback: Callback) -> VerifiedCallback | None:
        scheme, _, token = callback.headers.get("authorization", "").partition(" ")
        if not equal_constant_time(token.strip(), self.options.secret) or scheme.lower() != "bearer":
            return None
        return VerifiedCallback(payload=decode_json(callback.body))

    def parse_events(self, payload: Any) -> Iterable[ProviderEvent]:
        for event in payload if isinstance(payload, list) else [payload]:
            kind = KIND_BY_EVENT.get(str(event.get("event"))) if isinstance(event, dict) else None
            if kind is None:
                continue
            id_ = (as_text(event.get("message-id")) or "").strip("<>")
            yield ProviderEvent(
                kind=kind,
                event_name=event["event"],
                address=as_text(event.get("email")),
                tracking_id=find_message_id(event.get("X-Mailin-custom")),
                carrier_ids=(id_,) if id_ else (),
                message_id=find_message_id(id_),
                text=first_text(event.get("reason")),
                cause=CAUSE_BY_EVENT.get(event["event"]),
                at=as_text(event.get("ts_epoch") or event.get("ts_event") or event.get("date")),
            )
