"""The carrier `http`: any SMS provider's HTTP API, configured by request template, response rules and callback map."""

import hashlib
from collections.abc import Callable, Mapping
from html import escape
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from heliograph.carriers.contract import Callback, CallbackResult, Carrier, OutboundMessage
from heliograph.carriers.http_client import (
    FORBIDDEN_CALLBACK,
    CarrierHttp,
    HttpResponse,
    NoResponse,
    Unreachable,
    build_detail,
    clean_text,
    decode_form,
    decode_json,
    deferred_without_response,
    equal_constant_time,
    is_signed,
    outcome_for_unknown_status,
    possible_codes,
    refused_after_uncertain,
    value_at,
)
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierReport,
    Deferred,
    IncomingText,
    Outcome,
    Refused,
    Report,
)
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.limits import MINUTE_MS, SECOND_MS
from heliograph.domain.phones.phone import to_e164
from heliograph.domain.setup.carrier_kinds import PLACEHOLDER, CallbackMap, HttpOptions, IncomingMap
from heliograph.domain.text import CONTROL_CHARACTER, parse_int

NAME = "http"
FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"
CLOCK_SKEW_MAX_MS = 5 * MINUTE_MS  # maximum difference between a callback's timestamp and our clock
MS_TIMESTAMP_MIN = 100_000_000_000  # Unix times from this value on are in milliseconds

# Escape function for values in the body, by content type; other types are not escaped.
ESCAPE_BY_CONTENT_TYPE: dict[str, Callable[[str], str]] = {
    "application/json": lambda value: msgspec.json.encode(value).decode()[1:-1],
    FORM_CONTENT_TYPE: quote_plus,
    "application/xml": escape,
    "text/xml": escape,
}


class HttpCarrier(Carrier):
    """Sends SMS with HTTP requests built from the operator's request template."""

    def __init__(self, options: HttpOptions, http: CarrierHttp, callback_url: str) -> None:
        self._options = options
        self._http = http
        token_query = f"?token={quote(options.callback_secret, safe='')}" if options.callback_check == "token" else ""
        self._callback_url = callback_url + token_query
        self._headers = {name.lower(): value for name, value in options.headers.items()}
        if options.body:
            self._headers.setdefault("content-type", "application/json")
        type_ = self._headers.get("content-type", "").partition(";")[0].strip().lower()
        self._escape = ESCAPE_BY_CONTENT_TYPE.get(type_, str)
        self._secrets = [options.callback_secret, *" ".join(options.headers.values()).split()]

    async def send_message(self, message: OutboundMessage) -> Outcome:
        if message.uncertain and self._options.uncertain == "stop":
            return refused_after_uncertain(NAME)
        content = msgspec.json.decode(message.content, type=SmsContent)
        default_sender = self._options.sender
        sender = content.sender(default_sender) or default_sender
        values = self._placeholder_values(message, content.body, sender)
        try:
            response = await self._http.request_for(
                message,
                self._options.method,
                fill_placeholders(self._options.url, values, lambda value: quote(value, safe="")),
                headers={
                    name: CONTROL_CHARACTER.sub(" ", fill_placeholders(value, values, str))
                    for name, value in self._headers.items()
                },
                body=fill_placeholders(self._options.body, values, self._escape).encode(),
            )
        except (Unreachable, NoResponse) as error:
            return deferred_without_response(NAME, error)
        return self._outcome(response, content.body, sender)

    def parse_callback(self, callback: Callback) -> CallbackResult | None:
        options = self._options
        if not options.callback_secret or (options.callback is None and options.incoming is None):
            return None
        if not self._is_authentic(callback):
            return FORBIDDEN_CALLBACK
        is_form = callback.headers.get("content-type", "").startswith(FORM_CONTENT_TYPE)
        document = dict(decode_form(callback.body)) if is_form else decode_json(callback.body)
        timestamp = options.callback_timestamp
        if timestamp and not _is_fresh(value_at(document, timestamp), callback.now):
            return FORBIDDEN_CALLBACK
        if options.incoming and (text := _parse_incoming_text(document, options.incoming, callback.body)):
            return CallbackResult(incoming_texts=[text])
        return CallbackResult(reports=_parse_reports(document, options.callback) if options.callback else [])

    def _placeholder_values(self, message: OutboundMessage, body: str, sender: str) -> dict[str, str]:
        return {
            "to": message.address,
            "to_digits": message.address.removeprefix("+"),
            "from": sender,
            "text": body,
            "message_id": message.message_id,
            "callback_url": self._callback_url,
            "country": message.country or "",
        }

    def _outcome(self, response: HttpResponse, body: str, sender: str) -> Outcome:
        accepted, refused = self._options.accepted, self._options.refused
        document, status = response.json, response.status
        id_ = _as_text(value_at(document, accepted.id)) if accepted.id else None
        if status in accepted.status and (id_ or not accepted.id):
            return Accepted(carrier_id=id_, detail=build_detail(NAME, status, "accepted", sender=sender))
        secrets = [*possible_codes(body), *self._secrets]
        carrier_text = clean_text(value_at(document, refused.text), secrets) if refused.text else ""
        detail = build_detail(NAME, status, carrier_text or f"the carrier answered {status}")
        if status in refused.status:
            return Refused(detail=detail)
        if status in accepted.status:
            text = f"the carrier answered {status} without a message id: the message may have been sent"
            return Deferred(detail=build_detail(NAME, status, text), uncertain=True)
        return outcome_for_unknown_status(detail, response)

    def _is_authentic(self, callback: Callback) -> bool:
        """Return whether the callback has the configured token or a valid signature."""
        if self._options.callback_check == "token":
            return equal_constant_time(callback.query.get("token", ""), self._options.callback_secret)
        return is_signed(callback.headers.get("x-signature", ""), self._options.callback_secret, callback.body)


