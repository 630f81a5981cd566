"""The carrier `cloud_api`: Meta's WhatsApp Cloud API and its signed webhooks."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

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
    decode_json,
    deferred_without_response,
    equal_constant_time,
    is_signed,
    outcome_for_unknown_status,
    outcome_for_verdict,
    refused_after_uncertain,
    value_at,
    verdict_for_status,
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
from heliograph.domain.text import parse_int
from heliograph.templates.policy.meta_status import UpstreamUpdate

NAME = "cloud_api"

# Paths of the text in an inbound message.
TEXT_PATHS = (
    *("$.text.body", "$.button.text"),
    *("$.interactive.button_reply.title", "$.interactive.list_reply.title"),
)
TIMESTAMP_DIGITS = 11  # maximum digits of a Unix time in seconds
PRICING_FIELDS = ("billable", "pricing_model", "category", "type")
STATE_BY_STATUS = {"sent": "sent", "delivered": "delivered", "read": "read", "failed": "failed"}

# Meta's template events → our state. A template that is flagged or locked against edits can still be sent.
TEMPLATE_STATE_BY_EVENT: dict[str, UpstreamState] = {
    **dict.fromkeys(("APPROVED", "REINSTATED", "UNARCHIVED", "FLAGGED"), "approved"),
    **dict.fromkeys(("PENDING", "IN_APPEAL"), "pending"),
    **dict.fromkeys(("REJECTED",), "rejected"),
    **dict.fromkeys(("PAUSED",), "paused"),
    **dict.fromkeys(("DISABLED", "ARCHIVED", "PENDING_DELETION", "DELETED"), "disabled"),
}
# Paths of the reason in a template event: codes and texts.
REASON_PATHS = (
    *("$.reason", "$.other_info.title"),
    *("$.rejection_info.reason", "$.other_info.description", "$.rejection_info.recommendation"),
)

# Meta's error codes → verdict on a send request, and explanation with the fix. In a webhook every code is permanent.
VERDICT_BY_CODE: dict[int, tuple[Verdict, str]] = {
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
    132012: ("refused", "a variable does not match the format that the template requires"),
    132015: ("refused", "Meta has paused the template for low quality: improve it, or use another"),
    132016: ("refused", "Meta has disabled the template for low quality: create a new one"),
    132018: (
        "refused",
        "a variable has a line break, a tab, or more than four spaces in a row, or is invalid otherwise",
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
EMPTY_VALUE = "\u200b"  # zero-width space for an empty variable, because Meta rejects empty ones


class CloudApi(Carrier):
    """Sends WhatsApp messages through Meta's Cloud API."""

    def __init__(self, options: CloudApiOptions, http: CarrierHttp) -> None:
        self._options = options
        self._http = http
        self._url = f"{options.base_url.rstrip('/')}/{quote(options.phone_number_id, safe='')}/messages"
        self._headers = {"Authorization": f"Bearer {options.access_token}", "Content-Type": "application/json"}

    async def send_message(self, message: OutboundMessage) -> Outcome:
        if message.uncertain and self._options.uncertain == "stop":
            return refused_after_uncertain(NAME)
        content = msgspec.json.decode(message.content, type=WhatsappContent)
        body = msgspec.json.encode(_request_body(message, content))
        try:
            response = await self._http.request_for(message, "POST", self._url, headers=self._headers, body=body)
        except (Unreachable, NoResponse) as error:
            return deferred_without_response(NAME, error)
        return self._outcome(response, content)

    def parse_callback(self, callback: Callback) -> CallbackResult | None:
        if callback.method == "GET":
            return self._answer_challenge(callback) if self._options.verify_token else None
        if not self._options.app_secret:
            return None
        scheme, _, signature = callback.headers.get("x-hub-signature-256", "").partition("=")
        if scheme != "sha256" or not is_signed(signature, self._options.app_secret, callback.body):
            return FORBIDDEN_CALLBACK
        document = decode_json(callback.body)
        return CallbackResult(
            reports=list(_parse_reports(document)),
            incoming_texts=list(_parse_incoming_texts(document)),
            template_updates=list(_parse_template_updates(document, callback.now)),
        )

    def _answer_challenge(self, callback: Callback) -> CallbackResult:
        """Answer the request with which Meta verifies the webhook URL."""
        query = callback.query
        is_authentic = equal_constant_time(query.get("hub.verify_token", ""), self._options.verify_token)
        if not is_authentic or query.get("hub.mode") != "subscribe":
            return FORBIDDEN_CALLBACK
        return CallbackResult(body=query.get("hub.challenge", "").encode())

    def _outcome(self, response: HttpResponse, content: WhatsappContent) -> Outcome:
        document = response.json
        if response.status == 200:
            id_ = value_at(document, "$.messages[0].id")
            if isinstance(id_, str):
                status = clean_text(value_at(document, "$.messages[0].message_status"), ()) or "accepted"
                sender = self._options.phone_number_id
                return Accepted(carrier_id=id_, detail=build_detail(NAME, response.status, status, sender=sender))
            text = "Meta returned no message id: the message may have been sent"
            return Deferred(detail=build_detail(NAME, response.status, text), uncertain=True)
        code = value_at(document, "$.error.code")
        if not isinstance(code, int):  # the response is from a proxy, not from Meta
            detail = build_detail(NAME, response.status, f"Meta answered {response.status}")
            return outcome_for_unknown_status(detail, response)
        meta_text = self._error_text(document, content)
        verdict, text = VERDICT_BY_CODE.get(
            200 if 200 <= code < 300 else code, (verdict_for_status(response.status), meta_text)
        )
        if value_at(document, "$.error.is_transient") is True:
            verdict = "deferred"
        return outcome_for_verdict(verdict, build_detail(NAME, code, text, said=meta_text), response)

    def _error_text(self, document: Any, content: WhatsappContent) -> str:
        """Return Meta's error text with message contents and the token masked."""
        secrets = [content.body, *content.parameters, self._options.access_token]
        texts = (
            clean_text(value_at(document, path), secrets) for path in ("$.error.error_data.details", "$.error.message")
        )
        return next(filter(None, texts), "Meta gave no reason")


