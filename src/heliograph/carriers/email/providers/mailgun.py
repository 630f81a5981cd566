"""Mailgun: webhooks with a signature over a timestamp and a single-use token.

The signature does not cover the body, and a retry has the original timestamp and token. Therefore a timestamp is
accepted only as long as used tokens are stored.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import (
    FIELD,
    ProviderEvent,
    What,
    along_in,
    fields_of,
    own_id,
    str_of,
    text_of,
)
from heliograph.carriers.email.providers.provider import Genuine, MailProvider, is_remembered
from heliograph.carriers.http_client import read_json, same

EVENTS: dict[str, What] = {
    "delivered": "delivered",
    "complained": "complained",
    "unsubscribed": "unsubscribed",
    "rejected": "failed",
}
# Reasons of permanent failures that are not bounces; any other reason is a reply of the recipient's server.
REASONS: dict[str, What] = {
    "suppress-bounce": "suppressed",
    "suppress-complaint": "suppressed",
    "suppress-unsubscribe": "suppressed",
    "old": "failed",  # not delivered within Mailgun's retry period
    "espblock": "failed",
}
CAUSES = {"old": "given_up", "espblock": "blocklist", "greylisted": "greylisted"}


class Mailgun(MailProvider):
    name = "mailgun"

    def along(self, message_id: str) -> dict[str, str]:
        return {FIELD: message_id, "X-Mailgun-Variables": f'{{"{FIELD}": "{message_id}"}}'}

    def verify(self, callback: Callback) -> Genuine | None:
        payload = read_json(callback.body)
        signed = fields_of(fields_of(payload).get("signature"))
        text = f"{signed.get('timestamp')}{signed.get('token')}"
        expected = hmac.new(self.options.secret.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        if not same(str(signed.get("signature")), expected):
            return None
        if not is_remembered(signed.get("timestamp"), callback.now):
            return None
        return Genuine(payload=payload, replay_id=str(signed.get("token")))

    def read(self, payload: Any) -> Iterable[ProviderEvent]:
        event = fields_of(fields_of(payload).get("event-data"))
        what = _what(event)
        if what is None:
            return
        status = fields_of(event.get("delivery-status"))
        headers = fields_of(fields_of(event.get("message")).get("headers"))
        id_ = str_of(headers.get("message-id"))
        word = " ".join(filter(None, map(str_of, (event.get("event"), event.get("severity"), event.get("reason")))))
        yield ProviderEvent(
            what=what,
            word=word,
            address=str_of(event.get("recipient")),
            along=along_in(event.get("user-variables")),
            carrier_ids=(id_,) if id_ else (),
            message_id=own_id(id_),
            code=str_of(status.get("code")),
            enhanced=str_of(status.get("enhanced-code")),
            text=text_of(
                status.get("message"), status.get("description"), fields_of(event.get("reject")).get("reason")
            ),
            cause="rejected" if event.get("event") == "rejected" else CAUSES.get(str(event.get("reason"))),
            at=str_of(event.get("timestamp")),
        )


def _what(event: Mapping[str, Any]) -> What | None:
    if event.get("event") != "failed":
        return EVENTS.get(str(event.get("event")))
    if event.get("severity") == "temporary":
        return "deferred"
    return REASONS.get(str(event.get("reason")), "bounced")
