"""Resend: webhooks signed as in Standard Webhooks (Svix)."""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import (
    BOUNCE_CAUSES,
    ProviderEvent,
    What,
    along_in,
    fields_of,
    own_id,
    str_of,
    text_of,
)
from heliograph.carriers.email.providers.provider import Genuine, MailProvider, decoded, is_fresh
from heliograph.carriers.http_client import read_json, same

EVENTS: dict[str, What] = {
    "email.delivered": "delivered",
    "email.complained": "complained",
    "email.delivery_delayed": "deferred",
    "email.failed": "failed",
    "email.suppressed": "suppressed",
}
BOUNCES: dict[str, What] = {"Permanent": "bounced", "Transient": "failed", "Undetermined": "failed"}
LISTED = ("Suppressed", "OnAccountSuppressionList")  # bounce subtypes for recipients on a suppression list
# Until 2024 bounces had no type and subtype, only a sentence: (part of the sentence, type, subtype).
_SENTENCES = (
    ("suppress", "Permanent", "Suppressed"),
    ("general bounce", "Transient", "General"),
    ("inbox was full", "Transient", "MailboxFull"),
    ("was too large", "Transient", "MessageTooLarge"),
    ("unacceptable attachment", "Transient", "AttachmentRejected"),
    ("doesn't allow", "Transient", "ContentRejected"),
    ("enough information", "Undetermined", "Undetermined"),
)


class ResendProvider(MailProvider):
    name = "resend"

    def verify(self, callback: Callback) -> Genuine | None:
        """Verify the signature. Each retry is signed with its current time, so an old timestamp is a replay."""
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
        type_, subtype = _types(bounce)
        what = _bounced(type_, subtype) if word == "email.bounced" else EVENTS.get(word)
        if what is None:
            return
        to = data.get("to")
        id_ = str_of(data.get("email_id"))
        failed = str_of(fields_of(data.get("failed")).get("reason"))
        yield ProviderEvent(
            what=what,
            word=" ".join(filter(None, (word, str_of(bounce.get("type")), str_of(bounce.get("subType"))))),
            address=str_of(to[0]) if isinstance(to, list) and len(to) == 1 else str_of(to),
            along=along_in(data.get("headers")) or along_in(data.get("tags")),
            carrier_ids=(id_,) if id_ else (),
            message_id=own_id(data.get("message_id")),
            text=text_of(
                _diagnostic(bounce.get("diagnosticCode")),
                bounce.get("message"),
                failed,
                fields_of(data.get("suppressed")).get("message"),
            ),
            cause=_cause(word, subtype, failed),
            at=str_of(event.get("created_at")),
        )


def _header(callback: Callback, name: str) -> str:
    return callback.headers.get(f"svix-{name}") or callback.headers.get(f"webhook-{name}", "")


def _types(bounce: Mapping[str, Any]) -> tuple[str, str]:
    """Return type and subtype of a bounce."""
    if bounce.get("type"):
        return str(bounce["type"]), str(bounce.get("subType"))
    message = str(bounce.get("message"))
    return next(((type_, subtype) for part, type_, subtype in _SENTENCES if part in message), ("Permanent", "General"))


def _bounced(type_: str, subtype: str) -> What:
    return "suppressed" if subtype in LISTED else BOUNCES.get(type_, "bounced")


def _cause(word: str, subtype: str, failed: str | None) -> str | None:
    if word == "email.failed":  # Resend did not attempt delivery, for example because of `reached_daily_quota`
        return "carrier_limit" if "quota" in (failed or "") else "rejected"
    if word != "email.bounced":
        return None
    return BOUNCE_CAUSES.get(subtype)


def _diagnostic(replies: object) -> str | None:
    """Return the server's reply without its prefix `smtp;` (RFC 3464)."""
    first = str_of(replies[0]) if isinstance(replies, list) and replies else str_of(replies)
    return first.partition(";")[2] or first if first else None