def _request_body(message: OutboundMessage, content: WhatsappContent) -> dict[str, Any]:
    # Meta accepts free text only in the conversation window; the message expires with the window
    type_ = "text" if content.is_answer else "template"
    return {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": message.address,
        "type": type_,
        type_: {"body": content.body} if content.is_answer else _template(content),
        "biz_opaque_callback_data": message.message_id,
    }


def _template(content: WhatsappContent) -> dict[str, Any]:
    template: dict[str, Any] = {"name": content.template, "language": {"code": content.language}}
    if content.parameters:
        texts = [{"type": "text", "text": value or EMPTY_VALUE} for value in content.parameters]
        template["components"] = [{"type": "body", "parameters": texts}]
    if content.button:
        button_parameter = {"type": "text", "text": content.button}
        template["components"].append(
            {"type": "button", "sub_type": "url", "index": "0", "parameters": [button_parameter]}
        )
    return template


def _iter_changes(document: Any) -> Iterator[Any]:
    for entry in _as_list(value_at(document, "$.entry")):
        yield from _as_list(value_at(entry, "$.changes"))


def _parse_reports(document: Any) -> Iterator[CarrierReport]:
    for change in _iter_changes(document):
        for status in _as_list(value_at(change, "$.value.statuses")):
            id_, state = value_at(status, "$.id"), value_at(status, "$.status")
            if isinstance(id_, str) and isinstance(state, str) and state in STATE_BY_STATUS:
                yield CarrierReport(id_, Report(status=STATE_BY_STATUS[state], detail=_status_detail(status, state)))


def _parse_incoming_texts(document: Any) -> Iterator[IncomingText]:
    """Yield inbound messages with their text or button title; messages of other kinds have an empty text."""
    for change in _iter_changes(document):
        display_number = value_at(change, "$.value.metadata.display_phone_number")
        for message in _as_list(value_at(change, "$.value.messages")):
            id_, sender = value_at(message, "$.id"), value_at(message, "$.from")
            texts = (value_at(message, path) for path in TEXT_PATHS)
            text = next((text for text in texts if isinstance(text, str)), "")
            if isinstance(id_, str) and isinstance(sender, str):
                to = to_e164(display_number) if isinstance(display_number, str) else ""
                sent_s = parse_int(str(value_at(message, "$.timestamp")), TIMESTAMP_DIGITS)
                sent_at = None if sent_s is None else sent_s * SECOND_MS
                yield IncomingText(id=id_, sender=to_e164(sender), to=to, text=text, sent_at=sent_at)


def _parse_template_updates(document: Any, now: int) -> Iterator[UpstreamUpdate]:
    """Yield the changes of templates' status and quality in a webhook."""
    for entry in _as_list(value_at(document, "$.entry")):
        entry_time_s = value_at(entry, "$.time")
        changed_at = min(entry_time_s * SECOND_MS, now) if isinstance(entry_time_s, int) and entry_time_s > 0 else now
        for change in _as_list(value_at(entry, "$.changes")):
            value = value_at(change, "$.value")
            name, language = value_at(value, "$.message_template_name"), value_at(value, "$.message_template_language")
            if not isinstance(name, str) or not isinstance(language, str):
                continue
            field, event = value_at(change, "$.field"), value_at(value, "$.event")
            quality = value_at(value, "$.new_quality_score")
            status = TEMPLATE_STATE_BY_EVENT.get(event) if isinstance(event, str) else None
            if field == "message_template_status_update" and status:
                reason = _reason_text(value)
                yield UpstreamUpdate(name=name, language=language, at=changed_at, status=status, reason=reason)
            elif field == "message_template_quality_update" and isinstance(quality, str):
                yield UpstreamUpdate(
                    name=name, language=language, at=changed_at, quality=clean_text(quality, ()).lower()
                )


def _reason_text(value: Any) -> str:
    texts = dict.fromkeys(clean_text(value_at(value, path), ()) for path in REASON_PATHS)
    return clean_text(": ".join(text for text in texts if text not in ("", "NONE")), ())


def _status_detail(status: Any, state: str) -> dict[str, Any]:
    code, title = value_at(status, "$.errors[0].code"), clean_text(value_at(status, "$.errors[0].title"), ())
    text = VERDICT_BY_CODE[code][1] if isinstance(code, int) and code in VERDICT_BY_CODE else title or state
    detail = build_detail(NAME, state if code is None else code, text)
    pricing = value_at(status, "$.pricing")
    if isinstance(pricing, dict):
        detail["pricing"] = {
            name: pricing[name] for name in PRICING_FIELDS if isinstance(pricing.get(name), bool | str)
        }
    return detail


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
