"""The carrier `cloud_api`: Meta's WhatsApp Cloud API and its signed webhooks."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from heliograph.carriers.contract import Callback, CallbackAnswer, Carrier, Parcel
from heliograph.carriers.http_client import (
    FORBIDDEN,
    NoAnswer,
    Unreachable,
    Verdict,
    Web,
    WebAnswer,
    is_signed,
    judged,
    pick,
    put_off,
    read_json,
    reply,
    said,
    same,
    silent,
    stopped,
    verdict_of,
)
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierReport,
    Deferred,
    IncomingText,
    Outcome,
    Report,
)
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.phones.phone import to_e164
from heliograph.domain.setup.carrier_kinds import CloudApiOptions
from heliograph.domain.setup.records import UpstreamState
from heliograph.domain.text import whole_number
from heliograph.templates.policy.meta_status import UpstreamNews

NAME = "cloud_api"

# Paths of the text in an inbound message.
WORDS = (
    *("$.text.body", "$.button.text"),
    *("$.interactive.button_reply.title", "$.interactive.list_reply.title"),
)
TIMESTAMP_DIGITS = 11  # maximum digits of a Unix time in seconds
PRICING = ("billable", "pricing_model", "category", "type")
STATES = {"sent": "sent", "delivered": "delivered", "read": "read", "failed": "failed"}

# Meta's template events → our state. A template that is flagged or locked against edits can still be sent.
TEMPLATE_EVENTS: dict[str, UpstreamState] = {
    **dict.fromkeys(("APPROVED", "REINSTATED", "UNARCHIVED", "FLAGGED"), "approved"),
    **dict.fromkeys(("PENDING", "IN_APPEAL"), "pending"),
    **dict.fromkeys(("REJECTED",), "rejected"),
    **dict.fromkeys(("PAUSED",), "paused"),
    **dict.fromkeys(("DISABLED", "ARCHIVED", "PENDING_DELETION", "DELETED"), "disabled"),
}
# Paths of the reason in a template event: codes and texts.
REASONS = (
    *("$.reason", "$.other_info.title"),
    *("$.rejection_info.reason", "$.other_info.description", "$.rejection_info.recommendation"),
)

# Meta's error codes → verdict on a send request, and explanation with the fix. In a webhook every code is final.
CODES: dict[int, tuple[Verdict, str]] = {
    0: ("unreachable", "Meta does not accept the access token: create a new one"),
    1: ("deferred", "Meta does not know what went wrong: see the platform's status page"),
    2: ("deferred", "Meta is overloaded or temporarily down"),
    3: ("unreachable", "the app lacks a permission: grant whatsapp_business_messaging"),
    4: ("deferred", "the app has reached Meta's limit of calls"),
    10: ("unreachable", "the app lacks a permission: grant whatsapp_business_messaging"),
    33: ("unreachable", "the business phone number does not exist: check phone_number_id"),
    100: ("refused", "Meta refuses a parameter: check template, variables and phone_number_id"),
    190: ("unreachable", "the access token has expired: create a new one"),
    200: ("unreachable", "the app lacks a permission: grant whatsapp_business_messaging"),
    368: ("unreachable", "Meta has restricted the business account for a breach of policy: see its quality page"),
    80007: ("deferred", "the business account has reached Meta's rate limit"),
    130429: ("deferred", "the phone number has reached Meta's limit of messages per second"),
    130472: ("refused", "Meta holds back marketing from this recipient, who is part of an experiment"),
    130497: ("refused", "Meta does not let this account send to the recipient's country"),
    131000: ("deferred", "Meta does not know what went wrong"),
    131005: ("unreachable", "the access token may not send for this phone number: check its permissions"),
    131008: ("refused", "a parameter is missing or empty: no variable of the template may be empty"),
    131009: ("refused", "a parameter's value is not valid: check the phone number and the variables"),
    131016: ("deferred", "a part of Meta's platform is not available now"),
    131021: ("refused", "sender and recipient are the same number"),
    131026: (
        "refused",
        "the number cannot receive WhatsApp messages: no WhatsApp, an old version, or terms not accepted",
    ),
    131030: ("refused", "a test number sends to the numbers on its list only: add the recipient there"),
    131031: ("unreachable", "Meta has locked the business account: see WhatsApp Manager"),
    131037: ("unreachable", "the phone number's display name is not approved yet: see WhatsApp Manager"),
    131042: ("unreachable", "Meta cannot charge the business account: fix its payment settings"),
    131045: ("unreachable", "the phone number is not registered correctly: register it again"),
    131047: (
        "refused",
        "the recipient last wrote more than 24 hours ago, and this is not a template that may be sent then",
    ),
    131048: ("deferred", "Meta limits the phone number because many reported it as spam: see its quality"),
    131049: (
        "refused",
        "Meta holds back marketing from this recipient for now: send again after a day at the earliest",
    ),
    131050: ("refused", "the recipient has stopped marketing messages from this business"),
    131051: ("refused", "Meta does not know this type of message"),
    131052: ("refused", "Meta could not load the message's media"),
    131053: ("refused", "Meta could not accept the message's media"),
    131056: ("deferred", "too many messages to this recipient in a short time"),
    131057: ("deferred", "the business account is in maintenance"),
    132000: (
        "refused",
        "the number of variables differs from the template: compare the manifest with WhatsApp Manager",
    ),
    132001: (
        "refused",
        "there is no approved template of this name in this language: check upstream_name and language",
    ),
    132005: ("refused", "the template is too long with these variables"),
    132007: ("refused", "the template's content breaks Meta's policy"),
    132012: ("refused", "a variable has not the form that the template wants"),
    132015: ("refused", "Meta has paused the template for low quality: improve it, or use another"),
    132016: ("refused", "Meta has disabled the template for low quality: create a new one"),
    132018: (
        "refused",
        "a variable has a line break, a tab, or more than four spaces in a row, or is not fitting else",
    ),
    132068: ("refused", "the template's flow is blocked"),
    132069: ("deferred", "the template's flow is throttled"),
    133000: ("unreachable", "the phone number is not registered: register it"),
    133004: ("deferred", "Meta's platform is not available now"),
    133006: ("unreachable", "the phone number must be verified again before it can send"),
    133010: ("unreachable", "the phone number is not registered: register it"),
    133015: ("deferred", "the phone number was deleted a moment ago and is not free yet"),
    135000: ("refused", "Meta refuses a parameter without saying which"),
}
NOTHING = "\u200b"  # zero-width space for an empty variable, because Meta rejects empty ones


class CloudApi(Carrier):
    """Sends WhatsApp messages through Meta's Cloud API."""

    def __init__(self, options: CloudApiOptions, web: Web) -> None:
        self._options = options
        self._web = web
        self._url = f"{options.base_url.rstrip('/')}/{quote(options.phone_number_id, safe='')}/messages"
        self._headers = {"Authorization": f"Bearer {options.access_token}", "Content-Type": "application/json"}

    async def hand_over(self, parcel: Parcel) -> Outcome:
        if parcel.uncertain and self._options.uncertain == "stop":
            return stopped(NAME)
        content = msgspec.json.decode(parcel.content, type=WhatsappContent)
        body = msgspec.json.encode(_message(parcel, content))
        try:
            answer = await self._web.ask_in_turn(parcel, "POST", self._url, headers=self._headers, body=body)
        except (Unreachable, NoAnswer) as error:
            return silent(NAME, error)
        return self._outcome(answer, content)

    def read_callback(self, callback: Callback) -> CallbackAnswer | None:
        if callback.method == "GET":
            return self._challenge(callback) if self._options.verify_token else None
        if not self._options.app_secret:
            return None
        scheme, _, signature = callback.headers.get("x-hub-signature-256", "").partition("=")
        if scheme != "sha256" or not is_signed(signature, self._options.app_secret, callback.body):
            return FORBIDDEN
        given = read_json(callback.body)
        return CallbackAnswer(
            reports=list(_reports(given)), texts=list(_texts(given)), templates=list(_news(given, callback.now))
        )

    def _challenge(self, callback: Callback) -> CallbackAnswer:
        """Answer Meta's verification request for the webhook URL."""
        query = callback.query
        known = same(query.get("hub.verify_token", ""), self._options.verify_token)
        if not known or query.get("hub.mode") != "subscribe":
            return FORBIDDEN
        return CallbackAnswer(body=query.get("hub.challenge", "").encode())

    def _outcome(self, answer: WebAnswer, content: WhatsappContent) -> Outcome:
        given = answer.json
        if answer.status == 200:
            id_ = pick(given, "$.messages[0].id")
            if isinstance(id_, str):
                status = said(pick(given, "$.messages[0].message_status"), ()) or "accepted"
                sender = self._options.phone_number_id
                return Accepted(carrier_id=id_, detail=reply(NAME, answer.status, status, sender=sender))
            return Deferred(
                detail=reply(NAME, answer.status, "Meta returned no message id: maybe it was sent"), uncertain=True
            )
        code = pick(given, "$.error.code")
        if not isinstance(code, int):  # the response is from a proxy, not from Meta
            return put_off(reply(NAME, answer.status, f"Meta answered {answer.status}"), answer)
        theirs = self._words(given, content)
        verdict, ours = CODES.get(200 if 200 <= code < 300 else code, (verdict_of(answer.status), theirs))
        if pick(given, "$.error.is_transient") is True:
            verdict = "deferred"
        return judged(verdict, reply(NAME, code, ours, said=theirs), answer)

    def _words(self, given: Any, content: WhatsappContent) -> str:
        """Return Meta's error text with message contents and the token masked."""
        hidden = [content.body, *content.parameters, self._options.access_token]
        words = (said(pick(given, path), hidden) for path in ("$.error.error_data.details", "$.error.message"))
        return next(filter(None, words), "Meta gave no reason")


