"""The carrier `twilio`: Twilio's Messages API and its signed status callbacks."""

import base64
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from heliograph.carriers.contract import Callback, CallbackResult, Carrier, OutboundMessage
from heliograph.carriers.http_client import (
    FORBIDDEN_CALLBACK,
    CarrierHttp,
    HttpResponse,
    NoResponse,
    Unreachable,
    Verdict,
    build_detail,
    clean_text,
    decode_form,
    deferred_without_response,
    equal_constant_time,
    outcome_for_verdict,
    possible_codes,
    refused_after_uncertain,
    value_at,
    verdict_for_status,
)
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierReport,
    Deferred,
    DueReport,
    IncomingText,
    Outcome,
    Report,
)
from heliograph.domain.ids import parse_date_header, ulid_ms
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.setup.carrier_kinds import TwilioOptions
from heliograph.domain.text import parse_int

NAME = "twilio"
CLOCK_SKEW_MAX_MS = 5 * SECOND_MS  # tolerated difference between Twilio's clock and ours
INBOUND_STATUS = "received"  # state of an inbound message; the documented parameters do not include it
EMPTY_TWIML = b"<Response></Response>"  # empty TwiML; Twilio would send any other response as a reply
VALIDITY_MAX_S = 36_000
LOOKUP_PAGE_SIZE = 100  # maximum messages to a number that a lookup reads

STATE_BY_STATUS = {
    "accepted": "sent",
    "scheduled": "sent",
    "queued": "sent",
    "sending": "sent",
    "sent": "sent",
    "delivered": "delivered",
    "undelivered": "failed",
    "failed": "failed",
    "canceled": "failed",
}

# Twilio's error codes → verdict on a send request, and explanation with the fix. In a callback every code is permanent.
VERDICT_BY_CODE: dict[int, tuple[Verdict, str]] = {
    10001: ("unreachable", "the Twilio account is not active: see its console"),
    14107: ("deferred", "Twilio's limit of messages a second is reached"),
    20003: ("unreachable", "Twilio does not know these credentials: check account_sid and auth_token"),
    20005: ("unreachable", "the Twilio account is not active: see its console"),
    20008: ("unreachable", "test credentials cannot do this: use those of the live account"),
    20403: ("unreachable", "the Twilio account may not send: see its console"),
    20404: ("unreachable", "Twilio does not know this account: check account_sid and base_url"),
    20429: ("deferred", "Twilio asks us to slow down"),
    20500: ("deferred", "Twilio has an internal error"),
    20503: ("deferred", "Twilio is not available now"),
    21211: ("refused", "the number is not a valid phone number"),
    21212: ("refused", "the sender is not a valid number or sender id"),
    21214: ("refused", "the number cannot be reached"),
    21217: ("refused", "the number is not a valid phone number"),
    21266: ("refused", "sender and recipient are the same number"),
    21408: ("refused", "Twilio's geographic permissions do not allow this country: allow it in the console"),
    21601: ("refused", "the sender's number cannot send SMS"),
    21602: ("refused", "the message is empty"),
    21603: ("refused", "there is no sender: set the carrier's from, or a sender id for the country"),
    21606: ("refused", "the sender is not a number of this account that can send SMS there"),
    21608: ("refused", "a trial account sends to numbers verified in its console only"),
    21609: ("refused", "Twilio cannot use our callback address: set the public URL of this service"),
    21610: ("refused", "the recipient has unsubscribed from this sender with STOP"),
    21611: ("deferred", "the sender's queue at Twilio is full"),
    21612: ("refused", "Twilio has no route from this sender to this number"),
    21614: ("refused", "the number is not a mobile number"),
    21617: ("refused", "the message is longer than 1600 characters"),
    21635: ("refused", "the number is a landline"),
    21656: ("refused", "Twilio refuses the message's content"),
    21659: ("refused", "the sender is not a number of this account"),
    21660: ("refused", "the sender belongs to another account"),
    21703: ("refused", "the messaging service has no number for this destination: add one in the console"),
    21704: ("refused", "the messaging service has no numbers: add one in the console"),
    21705: ("refused", "Twilio does not know the messaging service: check the carrier's from"),
    21712: ("refused", "the sender is in another messaging service"),
    30001: ("deferred", "the sender's queue at Twilio is full"),
    30002: ("unreachable", "the Twilio account is suspended: see its console"),
    30003: ("refused", "the phone cannot be reached: switched off, or out of coverage"),
    30004: ("refused", "the message is blocked for this phone"),
    30005: ("refused", "the number is unknown or no longer in service"),
    30006: ("refused", "the number is a landline, or its network accepts no SMS"),
    30007: ("refused", "the message was filtered by Twilio or the network: check its content and the sender"),
    30008: ("refused", "the network gave no reason"),
    30010: ("refused", "the message costs more than the maximum price"),
    30022: ("refused", "the sender's A2P 10DLC rate is exceeded"),
    30023: ("refused", "the sender's A2P 10DLC messages of today are used up"),
    30024: ("refused", "the network does not know the sender id"),
    30027: ("refused", "the sender's messages of today to this network are used up"),
    30032: ("refused", "the toll-free sender is not verified: verify it in the console"),
    30034: ("refused", "the sender is not registered for A2P 10DLC: register it in the console"),
    30036: ("refused", "the message could not be delivered in its validity period"),
    30410: ("refused", "the network did not answer in time"),
    30450: ("refused", "Twilio's protection against SMS pumping blocked the number"),
    30453: ("refused", "Twilio's protection against SMS pumping blocked the number"),
}


