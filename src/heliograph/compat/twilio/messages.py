"""Compatibility API for Twilio, Messages: send from a template, read, list, cancel, redact, delete."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from heliograph.accept.phone import FreeText, PhoneRequest
from heliograph.accept.scheduled import cancel
from heliograph.accept.sms import send_sms
from heliograph.accept.whatsapp import send_whatsapp
from heliograph.compat.call import Call
from heliograph.compat.normalize import drop_empty
from heliograph.compat.twilio.codec import VERSION, mail_time
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.exports.twilio import template_id
from heliograph.domain.ids import PREFIXES, parse_timestamp, timestamp
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.phones.phone import parse_phone
from heliograph.domain.refusals import (
    AlreadySending,
    InvalidJson,
    InvalidPhone,
    InvalidRequest,
    MessageNotFound,
    TemplateIdRequired,
)
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.sending.send_options import decode_record
from heliograph.domain.setup.key_restrictions import check_channel
from heliograph.domain.setup.records import Caller, Channel
from heliograph.domain.text import parse_int
from heliograph.storage.search.message_search import LATEST_TIME, MessageDetails, Search
from heliograph.templates.policy.values import keep_declared, passthrough_error, required_names
from heliograph.web.bodies import parse_json
from heliograph.web.request import Response
from heliograph.web.route import json_response
from heliograph.webhooks.policy.formats.twilio import (
    ACCOUNT,
    SERVICE,
    WHATSAPP,
    error_code,
    message_sender,
    to_status,
)

CHANNELS: tuple[Channel, ...] = ("sms", "whatsapp")
SEND_BY_CHANNEL = {"sms": send_sms, "whatsapp": send_whatsapp}
PAGE_SIZE, PAGE_MAX = 50, 100
# Twilio's test numbers → code and reason of the refusal
TEST_NUMBERS = {
    "+15005550001": (21211, "it is invalid"),
    "+15005550002": (21612, "it cannot be reached"),
    "+15005550003": (21408, "sending to its country is not enabled"),
    "+15005550004": (21610, "it has opted out"),
    "+15005550009": (21614, "it cannot receive SMS"),
}
FREE_TEXT = (
    "Free text is refused, because SMS and WhatsApp messages are sent from approved templates. Send ContentSid=tpl_… "
    "with ContentVariables. Or use Body as the value of a template with one variable: the passthrough template of the "
    "key or the team, or the template named in MessagingServiceSid."
)


async def send(call: Call) -> Response:
    form = call.json
    to = form.get("To", "")
    channel: Channel = "whatsapp" if to.startswith(WHATSAPP) else "sms"
    check_channel(call.caller.key, channel)
    to = parse_phone(to.removeprefix(WHATSAPP))
    if form.get("MediaUrl"):
        raise InvalidRequest("MediaUrl: media are not supported. Remove this field.", param="MediaUrl")
    if channel == "sms" and call.caller.captured and to in TEST_NUMBERS:
        code, reason = TEST_NUMBERS[to]
        raise InvalidPhone(f"{to} is a test number: {reason}.", param="To", details={"code": code})
    free_text = _free_text(call)
    template_id, variables = (None, None) if free_text else _template_and_values(call)
    request = PhoneRequest(
        to=to,
        template_id=template_id,
        variables=variables,
        scheduled_at=_send_at(form),
        expires_at=_expires_at(form, call.context.clock.team_now(call.team)),
    )
    origin = {ACCOUNT: call.params["account"], **({SERVICE: form[SERVICE]} if form.get(SERVICE) else {})}
    sent = await SEND_BY_CHANNEL[channel](
        call.context, call.caller, request, None, await _callback_url(call), free_text, origin
    )
    return await _message_response(call, sent.id, 201)


async def read(call: Call) -> Response:
    return await _message_response(call, _message_id(call))


async def update(call: Call) -> Response:
    """Cancel a scheduled message (`Status=canceled`), or delete the text of a finished one (empty `Body`)."""
    id_ = _message_id(call)
    if call.json.get("Status") == "canceled":
        await cancel(call.context, call.caller, _channel_of(id_), id_)
    elif call.json.get("Body") == "":
        await _purge_early(call, id_, "message.redact", entirely=False)
    else:
        raise InvalidRequest("Send Status=canceled, or an empty Body to redact the message.", param="Status")
    return await _message_response(call, id_)


async def delete(call: Call) -> Response:
    await _purge_early(call, _message_id(call), "message.delete", entirely=True)
    return Response(204, b"")


async def list_all(call: Call) -> Response:
    """Return messages of both channels, newest first; the page token is the id of the last message.

    `From` is applied to each page, so a page may have fewer than PageSize messages.
    """
    query = drop_empty(call.request.unchecked_query())
    # A plus that was not percent-encoded arrives as a space.
    query |= {name: query[name].replace(" ", "+") for name in ("To", "From") if name in query}
    size = _parse_number(query.get("PageSize", str(PAGE_SIZE)), "PageSize")
    size, page = min(max(size, 1), PAGE_MAX), _parse_number(query.get("Page", "0"), "Page")
    token, to = query.get("PageToken"), query.get("To", "")
    channels: tuple[Channel, ...] = ("whatsapp",) if to.startswith(WHATSAPP) else ("sms",) if to else CHANNELS
    created_after, created_before = _date_range(query)
    ids: list[str] = []
    for channel in channels:
        search = Search(
            limit=size + 1,
            channel=channel,
            address=to.removeprefix(WHATSAPP) or None,
            before=PREFIXES[channel] + token if token else None,
            created_after=created_after,
            created_before=created_before,
        )
        ids += [row.id for row in (await call.context.store.messages.search(call.team, search)).rows]
    ids.sort(key=lambda id_: id_[4:], reverse=True)
    get_detail = call.context.store.messages.get_details
    details = await asyncio.gather(*(get_detail(call.team, id_, (), call.reserve_memory) for id_ in ids[:size]))
    records = [_message_json(call, detail) for detail in details if detail]
    if from_ := query.get("From"):
        records = [message for message in records if message["from"] == from_]
    base_uri = f"/{VERSION}/Accounts/{call.params['account']}/Messages.json"
    filters = {name: value for name, value in query.items() if name not in ("Page", "PageToken")}
    next_query = filters | {"Page": str(page + 1), "PageToken": ids[size - 1][4:]} if len(ids) > size else None
    return json_response(
        {
            "messages": records,
            "page": page,
            "page_size": size,
            "start": page * size,
            "end": page * size + len(records) - 1,
            "uri": f"{base_uri}?{urlencode(query)}" if query else base_uri,
            "first_page_uri": f"{base_uri}?{urlencode(filters)}" if filters else base_uri,
            "next_page_uri": f"{base_uri}?{urlencode(next_query)}" if next_query else None,
            "previous_page_uri": None,
        }
    )


# -- request fields ----------------------------------------------------------------------------------------------------


def _template_and_values(call: Call) -> tuple[str, dict[str, Any]]:
    """Return the template's id and the values of its variables."""
    form = call.json
    id_ = template_id(form.get("ContentSid", ""))
    if not id_:
        return _passthrough(call.caller, form)
    template = call.caller.team.templates.get(id_)
    names = required_names(template) if template else []
    values = {
        _variable_name(key, names): value for key, value in _parse_variables(form.get("ContentVariables", "")).items()
    }
    return id_, keep_declared(template, values) or {}


