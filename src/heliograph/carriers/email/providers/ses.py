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
    CAUSE_BY_BOUNCE_SUBTYPE,
    SUPPRESSED_SUBTYPES,
    TRACKING_FIELD,
    EventKind,
    ProviderEvent,
    as_dict,
    as_text,
    diagnostic_text,
    find_message_id,
    first_text,
    tracking_id_in,
)
from heliograph.carriers.email.providers.provider import (
    CallbackOptions,
    MailProvider,
    RunFunction,
    VerifiedCallback,
    decode_base64,
)
from heliograph.carriers.http_client import CarrierHttp, NoResponse, Unreachable, decode_json, equal_constant_time
from heliograph.domain.limits import HOUR_MS

CERTIFICATE_CACHE_MS = HOUR_MS  # cache lifetime of a fetched certificate
CACHED_CERTIFICATES_MAX = 16  # maximum cached certificates
NOTIFICATION_FIELDS = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMATION_FIELDS = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
SIGNED_FIELDS_BY_TYPE = {
    "Notification": NOTIFICATION_FIELDS,
    "SubscriptionConfirmation": CONFIRMATION_FIELDS,
    "UnsubscribeConfirmation": CONFIRMATION_FIELDS,
}
DIGEST_BY_SIGNATURE_VERSION: dict[str, hashes.HashAlgorithm] = {"1": hashes.SHA1(), "2": hashes.SHA256()}
_TOPIC_ARN = re.compile("arn:(aws[a-z-]*):sns:([a-z0-9-]{1,40}):[0-9]{1,20}:[A-Za-z0-9_.-]{1,256}")
_CONFIRMATION_TOKEN = re.compile("[A-Za-z0-9_-]{1,1000}")


class Ses(MailProvider):
    name = "ses"

    def __init__(self, options: CallbackOptions, http: CarrierHttp) -> None:
        super().__init__(options, http)
        self._http = http
        topic = _TOPIC_ARN.fullmatch(options.topic)
        if options.topic and topic is None:
            raise ValueError(
                f"callback_topic {options.topic!r} is not an SNS topic's ARN: arn:aws:sns:region:account:name"
            )
        self._host = f"sns.{topic[2]}.amazonaws.com{'.cn' if topic[1] == 'aws-cn' else ''}" if topic else ""
        self._cert_url = re.compile(rf"https://{re.escape(self._host)}/SimpleNotificationService-[0-9a-f]{{1,64}}\.pem")
        self._configured_key = parse_certificate_key(options.cert) if options.cert else None
        self._cached_keys: dict[str, tuple[int, rsa.RSAPublicKey]] = {}

    @property
    def can_verify_callbacks(self) -> bool:
        return bool(self._host)

    def tracking_headers(self, message_id: str) -> dict[str, str]:
        return {TRACKING_FIELD: message_id, "X-SES-MESSAGE-TAGS": f"{TRACKING_FIELD}={message_id}"}

    async def authenticate(self, callback: Callback, run: RunFunction) -> VerifiedCallback | None:
        envelope = as_dict(await run(decode_json, callback.body))
        if not equal_constant_time(str(envelope.get("TopicArn")), self.options.topic):
            return None
        fields = SIGNED_FIELDS_BY_TYPE.get(str(envelope.get("Type")))
        digest = DIGEST_BY_SIGNATURE_VERSION.get(str(envelope.get("SignatureVersion")))
        key = self._configured_key or await self._signing_key(str(envelope.get("SigningCertURL")), callback.now)
        if fields is None or digest is None or key is None:
            return None
        text = "".join(f"{name}\n{envelope[name]}\n" for name in fields if name in envelope)
        try:
            key.verify(decode_base64(str(envelope.get("Signature"))), text.encode(), padding.PKCS1v15(), digest)
        except InvalidSignature:
            return None
        return VerifiedCallback(payload=envelope, replay_id=str(envelope.get("MessageId")))

    async def confirm_subscription(self, payload: Any) -> bool | None:
        if payload.get("Type") != "SubscriptionConfirmation":
            return None
        url = str(payload.get("SubscribeURL"))
        return self._is_confirmation_url(url) and await self._fetch(url) is not None

    def parse_events(self, payload: Any) -> Iterable[ProviderEvent]:
        event = as_dict(decode_json(str(payload.get("Message")).encode()))
        event_type = str(event.get("eventType") or event.get("notificationType"))
        event_detail = as_dict(event.get(DETAIL_FIELD_BY_EVENT.get(event_type, "")))
        kind = _event_kind(event_type, event_detail)
        if kind is None:
            return
        mail = as_dict(event.get("mail"))
        sent_to, id_ = _strings(mail.get("destination")), as_text(mail.get("messageId"))
        headers = mail.get("headers")
        for address, recipient in _recipients(event_type, event_detail) or [(None, {})]:
            yield ProviderEvent(
                kind=kind,
                event_name=" ".join(
                    filter(None, (event_type, *(as_text(event_detail.get(name)) for name in SUBTYPE_FIELDS)))
                ),
                address=sent_to[0] if len(sent_to) == 1 else address,
                bounced_address=address if event_type == "Bounce" else None,
                tracking_id=tracking_id_in(mail.get("tags")) or tracking_id_in(headers),
                carrier_ids=(id_,) if id_ else (),
                message_id=find_message_id(as_dict(mail.get("commonHeaders")).get("messageId")) or _message_id(headers),
                enhanced=as_text(recipient.get("status")),
                text=first_text(
                    diagnostic_text(recipient.get("diagnosticCode")),
                    event_detail.get("smtpResponse"),
                    event_detail.get("reason"),
                ),
                at=as_text(event_detail.get("timestamp")),
                cause=_cause(event_type, event_detail),
                gives_up_at=as_text(event_detail.get("expirationTime")),
            )

    async def _signing_key(self, url: str, now: int) -> rsa.RSAPublicKey | None:
        """Return the public key of the signing certificate, fetched from SNS only; None if unavailable."""
        if not self._cert_url.fullmatch(url):
            return None
        cached_key = self._cached_keys.get(url)
        if cached_key and cached_key[0] > now:
            return cached_key[1]
        pem = await self._fetch(url)
        try:
            key = _certificate_key(pem) if pem else None
        except ValueError:
            return None
        if key:
            if len(self._cached_keys) >= CACHED_CERTIFICATES_MAX:
                self._cached_keys.clear()
            self._cached_keys[url] = (now + CERTIFICATE_CACHE_MS, key)
        return key

    def _is_confirmation_url(self, url: str) -> bool:
        """Return whether a URL is that of SNS for confirming a subscription to our topic."""
        address, _, query = url.partition("?")
        fields = parse_qsl(query, keep_blank_values=True)
        (action, topic, token) = (dict(fields).get(name, "") for name in ("Action", "TopicArn", "Token"))
        return (
            address == f"https://{self._host}/"
            and len(fields) == 3
            and (action, topic) == ("ConfirmSubscription", self.options.topic)
            and _CONFIRMATION_TOKEN.fullmatch(token) is not None
        )

    async def _fetch(self, url: str) -> bytes | None:
        try:
            response = await self._http.request("GET", url, headers={})
        except (Unreachable, NoResponse):
            return None
        return response.body if response.status == 200 else None