def _message(parcel: Parcel, content: WhatsappContent) -> dict[str, Any]:
    if content.is_answer:  # Meta accepts free text only in the conversation window; the message expires with the window
        return {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": parcel.address,
            "type": "text",
            "text": {"body": content.body},
            "biz_opaque_callback_data": parcel.message_id,
        }
    template: dict[str, Any] = {"name": content.template, "language": {"code": content.language}}
    if content.parameters:
        texts = [{"type": "text", "text": value or NOTHING} for value in content.parameters]
        template["components"] = [{"type": "body", "parameters": texts}]
    if content.button:
        code = {"type": "text", "text": content.button}
        template["components"].append({"type": "button", "sub_type": "url", "index": "0", "parameters": [code]})
    return {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": parcel.address,
        "type": "template",
        "template": template,
        "biz_opaque_callback_data": parcel.message_id,
    }


def _changes(given: Any) -> Iterator[Any]:
    for entry in _list(pick(given, "$.entry")):
        yield from _list(pick(entry, "$.changes"))


def _reports(given: Any) -> Iterator[CarrierReport]:
    for change in _changes(given):
        for status in _list(pick(change, "$.value.statuses")):
            id_, state = pick(status, "$.id"), pick(status, "$.status")
            if isinstance(id_, str) and isinstance(state, str) and state in STATES:
                yield CarrierReport(id_, Report(status=STATES[state], detail=_detail(status, state)))


