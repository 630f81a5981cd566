"""Brevo: webhooks with a bearer token, each with one event or a batch of events."""

from collections.abc import Iterable
from typing import Any

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import FIELD, ProviderEvent, What, own_id, str_of, text_of
from heliograph.carriers.email.providers.provider import Genuine, MailProvider
from heliograph.carriers.http_client import read_json, same

EVENTS: dict[str, What] = {
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
CAUSES = {"invalid_email": "bad_address", "invalid": "bad_address"}


class Brevo(MailProvider):
    name = "brevo"

    def along(self, message_id: str) -> dict[str, str]:
        return {FIELD: message_id, "X-Mailin-custom": f"{FIELD}:{message_id}"}

    def verify(self, callback: Callback) -> Genuine | None:
        kind, _, token = callback.headers.get("authorization", "").partition(" ")
        if not same(token.strip(), self.options.secret) or kind.lower() != "bearer":
            return None
        return Genuine(payload=read_json(callback.body))

    def read(self, payload: Any) -> Iterable[ProviderEvent]:
        for event in payload if isinstance(payload, list) else [payload]:
            what = EVENTS.get(str(event.get("event"))) if isinstance(event, dict) else None
            if what is None:
                continue
            id_ = (str_of(event.get("message-id")) or "").strip("<>")
            yield ProviderEvent(
                what=what,
                word=event["event"],
                address=str_of(event.get("email")),
                along=own_id(event.get("X-Mailin-custom")),
                carrier_ids=(id_,) if id_ else (),
                message_id=own_id(id_),
                text=text_of(event.get("reason")),
                cause=CAUSES.get(event["event"]),
                at=str_of(event.get("ts_epoch") or event.get("ts_event") or event.get("date")),
            )
