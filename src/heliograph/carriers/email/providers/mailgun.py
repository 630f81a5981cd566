"""Mailgun: webhooks with a signature over a timestamp and a single-use token.

The signature does not cover the body, and a retry has the original timestamp and token. A timestamp is therefore
accepted only while used tokens are still stored.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import (
    TRACKING_FIELD,
    EventKind,
    ProviderEvent,
    as_dict,
    as_text,
    find_message_id,
    first_text,
    tracking_id_in,
)
from heliograph.carriers.email.providers.provider import MailProvider, VerifiedCallback, is_replay_detectable
from heliograph.carriers.http_client import decode_json, equal_constant_time

KIND_BY_EVENT: dict[str, EventKind] = {
    "delivered": "delivered",
    "complained": "complained",
    "unsubscribed": "unsubscribed",
    "rejected": "failed",
}
# Reasons of permanent failures that are not bounces; any other reason is a reply of the recipient's server.
KIND_BY_FAILURE_REASON: dict[str, EventKind] = {
    "suppress-bounce": "suppressed",
    "suppress-complaint": "suppressed",
    "suppress-unsubscribe": "suppressed",
    "old": "failed",  # not delivered within Mailgun's retry period
    "espblock": "failed",
}
CAUSE_BY_REASON = {"old": "given_up", "espblock": "blocklist", "greylisted": "greylisted"}


class Mailgun(MailProvider):
    name = "mailgun"

    def tracking_headers(self, message_id: str) -> dict[str, str]:
        return {TRACKING_FIELD: message_id, "X-Mailgun-Variables": f'{{"{TRACKING_FIELD}": "{message_id}"}}'}

    def verify(self, callback: Callback) -> VerifiedCallback | None:
        payload = decode_json(callback.body)
        signature = as_dict(as_dict(payload).get("signature"))
        text = f"{signature.get('timestamp')}{signature.get('token')}"
        expected = hmac.new(self.options.secret.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        if not equal_constant_time(str(signature.get("signature")), expected):
            return None
        if not is_replay_detectable(signature.get("timestamp"), callback.now):
            return None
        return VerifiedCallback(payload=payload, replay_id=str(signature.get("token")))

    def parse_events(self, payload: Any) -> Iterable[ProviderEvent]:
        event = as_dict(as_dict(payload).get("event-data"))
        kind = _event_kind(event)
        if kind is None:
            return
        status = as_dict(event.get("delivery-status"))
        headers = as_dict(as_dict(event.get("message")).get("headers"))
        id_ = as_text(headers.get("message-id"))
        event_name = " ".join(
            filter(None, map(as_text, (event.get("event"), event.get("severity"), event.get("reason"))))
        )
        yield ProviderEvent(
            kind=kind,
            event_name=event_name,
            address=as_text(event.get("recipient")),
            tracking_id=tracking_id_in(event.get("user-variables")),
            carrier_ids=(id_,) if id_ else (),
            message_id=find_message_id(id_),
            code=as_text(status.get("code")),
            enhanced=as_text(status.get("enhanced-code")),
            text=first_text(
                status.get("message"), status.get("description"), as_dict(event.get("reject")).get("reason")
            ),
            cause="rejected" if event.get("event") == "rejected" else CAUSE_BY_REASON.get(str(event.get("reason"))),
            at=as_text(event.get("timestamp")),
        )


def _event_kind(event: Mapping[str, Any]) -> EventKind | None:
    if event.get("event") != "failed":
        return KIND_BY_EVENT.get(str(event.get("event")))
    if event.get("severity") == "temporary":
        return "deferred"
    return KIND_BY_FAILURE_REASON.get(str(event.get("reason")), "bounced")