def _free_text(call: Call) -> FreeText | None:
    """Return the request's text if the message is captured (sandbox) and names no template; None otherwise."""
    form, caller = call.json, call.caller
    names_template = form.get("ContentSid") or _passthrough_id(caller, form)
    if not caller.captured or names_template or not form.get("Body"):
        return None
    return FreeText(body=form["Body"], sender_id=form.get("From", "").removeprefix(WHATSAPP))


def _passthrough(caller: Caller, form: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the id of the passthrough template, which can send any text, and the values of its variables."""
    templates, id_ = caller.team.templates, _passthrough_id(caller, form)
    if not id_ or not form.get("Body"):
        raise TemplateIdRequired(FREE_TEXT, param="ContentSid")
    if problem := passthrough_error(templates.get(id_)):
        raise TemplateIdRequired(f"{id_} {problem}. {FREE_TEXT}", param="Body")
    return id_, {required_names(templates[id_])[0]: form["Body"]}


def _passthrough_id(caller: Caller, form: dict[str, str]) -> str:
    """Return the passthrough template's id: the one given as MessagingServiceSid, else the key's, else the team's."""
    service = form.get(SERVICE, "")
    candidate = template_id(service)
    # A service with our prefix is always a template id, even if no such template exists.
    is_template = candidate in caller.team.templates or service.startswith(PREFIXES["template"])
    return (candidate if is_template else "") or caller.key.passthrough or caller.team.record.passthrough


def _parse_variables(text: str) -> dict[str, Any]:
    try:
        raw_values = parse_json(text.encode(), "ContentVariables") if text else {}
    except InvalidJson:
        raw_values = None
    if not isinstance(raw_values, dict):
        raise InvalidRequest("ContentVariables must be a JSON object as text.", param="ContentVariables")
    return raw_values


def _variable_name(key: str, names: list[str]) -> str:
    """Return the variable's name; Twilio's clients may send its position instead."""
    position = parse_int(key, 3) or 0
    return names[position - 1] if 1 <= position <= len(names) else key


async def _callback_url(call: Call) -> str | None:
    """Return the URL that receives the events of this message; None if there is none.

    The callbacks are signed with the secret of the team's webhook that has the format twilio.
    """
    url: str | None = call.json.get("StatusCallback")
    if not url:
        return None
    hooks = call.context.store.setup.current.webhooks.get(call.team, ())
    if not any(hook.format == "twilio" for hook in hooks):
        raise InvalidRequest(
            "StatusCallback needs a webhook with the format twilio, whose secret signs the callbacks.",
            param="StatusCallback",
        )
    await call.management.webhooks.check_target(url, "StatusCallback")
    return url


def _send_at(form: dict[str, str]) -> str | None:
    if form.get("SendAt") and form.get("ScheduleType") != "fixed":
        raise InvalidRequest("SendAt needs ScheduleType=fixed.", param="ScheduleType")
    return form.get("SendAt") or None


def _expires_at(form: dict[str, str], now: int) -> str | None:
    if not form.get("ValidityPeriod"):
        return None
    return timestamp(now + _parse_number(form["ValidityPeriod"], "ValidityPeriod") * SECOND_MS)


def _parse_number(text: str, name: str) -> int:
    number = parse_int(text, 6)
    if number is None:
        raise InvalidRequest(f"{name} must be a number, not {text[:80]!r}.", param=name)
    return number


def _date_range(query: dict[str, str]) -> tuple[int, int]:
    """Return the exclusive limits from `DateSent`, `DateSent>` and `DateSent<`, which are days or times."""
    created_after, created_before = 0, LATEST_TIME
    for name, value in query.items():
        if name.startswith("DateSent"):
            timestamp_ms = parse_timestamp(value if "T" in value else f"{value}T00:00:00Z")
            if timestamp_ms is None:
                raise InvalidRequest(f"{name} must be a date such as 2026-11-15.", param=name)
            if not name.endswith("<"):
                created_after = timestamp_ms - 1
            if not name.endswith(">"):
                created_before = timestamp_ms + (1 if "T" in value and name.endswith("<") else DAY_MS)
    return created_after, created_before


# -- one message -------------------------------------------------------------------------------------------------------


def _message_id(call: Call) -> str:
    return call.params["sid"].removesuffix(".json")


def _channel_of(id_: str) -> Channel:
    for channel in CHANNELS:
        if id_.startswith(PREFIXES[channel]):
            return channel
    raise MessageNotFound(f"No message {id_[:80]!r}. {MessageNotFound.fix}", param="Sid")


async def _find_message(call: Call, id_: str) -> MessageDetails:
    _channel_of(id_)
    message = await call.context.store.messages.get_details(call.team, id_, (), call.reserve_memory)
    if message is None:
        raise MessageNotFound(f"No message {id_[:80]!r}. {MessageNotFound.fix}", param="Sid")
    return message


async def _purge_early(call: Call, id_: str, action: str, *, entirely: bool) -> None:
    _channel_of(id_)
    team = call.caller.team.record
    entry = call.actor.audit_entry(call.context.clock.now(), action, id_, team=team.id)
    purged = await call.context.store.messages.purge_early(team.ref, id_, entry, whole_message=entirely)
    if purged is None:
        raise MessageNotFound(f"No message {id_[:80]!r}. {MessageNotFound.fix}", param="Sid")
    if not purged:
        raise AlreadySending("The message is still being sent.")


async def _message_response(call: Call, id_: str, status: int = 200) -> Response:
    return replace(json_response(_message_json(call, await _find_message(call, id_)), status), record_id=id_)


def _message_json(call: Call, message: MessageDetails) -> dict[str, Any]:
    row, (recipient, *_) = message.row, message.recipients
    account, record = call.params["account"], decode_record(row.record)
    detail = msgspec.json.decode(recipient.detail) if recipient.detail else {}
    sent_at = next((event.created_at for event in message.events if event.status == "sent"), None)
    status = to_status(row.status, detail.get("reason"), was_sent=sent_at is not None)
    if row.status == "queued" and record.scheduled_at:
        status = "scheduled"
    has_failed = row.status == "failed"
    prefix, body, segments = WHATSAPP if row.channel == "whatsapp" else "", "", 1
    if row.content and row.channel == "sms":
        content = msgspec.json.decode(row.content, type=SmsContent)
        body, segments = content.body, content.segments
    elif row.content:
        body = msgspec.json.decode(row.content, type=WhatsappContent).body
    uri = f"/{VERSION}/Accounts/{account}/Messages/{row.id}"
    return {
        "sid": row.id,
        "account_sid": account,
        "messaging_service_sid": record.origin.get(SERVICE),
        "to": prefix + recipient.given,
        "from": message_sender(row.id, record.sender_id, detail),
        "body": body,
        "status": status,
        "direction": "outbound-api",
        "num_segments": str(segments),
        "num_media": "0",
        "price": f"-{format_money(row.price)}" if row.charge == "captured" else None,
        "price_unit": call.caller.team.record.currency,
        "error_code": error_code(detail.get("reason")) if has_failed and status != "canceled" else None,
        "error_message": detail.get("text") if has_failed else None,
        "api_version": VERSION,
        "uri": f"{uri}.json",
        "date_created": mail_time(row.created_at),
        "date_sent": mail_time(sent_at),
        "date_updated": mail_time(recipient.updated_at),
        "subresource_uris": {"media": f"{uri}/Media.json"},
    }