def parse_certificate_key(text: str) -> rsa.RSAPublicKey:
    """Return the public key of a certificate, given as PEM text or as the path of a PEM file."""
    try:
        return _certificate_key(text.encode() if "-----" in text else Path(text).read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"callback_cert is neither a certificate in PEM nor the path of one: {error}") from None


def _certificate_key(pem: bytes) -> rsa.RSAPublicKey:
    key = x509.load_pem_x509_certificate(pem).public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError("its key is not RSA")
    return key


DETAIL_FIELD_BY_EVENT = {
    "Delivery": "delivery",
    "Bounce": "bounce",
    "Complaint": "complaint",
    "DeliveryDelay": "deliveryDelay",
    "Reject": "reject",
    "Rendering Failure": "failure",
    "Subscription": "subscription",
}
SUBTYPE_FIELDS = ("bounceType", "bounceSubType", "complaintFeedbackType", "complaintSubType", "delayType")
RECIPIENTS_FIELD_BY_EVENT = {
    "Delivery": "recipients",
    "Bounce": "bouncedRecipients",
    "Complaint": "complainedRecipients",
    "DeliveryDelay": "delayedRecipients",
}
KIND_BY_EVENT: dict[str, EventKind] = {
    "Delivery": "delivered",
    "DeliveryDelay": "deferred",
    "Reject": "failed",
    "Rendering Failure": "failed",
    "Subscription": "unsubscribed",
}


def _event_kind(event_type: str, event_detail: Mapping[str, Any]) -> EventKind | None:
    if event_type == "Bounce":
        if event_detail.get("bounceSubType") in SUPPRESSED_SUBTYPES:
            return "suppressed"
        return "bounced" if event_detail.get("bounceType") == "Permanent" else "failed"
    if event_type == "Complaint":
        if event_detail.get("complaintSubType") in SUPPRESSED_SUBTYPES:
            return "suppressed"
        return None if event_detail.get("complaintFeedbackType") == "not-spam" else "complained"
    return KIND_BY_EVENT.get(event_type)


CAUSE_BY_DELAY_TYPE = {
    "InternalFailure": "carrier_trouble",
    "MailboxFull": "mailbox_full",
    "SpamDetected": "rate",
    "RecipientServerError": "temporary",
    "IPFailure": "blocklist",
    "TransientCommunicationFailure": "unreachable",
    "SendingDeferral": "carrier_limit",
}
CAUSE_BY_EVENT = {"Reject": "carrier_policy", "Rendering Failure": "form"}


def _cause(event_type: str, event_detail: Mapping[str, Any]) -> str | None:
    match event_type:
        case "Bounce":
            return CAUSE_BY_BOUNCE_SUBTYPE.get(str(event_detail.get("bounceSubType")))
        case "DeliveryDelay":
            return CAUSE_BY_DELAY_TYPE.get(str(event_detail.get("delayType")))
    return CAUSE_BY_EVENT.get(event_type)


def _recipients(event_type: str, event_detail: Mapping[str, Any]) -> list[tuple[str | None, Mapping[str, Any]]]:
    """Return (address, recipient object of the event) for each recipient; a delivery lists only addresses."""
    recipients = event_detail.get(RECIPIENTS_FIELD_BY_EVENT.get(event_type, ""))
    return [
        (
            as_text(as_dict(recipient).get("emailAddress") or recipient) if isinstance(recipient, str | dict) else None,
            as_dict(recipient),
        )
        for recipient in (recipients if isinstance(recipients, list) else [])
    ]


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _message_id(headers: object) -> str | None:
    for header in headers if isinstance(headers, list) else []:
        if str(as_dict(header).get("name")).lower() == "message-id":
            return find_message_id(as_dict(header).get("value"))
    return None
