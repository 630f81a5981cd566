"""Resend: webhooks signed as Standard Webhooks are (Svix)."""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

from heliograph.channels.carrier import Callback
from heliograph.channels.email.providers.provider import Genuine, MailProvider, decoded, is_fresh
from heliograph.channels.email.providers.told import ProviderEvent, What, along_in, fields_of, own_id, str_of, text_of
from heliograph.channels.web import read_json, same

EVENTS: dict[str, What] = {
    "email.delivered": "delivered",
    "email.complained": "complained",
    "email.delivery_delayed": "deferred",
    "email.failed": "failed",
    "email.suppressed": "suppressed",
}
BOUNCES: dict[str, What] = {"Permanent": "bounced", "Transient": "failed", "Undetermined": "failed"}
LISTED = ("Suppressed", "OnAccountSuppressionList")  # subtypes of a bounce that Resend made itself


class ResendProvider(MailProvider):
    name = "resend"

    def verify(self, callback: Callback) -> Genuine | None:
        """Verify a callback; each retry is signed with its own time, so an old signature is a replay."""
        id_, time, given = (_header(callback, name) for name in ("id", "timestamp", "signature"))
        key = decoded(self.options.secret.removeprefix("whsec_"))
        made = hmac.digest(key, f"{id_}.{time}.".encode() + callback.body, hashlib.sha256)
        expected = f"v1,{base64.b64encode(made).decode()}"
        if not key or not any(same(one, expected) for one in given.split()) or not is_fresh(time, callback.now):
            return None
        return Genuine(payload=read_json(callback.body), replay_id=id_)

    def read(self, payload: Any) -> Iterable[ProviderEvent]:
        event = fields_of(payload)
        data = fields_of(event.get("data"))
        bounce, word = fields_of(data.get("bounce")), str(event.get("type"))
        what = _bounced(bounce) if word == "email.bounced" else EVENTS.get(word)
        if what is None:
            return
        to = data.get("to")
        id_ = str_of(data.get("email_id"))
        yield ProviderEvent(
            what=what,
            word=" ".join(filter(None, (word, str_of(bounce.get("type")), str_of(bounce.get("subType"))))),
            address=str_of(to[0]) if isinstance(to, list) and len(to) == 1 else str_of(to),
            along=along_in(data.get("headers")) or along_in(data.get("tags")),
            carrier_ids=(id_,) if id_ else (),
            message_id=own_id(data.get("message_id")),
            text=text_of(
                bounce.get("message"),
                fields_of(data.get("failed")).get("reason"),
                fields_of(data.get("suppressed")).get("message"),
            ),
            at=str_of(event.get("created_at")),
        )


def _header(callback: Callback, name: str) -> str:
    return callback.headers.get(f"svix-{name}") or callback.headers.get(f"webhook-{name}", "")


def _bounced(bounce: Mapping[str, Any]) -> What:
    if bounce.get("subType") in LISTED:
        return "suppressed"
    return BOUNCES.get(str(bounce.get("type")), "bounced")