def fill_placeholders(template: str, values: Mapping[str, str], escape_value: Callable[[str], str]) -> str:
    """Replace the template's placeholders in one pass, so that placeholders inside values are not replaced."""
    return PLACEHOLDER.sub(lambda match: escape_value(values[match[1]]), template)


def _parse_reports(document: Any, paths: CallbackMap) -> list[CarrierReport]:
    """Return the delivery reports in a callback; entries with an unknown status are skipped."""
    entries = value_at(document, paths.each) if paths.each else [document]
    reports = []
    for entry in entries if isinstance(entries, list) else []:
        id_, status = _as_text(value_at(entry, paths.id)), _as_text(value_at(entry, paths.status))
        state = "delivered" if status in paths.delivered else "failed" if status in paths.failed else None
        if id_ and status and state:
            reports.append(
                CarrierReport(id_, Report(status=state, detail=build_detail(NAME, clean_text(status, ()), state)))
            )
    return reports


def _parse_incoming_text(document: Any, paths: IncomingMap, body: bytes) -> IncomingText | None:
    """Return the inbound message in a callback; None if the callback has none."""
    sender, text = _as_text(value_at(document, paths.sender)), value_at(document, paths.text)
    if not sender or not isinstance(text, str):
        return None
    id_ = _as_text(value_at(document, paths.id)) if paths.id else None
    return IncomingText(
        id=id_ or hashlib.sha256(body).hexdigest(),
        sender=to_e164(sender),
        to=to_e164(_as_text(value_at(document, paths.to)) or ""),
        text=text,
        is_unnamed=id_ is None,
    )


def _as_text(value: Any) -> str | None:
    """Return a string or integer as text, because providers use both for ids and states; None for another type."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


def _is_fresh(value: Any, now: int) -> bool:
    """Return whether a time (RFC 3339, or a Unix time in seconds or ms) is within CLOCK_SKEW_MAX_MS of `now`."""
    text = _as_text(int(value) if isinstance(value, float) else value) or ""
    number = parse_int(text, 19)
    moment = parse_timestamp(text) if number is None else number * (1 if number >= MS_TIMESTAMP_MIN else SECOND_MS)
    return moment is not None and abs(now - moment) <= CLOCK_SKEW_MAX_MS