class Twilio(Carrier):
    """Sends SMS through Twilio."""

    def __init__(self, options: TwilioOptions, http: CarrierHttp, callback_url: str) -> None:
        self._options = options
        self._http = http
        self._callback_url = callback_url
        account = quote(options.account_sid, safe="")
        self._url = f"{options.base_url.rstrip('/')}/2010-04-01/Accounts/{account}/Messages.json"
        credentials = base64.b64encode(f"{options.account_sid}:{options.auth_token}".encode()).decode()
        self._headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/x-www-form-urlencoded"}

    async def send_message(self, message: OutboundMessage) -> Outcome:
        content = msgspec.json.decode(message.content, type=SmsContent)
        default_sender = self._options.sender
        sender = content.sender(default_sender) or default_sender
        if message.uncertain and self._options.uncertain == "stop":
            return refused_after_uncertain(NAME)
        try:
            if message.uncertain and self._options.uncertain == "lookup":
                earlier = await self._find_earlier_send(message, content.body, sender)
                if earlier:
                    return earlier
            form = self._encode_form(message.address, content, sender, content.validity(message.seconds_left))
            response = await self._http.request_for(message, "POST", self._url, headers=self._headers, body=form)
        except (Unreachable, NoResponse) as error:
            return deferred_without_response(NAME, error)
        return self._outcome(response, content.body, sender)

    def parse_callback(self, callback: Callback) -> CallbackResult:
        form = decode_form(callback.body)
        signature = callback.headers.get("x-twilio-signature", "")
        valid_signatures = [valid for url in _url_variants(callback.url) for valid in self._signatures(url, form)]
        if not any(equal_constant_time(signature, valid) for valid in valid_signatures):
            return FORBIDDEN_CALLBACK
        fields = dict(form)
        id_, status = fields.get("MessageSid"), fields.get("MessageStatus", "")
        if id_ and "Body" in fields and fields.get("SmsStatus", INBOUND_STATUS) == INBOUND_STATUS and not status:
            text = IncomingText(id=id_, sender=fields.get("From", ""), to=fields.get("To", ""), text=fields["Body"])
            return CallbackResult(incoming_texts=[text], body=EMPTY_TWIML, content_type=b"text/xml; charset=utf-8")
        if not id_ or status not in STATE_BY_STATUS:
            return CallbackResult()
        code = fields.get("ErrorCode", "")
        number = parse_int(code, 9)
        description = status if number is None else _describe_code(number)
        detail = build_detail(NAME, code or status, description, **_price(fields.get("Price"), fields.get("PriceUnit")))
        return CallbackResult(reports=[CarrierReport(id_, Report(status=STATE_BY_STATUS[status], detail=detail))])

    def _outcome(self, response: HttpResponse, body: str, sender: str) -> Outcome:
        document = response.json
        if response.status in (200, 201):
            if isinstance(value_at(document, "$.sid"), str):
                return _accepted_from(document, response.status, sender)
            text = "Twilio returned no message id: the message may have been sent"
            return Deferred(detail=build_detail(NAME, response.status, text), uncertain=True)
        code = value_at(document, "$.code")
        code = code if isinstance(code, int) else response.status
        secrets = [*possible_codes(body), self._options.auth_token]
        default = (
            verdict_for_status(response.status),
            clean_text(value_at(document, "$.message"), secrets) or f"Twilio answered {code}",
        )
        verdict, description = VERDICT_BY_CODE.get(code, default)
        return outcome_for_verdict(verdict, build_detail(NAME, code, description), response)

    def _encode_form(self, to: str, content: SmsContent, sender: str, validity_s: int) -> bytes:
        is_messaging_service = sender == self._options.sender and sender.startswith("MG")
        form = {
            "To": to,
            "MessagingServiceSid" if is_messaging_service else "From": sender,
            "Body": content.body,
            "ValidityPeriod": str(min(validity_s, VALIDITY_MAX_S) or ""),
            "StatusCallback": self._callback_url,
        }
        return urlencode({name: value for name, value in form.items() if value}).encode()

    async def _find_earlier_send(self, message: OutboundMessage, body: str, sender: str) -> Outcome | None:
        """Return the outcome of an earlier attempt if Twilio has the message; None if not found.

        A message at Twilio matches if it has the same text and sender and is not older than ours.
        """
        url = f"{self._url}?{urlencode({'To': message.address, 'PageSize': LOOKUP_PAGE_SIZE})}"
        try:
            response = await self._http.request("GET", url, headers=self._headers)
            candidates = value_at(response.json, "$.messages") if response.status == 200 else None
        except NoResponse:
            candidates = None
        if not isinstance(candidates, list):
            # Not `uncertain`: this attempt sent nothing, and the earlier attempt stays uncertain.
            return Deferred(detail=build_detail(NAME, None, "Twilio did not say whether it has the message already"))
        created_after = ulid_ms(message.message_id.partition("_")[2]) - CLOCK_SKEW_MAX_MS
        for candidate in candidates:
            if _is_same_message(candidate, body, sender) and _created_at(candidate) >= created_after:
                return _accepted_from(candidate, 200, sender)
        return None

    def _signatures(self, url: str, form: list[tuple[str, str]]) -> Iterator[str]:
        """Yield all valid signatures: SHA-1 (Twilio's default) and SHA-256, with the auth token and the signing key."""
        text = url + "".join(name + value for name, value in sorted(set(form)))
        for key in filter(None, (self._options.auth_token, self._options.signing_key)):
            for digest in (hashlib.sha1, hashlib.sha256):
                yield base64.b64encode(hmac.digest(key.encode(), text.encode(), digest)).decode()


