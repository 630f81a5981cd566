"""SendGrid: batches of events, optionally gzipped, with an ECDSA signature over the timestamp and the raw body."""

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from heliograph.carriers.contract import GZIP_MAGIC, Callback, CallbackTooLarge
from heliograph.carriers.email.providers.event import (
    TRACKING_FIELD,
    EventKind,
    ProviderEvent,
    as_text,
    find_message_id,
    first_text,
    tracking_id_in,
)
from heliograph.carriers.email.providers.provider import (
    CallbackOptions,
    MailProvider,
    VerifiedCallback,
    decode_base64,
    is_replay_detectable,
)
from heliograph.carriers.http_client import CarrierHttp, decode_json
from heliograph.domain.limits import MIB

DECOMPRESSED_MAX = 4 * MIB  # maximum decompressed size of a gzipped body; SendGrid's batches have 768 KiB
SIGNATURE_HEADER_PREFIX = "x-twilio-email-event-webhook-"

KIND_BY_EVENT: dict[str, EventKind] = {
    "delivered": "delivered",
    "deferred": "deferred",
    "spamreport": "complained",
    "unsubscribe": "unsubscribed",
    "group_unsubscribe": "unsubscribed",
}
# A bounce of type `blocked` does not mean that the address is invalid.
KIND_BY_BOUNCE_TYPE: dict[str, EventKind] = {"bounce": "bounced", "blocked": "failed"}
# Prefixes of the `reason` of a drop caused by SendGrid's suppression lists.
SUPPRESSION_REASON_PREFIXES = (
    "bounced address",
    "spam reporting address",
    "unsubscribed address",
    "bounced email",
    "group unsubscribe",
)
CAUSE_BY_CLASSIFICATION = {
    "Invalid Address": "unknown_user",
    "Invalid": "unknown_user",
    "Technical": "system",
    "Technical Failure": "system",
    "Content": "spam",
    "Reputation": "blocklist",
    "Frequency/Volume": "rate",
    "Frequency or Volume Too High": "rate",
}
CAUSE_BY_DROP_REASON_PREFIX = {
    "invalid smtpapi": "form",
    "invalid": "bad_address",
    "spam content": "carrier_policy",
    "recipient list over": "carrier_limit",
}


class SendGrid(MailProvider):
    name = "sendgrid"

    def __init__(self, options: CallbackOptions, http: CarrierHttp) -> None:
        super().__init__(options, http)
        self._key = parse_public_key(options.key) if options.key else None

    @property
    def can_verify_callbacks(self) -> bool:
        return self._key is not None

    def tracking_headers(self, message_id: str) -> dict[str, str]:
        return {TRACKING_FIELD: message_id, "X-SMTPAPI": f'{{"unique_args": {{"{TRACKING_FIELD}": "{message_id}"}}}}'}

    def verify(self, callback: Callback) -> VerifiedCallback | None:
        """Verify the signature. Old timestamps are accepted, because a retry may have the original timestamp.

        The replay id ensures that a callback counts only once.
        """
        signature, timestamp = (
            callback.headers.get(SIGNATURE_HEADER_PREFIX + name, "") for name in ("signature", "timestamp")
        )
        try:
            if self._key:
                self._key.verify(
                    decode_base64(signature), timestamp.encode() + callback.body, ec.ECDSA(hashes.SHA256())
                )
        except InvalidSignature:
            return None
        if not is_replay_detectable(timestamp, callback.now):
            return None
        replay_id = hashlib.sha256(timestamp.encode() + callback.body).hexdigest()
        return VerifiedCallback(payload=decode_json(_decompress(callback.body)), replay_id=replay_id)

    def parse_events(self, payload: Any) -> Iterable[ProviderEvent]:
        for event in payload if isinstance(payload, list) else [payload]:
            kind = _event_kind(event) if isinstance(event, dict) else None
            if kind:
                yield _to_event(kind, event)


def parse_public_key(text: str) -> ec.EllipticCurvePublicKey:
    """Parse a public key in PEM, or in the base64 form that SendGrid displays; raises ValueError if invalid."""
    try:
        key = (
            load_pem_public_key(text.encode()) if "-----" in text else load_der_public_key(decode_base64(text.strip()))
        )
    except ValueError:
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("callback_key is not the public key of SendGrid's signed event webhook: copy it from its page")
    return key


def _decompress(body: bytes) -> bytes:
    """Return the body, decompressed if it is gzipped; raises CallbackTooLarge above DECOMPRESSED_MAX."""
    if not body.startswith(GZIP_MAGIC):
        return body
    try:
        decompressed = zlib.decompressobj(wbits=31).decompress(body, DECOMPRESSED_MAX + 1)
    except zlib.error:
        return b""
    if len(decompressed) > DECOMPRESSED_MAX:
        raise CallbackTooLarge
    return decompressed


def _event_kind(event: Mapping[str, Any]) -> EventKind | None:
    match event.get("event"):
        case "bounce":
            return KIND_BY_BOUNCE_TYPE.get(str(event.get("type")), "bounced")
        case "dropped":
            return (
                "suppressed" if str(event.get("reason")).lower().startswith(SUPPRESSION_REASON_PREFIXES) else "failed"
            )
        case name:
            return KIND_BY_EVENT.get(str(name))


def _cause(event: Mapping[str, Any]) -> str | None:
    if event.get("event") == "dropped":
        reason = str(event.get("reason")).lower()
        return next((cause for prefix, cause in CAUSE_BY_DROP_REASON_PREFIX.items() if reason.startswith(prefix)), None)
    return CAUSE_BY_CLASSIFICATION.get(str(event.get("bounce_classification")))


def _to_event(kind: EventKind, event: Mapping[str, Any]) -> ProviderEvent:
    event_name = f"{event['event']} {event['type']}" if isinstance(event.get("type"), str) else event["event"]
    return ProviderEvent(
        kind=kind,
        event_name=event_name,
        address=as_text(event.get("email")),
        tracking_id=tracking_id_in(event) or tracking_id_in(event.get("unique_args")),
        carrier_ids=_id_prefixes(as_text(event.get("sg_message_id")) or ""),
        message_id=find_message_id(event.get("smtp-id")),
        enhanced=as_text(event.get("status")) if event.get("event") == "bounce" else None,
        text=first_text(event.get("reason"), event.get("response")),
        cause=_cause(event),
        at=as_text(event.get("timestamp")),
    )


def _id_prefixes(id_: str) -> tuple[str, ...]:
    """Return the message id and its prefixes, one of which is the id in the SMTP reply.

    In events, SendGrid appends the names of its own servers to this id.
    """
    prefixes = (id_, id_.partition(".filter")[0], id_.partition(".recvd")[0], id_.partition(".")[0])
    return tuple(dict.fromkeys(filter(None, prefixes)))
