"""The carrier `http`: any SMS provider's HTTP API, configured by request template, response rules and callback map."""

import hashlib
from collections.abc import Callable, Mapping
from html import escape
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from heliograph.carriers.contract import Callback, CallbackAnswer, Carrier, Parcel
from heliograph.carriers.http_client import (
    FORBIDDEN,
    NoAnswer,
    Unreachable,
    Web,
    WebAnswer,
    codes_in,
    is_signed,
    pick,
    put_off,
    read_form,
    read_json,
    reply,
    said,
    same,
    silent,
    stopped,
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
from heliograph.domain.text import CONTROLS, whole_number

NAME = "http"
FORM = "application/x-www-form-urlencoded"
WINDOW_MS = 5 * MINUTE_MS  # maximum difference between a callback's timestamp and our clock
MS_FROM = 100_000_000_000  # Unix times from this value on are in milliseconds

# Escape function for values in the body, by content type; other types are not escaped.
ESCAPES: dict[str, Callable[[str], str]] = {
    "application/json": lambda value: msgspec.json.encode(value).decode()[1:-1],
    FORM: quote_plus,
    "application/xml": escape,
    "text/xml": escape,
}


class Http(Carrier):
    """Sends SMS with HTTP requests built from the operator's template."""

    def __init__(self, options: HttpOptions, web: Web, callback_url: str) -> None:
        self._options = options
        self._web = web
        token = f"?token={quote(options.callback_secret, safe='')}" if options.callback_check == "token" else ""
        self._callback_url = callback_url + token
        self._headers = {name.lower(): value for name, value in options.headers.items()}
        if options.body:
            self._headers.setdefault("content-type", "application/json")
        type_ = self._headers.get("content-type", "").partition(";")[0].strip().lower()
        self._escape = ESCAPES.get(type_, str)
        self._hidden = [options.callback_secret, *" ".join(options.headers.values()).split()]

    async def hand_over(self, parcel: Parcel) -> Outcome:
        if parcel.uncertain and self._options.uncertain == "stop":
            return stopped(NAME)
        content = msgspec.json.decode(parcel.content, type=SmsContent)
        own = self._options.sender
        sender = content.sender(own) or own
        values = self._values(parcel, content.body, sender)
        try:
            answer = await self._web.ask_in_turn(
                parcel,
                self._options.method,
                fill(self._options.url, values, lambda value: quote(value, safe="")),
                headers={name: CONTROLS.sub(" ", fill(value, values, str)) for name, value in self._headers.items()},
                body=fill(self._options.body, values, self._escape).encode(),
            )
        except (Unreachable, NoAnswer) as error:
            return silent(NAME, error)
        return self._outcome(answer, content.body, sender)

    def read_callback(self, callback: Callback) -> CallbackAnswer | None:
        options = self._options
        if not options.callback_secret or (options.callback is None and options.incoming is None):
            return None
        if not self._is_theirs(callback):
            return FORBIDDEN
        form = callback.headers.get("content-type", "").startswith(FORM)
        given = dict(read_form(callback.body)) if form else read_json(callback.body)
        if self._options.callback_timestamp and not _is_fresh(
            pick(given, self._options.callback_timestamp), callback.now
        ):
            return FORBIDDEN
        if options.incoming and (text := _text(given, options.incoming, callback.body)):
            return CallbackAnswer(texts=[text])
        return CallbackAnswer(reports=_reports(given, options.callback) if options.callback else [])

    def _values(self, parcel: Parcel, body: str, sender: str) -> dict[str, str]:
        return {
            "to": parcel.address,
            "to_digits": parcel.address.removeprefix("+"),
            "from": sender,
            "text": body,
            "message_id": parcel.message_id,
            "callback_url": self._callback_url,
            "country": parcel.country or "",
        }

    def _outcome(self, answer: WebAnswer, body: str, sender: str) -> Outcome:
        accepted, refused, given, status = self._options.accepted, self._options.refused, answer.json, answer.status
        id_ = _scalar(pick(given, accepted.id)) if accepted.id else None
        if status in accepted.status and (id_ or not accepted.id):
            return Accepted(carrier_id=id_, detail=reply(NAME, status, "accepted", sender=sender))
        words = said(pick(given, refused.text), [*codes_in(body), *self._hidden]) if refused.text else ""
        detail = reply(NAME, status, words or f"the carrier answered {status}")
        if status in refused.status:
            return Refused(detail=detail)
        if status in accepted.status:
            text = f"the carrier answered {status} without a message id: maybe it was sent"
            return Deferred(detail=reply(NAME, status, text), uncertain=True)
        return put_off(detail, answer)

    def _is_theirs(self, callback: Callback) -> bool:
        """Return whether the callback has the configured token or a valid signature."""
        if self._options.callback_check == "token":
            return same(callback.query.get("token", ""), self._options.callback_secret)
        return is_signed(callback.headers.get("x-signature", ""), self._options.callback_secret, callback.body)


def fill(template: str, values: Mapping[str, str], escaped: Callable[[str], str]) -> str:
    """Replace the template's placeholders in one pass, so that placeholders inside values are not replaced."""
    return PLACEHOLDER.sub(lambda found: escaped(values[found[1]]), template)


def _reports(given: Any, where: CallbackMap) -> list[CarrierReport]:
    """Return the delivery reports in a callback; entries with an unknown status are skipped."""
    each = pick(given, where.each) if where.each else [given]
    reports = []
    for one in each if isinstance(each, list) else []:
        id_, status = _scalar(pick(one, where.id)), _scalar(pick(one, where.status))
        state = "delivered" if status in where.delivered else "failed" if status in where.failed else None
        if id_ and status and state:
            reports.append(CarrierReport(id_, Report(status=state, detail=reply(NAME, said(status, ()), state))))
    return reports


def _text(given: Any, where: IncomingMap, body: bytes) -> IncomingText | None:
    """Return the inbound message in a callback; None if the callback has none."""
    sender, words = _scalar(pick(given, where.sender)), pick(given, where.text)
    if not sender or not isinstance(words, str):
        return None
    id_ = _scalar(pick(given, where.id)) if where.id else None
    return IncomingText(
        id=id_ or hashlib.sha256(body).hexdigest(),
        sender=to_e164(sender),
        to=to_e164(_scalar(pick(given, where.to)) or ""),
        text=words,
        is_unnamed=id_ is None,
    )


def _scalar(value: Any) -> str | None:
    """Return a string or integer as text, because providers use both for ids and states; None if another type."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


def _is_fresh(value: Any, now: int) -> bool:
    """Return whether a timestamp (RFC 3339, or Unix time in s or ms) is within WINDOW_MS of now."""
    text = _scalar(int(value) if isinstance(value, float) else value) or ""
    number = whole_number(text, 19)
    moment = parse_timestamp(text) if number is None else number * (1 if number >= MS_FROM else SECOND_MS)
    return moment is not None and abs(now - moment) <= WINDOW_MS