def _accepted_from(message: Mapping[str, Any], code: int, sender: str) -> Accepted:
    """Return the outcome for a message that Twilio returned as a message resource."""
    status, error = str(message.get("status", "queued")), message.get("error_code")
    price = _price(message.get("price"), message.get("price_unit"))
    description = _describe_code(error) if isinstance(error, int) else status
    report = Report(
        status=STATE_BY_STATUS.get(status, "sent"), detail=build_detail(NAME, error or status, description, **price)
    )
    return Accepted(
        carrier_id=message["sid"],
        detail=build_detail(NAME, code, status, sender=str(message.get("from") or sender), **price),
        # A lookup may find a message in a final status. Its callback came before we knew its id, so it is reported now.
        reports=[] if report.status == "sent" else [DueReport(0, report)],
    )


def _is_same_message(message: Any, body: str, sender: str) -> bool:
    # A trial account prepends text to the body.
    return (
        isinstance(value_at(message, "$.sid"), str)
        and str(message.get("body")).endswith(body)
        and sender in (message.get("from"), message.get("messaging_service_sid"))
    )


def _created_at(message: Mapping[str, Any]) -> int:
    return parse_date_header(str(message.get("date_created"))) or 0


def _price(amount: Any, currency: Any) -> dict[str, str]:
    """Return Twilio's price, which is negative, as a positive amount with its currency; empty if unknown."""
    if not amount or not currency:
        return {}
    return {"carrier_price": str(amount).removeprefix("-"), "carrier_currency": str(currency).upper()}


def _describe_code(code: int) -> str:
    return VERDICT_BY_CODE[code][1] if code in VERDICT_BY_CODE else f"Twilio's error {code}"


def _url_variants(url: str) -> Iterator[str]:
    """Yield the URL with and without its port, because Twilio may sign either form."""
    yield url
    parts = urlsplit(url)
    host = parts.hostname or ""
    default_port = {"https": 443, "http": 80}.get(parts.scheme)
    yield parts._replace(netloc=host if parts.port else f"{host}:{default_port}").geturl()