def _texts(given: Any) -> Iterator[IncomingText]:
    """Yield inbound messages with their text or button title; other kinds of messages have an empty text."""
    for change in _changes(given):
        to = pick(change, "$.value.metadata.display_phone_number")
        for message in _list(pick(change, "$.value.messages")):
            id_, sender = pick(message, "$.id"), pick(message, "$.from")
            words = next(filter(lambda one: isinstance(one, str), (pick(message, path) for path in WORDS)), "")
            if isinstance(id_, str) and isinstance(sender, str):
                to_ = to_e164(to) if isinstance(to, str) else ""
                sent_s = whole_number(str(pick(message, "$.timestamp")), TIMESTAMP_DIGITS)
                sent_at = None if sent_s is None else sent_s * SECOND_MS
                yield IncomingText(id=id_, sender=to_e164(sender), to=to_, text=words, sent_at=sent_at)


def _news(given: Any, now: int) -> Iterator[UpstreamNews]:
    """Yield the status and quality changes of templates."""
    for entry in _list(pick(given, "$.entry")):
        told = pick(entry, "$.time")
        at = min(told * SECOND_MS, now) if isinstance(told, int) and told > 0 else now
        for change in _list(pick(entry, "$.changes")):
            value = pick(change, "$.value")
            name, language = pick(value, "$.message_template_name"), pick(value, "$.message_template_language")
            if not isinstance(name, str) or not isinstance(language, str):
                continue
            field, event = pick(change, "$.field"), pick(value, "$.event")
            quality = pick(value, "$.new_quality_score")
            if field == "message_template_status_update" and isinstance(event, str) and event in TEMPLATE_EVENTS:
                status, reason = TEMPLATE_EVENTS[event], _reason(value)
                yield UpstreamNews(name=name, language=language, at=at, status=status, reason=reason)
            elif field == "message_template_quality_update" and isinstance(quality, str):
                yield UpstreamNews(name=name, language=language, at=at, quality=said(quality, ()).lower())


def _reason(value: Any) -> str:
    words = dict.fromkeys(said(pick(value, path), ()) for path in REASONS)
    return said(": ".join(one for one in words if one not in ("", "NONE")), ())


def _detail(status: Any, state: str) -> dict[str, Any]:
    code, title = pick(status, "$.errors[0].code"), said(pick(status, "$.errors[0].title"), ())
    known = CODES.get(code) if isinstance(code, int) else None
    detail = reply(NAME, code if code is not None else state, known[1] if known else title or state)
    pricing = pick(status, "$.pricing")
    if isinstance(pricing, dict):
        detail["pricing"] = {name: pricing[name] for name in PRICING if isinstance(pricing.get(name), bool | str)}
    return detail


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
