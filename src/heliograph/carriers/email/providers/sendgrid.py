"""SendGrid: batches of events, optionally gzipped, with an ECDSA signature over the timestamp and the raw body."""

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from heliograph.carriers.contract import GZIP, Callback, CallbackTooLarge
from heliograph.carriers.email.providers.event import (
    FIELD,
    ProviderEvent,
    What,
    along_in,
    own_id,
    str_of,
    text_of,
)
from heliograph.carriers.email.providers.provider import (
    CallbackOptions,
    Genuine,
    MailProvider,
    decoded,
    is_remembered,
)
from heliograph.carriers.http_client import Web, read_json
from heliograph.domain.limits import MIB

PLAIN_MAX = 4 * MIB  # maximum decompressed size of a gzipped body; SendGrid's batches have 768 KiB
HEADER = "x-twilio-email-event-webhook-"

EVENTS: dict[str, What] = {
    "delivered": "delivered",
    "deferred": "deferred",
    "spamreport": "complained",
    "unsubscribe": "unsubscribed",
    "group_unsubscribe": "unsubscribed",
}
# A bounce of type `blocked` does not mean that the address is invalid.
BOUNCES: dict[str, What] = {"bounce": "bounced", "blocked": "failed"}
# Prefixes of the `reason` of a drop caused by SendGrid's suppression lists.
LISTED = ("bounced address", "spam reporting address", "unsubscribed address", "bounced email", "group unsubscribe")
# Causes by the `bounce_classification` of a bounce (CLASSES) and by the prefix of the `reason` of a drop (DROPS).
CLASSES = {
    "Invalid Address": "unknown_user",
    "Invalid": "unknown_user",
    "Technical": "system",
    "Technical Failure": "system",
    "Content": "spam",
    "Reputation": "blocklist",
    "Frequency/Volume": "rate",
    "Frequency or Volume Too High": "rate",
}
DROPS = {
    "invalid smtpapi": "form",
    "invalid": "bad_address",
    "spam content": "carrier_policy",
    "recipient list over": "carrier_limit",
}


class SendGrid(MailProvider):
    name = "sendgrid"

    def __init__(self, options: CallbackOptions, web: Web) -> None:
        super().__init__(options, web)
        self._key = read_key(options.key) if options.key else None

    @property
    def hears(self) -> bool:
        return self._key is not None

    def along(self, message_id: str) -> dict[str, str]:
        return {FIELD: message_id, "X-SMTPAPI": f'{{"unique_args": {{"{FIELD}": "{message_id}"}}}}'}

    def verify(self, callback: Callback) -> Genuine | None:
        """Verify the signature. Old timestamps are accepted, because a retry may have the original one.

        The replay id makes sure that a callback counts only once.
        """
        signature, time = (callback.headers.get(HEADER + name, "") for name in ("signature", "timestamp"))
        try:
            if self._key:
                self._key.verify(decoded(signature), time.encode() + callback.body, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return None
        if not is_remembered(time, callback.now):
            return None
        id_ = hashlib.sha256(time.encode() + callback.body).hexdigest()
        return Genuine(payload=read_json(_plain(callback.body)), replay_id=id_)

    def read(self, payload: Any) -> Iterable[ProviderEvent]:
        for event in payload if isinstance(payload, list) else [payload]:
            what = _what(event) if isinstance(event, dict) else None
            if what:
                yield _told(what, event)


def read_key(text: str) -> ec.EllipticCurvePublicKey:
    """Parse a public key in PEM, or in the base64 form that SendGrid displays; raises ValueError if invalid."""
    try:
        key = load_pem_public_key(text.encode()) if "-----" in text else load_der_public_key(decoded(text.strip()))
    except ValueError:
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("callback_key is not the public key of SendGrid's signed event webhook: copy it from its page")
    return key


def _plain(body: bytes) -> bytes:
    """Return the body, decompressed if it is gzipped; raises CallbackTooLarge above PLAIN_MAX."""
    if not body.startswith(GZIP):
        return body
    try:
        plain = zlib.decompressobj(wbits=31).decompress(body, PLAIN_MAX + 1)
    except zlib.error:
        return b""
    if len(plain) > PLAIN_MAX:
        raise CallbackTooLarge
    return plain


def _what(event: Mapping[str, Any]) -> What | None:
    match event.get("event"):
        case "bounce":
            return BOUNCES.get(str(event.get("type")), "bounced")
        case "dropped":
            return "suppressed" if str(event.get("reason")).lower().startswith(LISTED) else "failed"
        case word:
            return EVENTS.get(str(word))


def _cause(event: Mapping[str, Any]) -> str | None:
    if event.get("event") == "dropped":
        reason = str(event.get("reason")).lower()
        return next((cause for beginning, cause in DROPS.items() if reason.startswith(beginning)), None)
    return CLASSES.get(str(event.get("bounce_classification")))


def _told(what: What, event: Mapping[str, Any]) -> ProviderEvent:
    word = f"{event['event']} {event['type']}" if isinstance(event.get("type"), str) else event["event"]
    return ProviderEvent(
        what=what,
        word=word,
        address=str_of(event.get("email")),
        along=along_in(event) or along_in(event.get("unique_args")),
        carrier_ids=_ids(str_of(event.get("sg_message_id")) or ""),
        message_id=own_id(event.get("smtp-id")),
        enhanced=str_of(event.get("status")) if event.get("event") == "bounce" else None,
        text=text_of(event.get("reason"), event.get("response")),
        cause=_cause(event),
        at=str_of(event.get("timestamp")),
    )


def _ids(id_: str) -> tuple[str, ...]:
    """Return the id and its prefixes: the SMTP reply has only the part before the name of the filter machine."""
    beginnings = (id_, id_.partition(".filter")[0], id_.partition(".recvd")[0], id_.partition(".")[0])
    return tuple(dict.fromkeys(filter(None, beginnings)))
