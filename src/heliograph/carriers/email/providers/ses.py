"""Amazon SES with SNS: notifications signed with an X.509 certificate; the first one requests a confirmation."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import (
    BOUNCE_CAUSES,
    FIELD,
    ProviderEvent,
    What,
    along_in,
    fields_of,
    own_id,
    str_of,
    text_of,
)
from heliograph.carriers.email.providers.provider import CallbackOptions, Genuine, MailProvider, Run, decoded
from heliograph.carriers.http_client import NoAnswer, Unreachable, Web, read_json, same
from heliograph.domain.limits import HOUR_MS

KEPT_MS = HOUR_MS  # cache lifetime of a fetched certificate
KEPT_MAX = 16  # maximum cached certificates
NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
FIELDS = {
    "Notification": NOTIFICATION,
    "SubscriptionConfirmation": CONFIRMATION,
    "UnsubscribeConfirmation": CONFIRMATION,
}
DIGESTS: dict[str, hashes.HashAlgorithm] = {"1": hashes.SHA1(), "2": hashes.SHA256()}
LISTED = ("Suppressed", "OnAccountSuppressionList")  # bounce and complaint subtypes of recipients that SES suppressed
_REGION = re.compile("arn:(aws[a-z-]*):sns:([a-z0-9-]{1,40}):[0-9]{1,20}:[A-Za-z0-9_.-]{1,256}")
_TOKEN = re.compile("[A-Za-z0-9_-]{1,1000}")


class Ses(MailProvider):
    name = "ses"

    def __init__(self, options: CallbackOptions, web: Web) -> None:
        super().__init__(options, web)
        self._web = web
        region = _REGION.fullmatch(options.topic)
        if options.topic and region is None:
            raise ValueError(
                f"callback_topic {options.topic!r} is not an SNS topic's ARN: arn:aws:sns:region:account:name"
            )
        self._host = f"sns.{region[2]}.amazonaws.com{'.cn' if region[1] == 'aws-cn' else ''}" if region else ""
        self._cert_url = re.compile(rf"https://{re.escape(self._host)}/SimpleNotificationService-[0-9a-f]{{1,64}}\.pem")
        self._pinned = read_cert(options.cert) if options.cert else None
        self._certs: dict[str, tuple[int, rsa.RSAPublicKey]] = {}

    @property
    def hears(self) -> bool:
        return bool(self._host)

    def along(self, message_id: str) -> dict[str, str]:
        return {FIELD: message_id, "X-SES-MESSAGE-TAGS": f"{FIELD}={message_id}"}

    async def authenticate(self, callback: Callback, run: Run) -> Genuine | None:
        envelope = fields_of(await run(read_json, callback.body))
        if not same(str(envelope.get("TopicArn")), self.options.topic):
            return None
        fields, digest = FIELDS.get(str(envelope.get("Type"))), DIGESTS.get(str(envelope.get("SignatureVersion")))
        key = self._pinned or await self._key(str(envelope.get("SigningCertURL")), callback.now)
        if fields is None or digest is None or key is None:
            return None
        text = "".join(f"{name}\n{envelope[name]}\n" for name in fields if name in envelope)
        try:
            key.verify(decoded(str(envelope.get("Signature"))), text.encode(), padding.PKCS1v15(), digest)
        except InvalidSignature:
            return None
        return Genuine(payload=envelope, replay_id=str(envelope.get("MessageId")))

    async def greet(self, payload: Any) -> bool | None:
        if payload.get("Type") != "SubscriptionConfirmation":
            return None
        url = str(payload.get("SubscribeURL"))
        return self._confirms(url) and await self._fetch(url) is not None

    def read(self, payload: Any) -> Iterable[ProviderEvent]:
        event = fields_of(read_json(str(payload.get("Message")).encode()))
        kind = str(event.get("eventType") or event.get("notificationType"))
        part = fields_of(event.get(PARTS.get(kind, "")))
        what = _what(kind, part)
        if what is None:
            return
        mail = fields_of(event.get("mail"))
        sent_to, id_ = _listed(mail.get("destination")), str_of(mail.get("messageId"))
        headers = mail.get("headers")
        for named, said in _recipients(kind, part) or [(None, {})]:
            yield ProviderEvent(
                what=what,
                word=" ".join(filter(None, (kind, *(str_of(part.get(name)) for name in SUBTYPES)))),
                address=sent_to[0] if len(sent_to) == 1 else named,
                named=named if kind == "Bounce" else None,
                along=along_in(mail.get("tags")) or along_in(headers),
                carrier_ids=(id_,) if id_ else (),
                message_id=own_id(fields_of(mail.get("commonHeaders")).get("messageId")) or _message_id(headers),
                enhanced=str_of(said.get("status")),
                text=text_of(_words(said.get("diagnosticCode")), part.get("smtpResponse"), part.get("reason")),
                at=str_of(part.get("timestamp")),
                cause=_cause(kind, part),
                gives_up_at=str_of(part.get("expirationTime")),
            )

    async def _key(self, url: str, now: int) -> rsa.RSAPublicKey | None:
        """Return the public key of the signing certificate, fetched from SNS only; None if unavailable."""
        if not self._cert_url.fullmatch(url):
            return None
        known = self._certs.get(url)
        if known and known[0] > now:
            return known[1]
        octets = await self._fetch(url)
        try:
            key = _key_of(octets) if octets else None
        except ValueError:
            return None
        if key:
            if len(self._certs) >= KEPT_MAX:
                self._certs.clear()
            self._certs[url] = (now + KEPT_MS, key)
        return key

    def _confirms(self, url: str) -> bool:
        """Return whether the URL is one of SNS that confirms a subscription to our topic."""
        address, _, query = url.partition("?")
        fields = parse_qsl(query, keep_blank_values=True)
        (action, topic, token) = (dict(fields).get(name, "") for name in ("Action", "TopicArn", "Token"))
        return (
            address == f"https://{self._host}/"
            and len(fields) == 3
            and (action, topic) == ("ConfirmSubscription", self.options.topic)
            and _TOKEN.fullmatch(token) is not None
        )

    async def _fetch(self, url: str) -> bytes | None:
        try:
            answer = await self._web.ask("GET", url, headers={})
        except (Unreachable, NoAnswer):
            return None
        return answer.body if answer.status == 200 else None


def read_cert(text: str) -> rsa.RSAPublicKey:
    """Return the public key of a certificate, given as PEM text or as the path of a PEM file."""
    try:
        return _key_of(text.encode() if "-----" in text else Path(text).read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"callback_cert is neither a certificate in PEM nor the path of one: {error}") from None


def _key_of(pem: bytes) -> rsa.RSAPublicKey:
    key = x509.load_pem_x509_certificate(pem).public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError("its key is not RSA")
    return key


PARTS = {
    "Delivery": "delivery",
    "Bounce": "bounce",
    "Complaint": "complaint",
    "DeliveryDelay": "deliveryDelay",
    "Reject": "reject",
    "Rendering Failure": "failure",
    "Subscription": "subscription",
}
SUBTYPES = ("bounceType", "bounceSubType", "complaintFeedbackType", "complaintSubType", "delayType")
LISTS = {
    "Delivery": "recipients",
    "Bounce": "bouncedRecipients",
    "Complaint": "complainedRecipients",
    "DeliveryDelay": "delayedRecipients",
}
KINDS: dict[str, What] = {
    "Delivery": "delivered",
    "DeliveryDelay": "deferred",
    "Reject": "failed",
    "Rendering Failure": "failed",
    "Subscription": "unsubscribed",
}


def _what(kind: str, part: Mapping[str, Any]) -> What | None:
    if kind == "Bounce":
        if part.get("bounceSubType") in LISTED:
            return "suppressed"
        return "bounced" if part.get("bounceType") == "Permanent" else "failed"
    if kind == "Complaint":
        if part.get("complaintSubType") in LISTED:
            return "suppressed"
        return None if part.get("complaintFeedbackType") == "not-spam" else "complained"
    return KINDS.get(kind)


# Causes by `delayType`.
DELAY_CAUSES = {
    "InternalFailure": "carrier_trouble",
    "MailboxFull": "mailbox_full",
    "SpamDetected": "rate",
    "RecipientServerError": "temporary",
    "IPFailure": "blocklist",
    "TransientCommunicationFailure": "unreachable",
    "SendingDeferral": "carrier_limit",
}
KIND_CAUSES = {"Reject": "carrier_policy", "Rendering Failure": "form"}


def _cause(kind: str, part: Mapping[str, Any]) -> str | None:
    match kind:
        case "Bounce":
            return BOUNCE_CAUSES.get(str(part.get("bounceSubType")))
        case "DeliveryDelay":
            return DELAY_CAUSES.get(str(part.get("delayType")))
    return KIND_CAUSES.get(kind)


def _recipients(kind: str, part: Mapping[str, Any]) -> list[tuple[str | None, Mapping[str, Any]]]:
    """Return each recipient's address with its fields, which are empty for a delivery."""
    found = part.get(LISTS.get(kind, ""))
    return [
        (str_of(fields_of(one).get("emailAddress") or one) if isinstance(one, str | dict) else None, fields_of(one))
        for one in (found if isinstance(found, list) else [])
    ]


def _listed(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _words(diagnostic: object) -> str | None:
    """Return the diagnostic code without its prefix `smtp;` (RFC 3464)."""
    text = str_of(diagnostic)
    return text.partition(";")[2] or text if text else None


def _message_id(headers: object) -> str | None:
    for one in headers if isinstance(headers, list) else []:
        if str(fields_of(one).get("name")).lower() == "message-id":
            return own_id(fields_of(one).get("value"))
    return None
