"""Resend: webhooks signed as in Standard Webhooks (Svix)."""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import (
    CAUSE_BY_BOUNCE_SUBTYPE,
    SUPPRESSED_SUBTYPES,
    EventKind,
    ProviderEvent,
    as_dict,
    as_text,
    diagnostic_text,
    find_message_id,
    first_text,
    tracking_id_in,
)
from heliograph.carriers.email.providers.provider import MailProvider, VerifiedCallback, decode_base64, is_fresh
from heliograph.carriers.http_client import decode_json, equal_constant_time

KIND_BY_EVENT: dict[str, EventKind] = {
    "email.delivered": "delivered",
    "email.complained": "complained",
    "email.delivery_delayed": "deferred",
    "email.failed": "failed",
    "email.suppressed": "suppressed",
}
KIND_BY_BOUNCE_TYPE: dict[str, EventKind] = {"Permanent": "bounced", "Transient": "failed", "Undetermined": "failed"}
# Until 2024 bounces had no type and subtype, only a sentence: (part of the sentence, type, subtype).
_TYPE_BY_SENTENCE = (
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

    def verify(self, callback: Callback) -> VerifiedCallback | None:
        """Verify the signature. Each retry is signed with the time of the retry, so an old timestamp is a replay."""
        id_, timestamp, signatures = (_header(callback, name) for name in ("id", "timestamp", "signature"))
        key = decode_base64(self.options.secret.removeprefix("whsec_"))
        digest = hmac.digest(key, f"{id_}.{timestamp}.".encode() + callback.body, hashlib.sha256)
        expected = f"v1,{base64.b64encode(digest).decode()}"
        if (
            not key
            or not any(equal_constant_time(signature, expected) for signature in signatures.split())
            or not is_fresh(timestamp, callback.now)
        ):
            return None
        return VerifiedCallback(payload=decode_json(callback.body), replay_id=id_)

    def parse_events(self, payload: Any) -> Iterable[ProviderEvent]:
        event = as_dict(payload)
        data = as_dict(event.get("data"))
        bounce, event_name = as_dict(data.get("bounce")), str(event.get("type"))
        bounce_type, subtype = _bounce_type(bounce)
        kind = _bounce_kind(bounce_type, subtype) if event_name == "email.bounced" else KIND_BY_EVENT.get(event_name)
        if kind is None:
            return
        to, replies = data.get("to"), bounce.get("diagnosticCode")
        id_ = as_text(data.get("email_id"))
        failure_reason = as_text(as_dict(data.get("failed")).get("reason"))
        yield ProviderEvent(
            kind=kind,
            event_name=" ".join(
                filter(None, (event_name, as_text(bounce.get("type")), as_text(bounce.get("subType"))))
            ),
            address=as_text(to[0]) if isinstance(to, list) and len(to) == 1 else as_text(to),
            tracking_id=tracking_id_in(data.get("headers")) or tracking_id_in(data.get("tags")),
            carrier_ids=(id_,) if id_ else (),
            message_id=find_message_id(data.get("message_id")),
            text=first_text(
                diagnostic_text(replies[0] if isinstance(replies, list) and replies else replies),
                bounce.get("message"),
                failure_reason,
                as_dict(data.get("suppressed")).get("message"),
            ),
            cause=_cause(event_name, subtype, failure_reason),
            at=as_text(event.get("created_at")),
        )


def _header(callback: Callback, name: str) -> str:
    return callback.headers.get(f"svix-{name}") or callback.headers.get(f"webhook-{name}", "")


def _bounce_type(bounce: Mapping[str, Any]) -> tuple[str, str]:
    """Return the type and subtype of a bounce."""
    if bounce.get("type"):
        return str(bounce["type"]), str(bounce.get("subType"))
    message = str(bounce.get("message"))
    return next(
        ((bounce_type, subtype) for phrase, bounce_type, subtype in _TYPE_BY_SENTENCE if phrase in message),
        ("Permanent", "General"),
    )


def _bounce_kind(bounce_type: str, subtype: str) -> EventKind:
    return "suppressed" if subtype in SUPPRESSED_SUBTYPES else KIND_BY_BOUNCE_TYPE.get(bounce_type, "bounced")


def _cause(event_name: str, subtype: str, failure_reason: str | None) -> str | None:
    if event_name == "email.failed":  # Resend did not attempt delivery, for example because of `reached_daily_quota`
        return "carrier_limit" if "quota" in (failure_reason or "") else "rejected"
    return CAUSE_BY_BOUNCE_SUBTYPE.get(subtype) if event_name == "email.bounced" else None
