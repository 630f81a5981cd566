"""Twilio Messages: send from a template, read, list, cancel, redact, delete."""

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
from heliograph.compat.normalize import present
from heliograph.compat.twilio.codec import VERSION, mail_time
from heliograph.domain.delivery.content import SmsContent, WhatsappContent
from heliograph.domain.exports.twilio import template_id
from heliograph.domain.ids import PREFIXES, parse_timestamp, timestamp
from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.phones.phone import read_phone
from heliograph.domain.refusals import (
    AlreadySending,
    InvalidJson,
    InvalidPhone,
    InvalidRequest,
    MessageNotFound,
    TemplateIdRequired,
)
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.sending.send_options import read_record
from heliograph.domain.setup.records import Caller, Channel
from heliograph.domain.text import whole_number
from heliograph.storage.search.message_search import FOREVER, MessageDetails, Search
from heliograph.templates.policy.values import asked_names, only_declared, wrong_passthrough
from heliograph.web.bodies import parse_json
from heliograph.web.request import Response
from heliograph.web.route import answer
from heliograph.webhooks.policy.formats.twilio import (
    ACCOUNT,
    SERVICE,
    WHATSAPP,
    error_code,
    sender,
    to_status,
)

CHANNELS: tuple[Channel, ...] = ("sms", "whatsapp")
SEND = {"sms": send_sms, "whatsapp": send_whatsapp}
PAGE, PAGE_MAX = 50, 100
# Twilio's test numbers, with the code and reason of the immediate refusal.
TEST_NUMBERS = {
    "+15005550001": (21211, "it is invalid"),
    "+15005550002": (21612, "it cannot be reached"),
    "+15005550003": (21408, "its country is not open to you"),
    "+15005550004": (21610, "it has opted out"),
    "+15005550009": (21614, "it cannot receive SMS"),
}
FREE_TEXT = (
    "SMS and WhatsApp messages are made from approved templates, so free text is refused. Send ContentSid=tpl_… with "
    "ContentVariables. Or let Body be the value of a template with one variable: the key's or the team's passthrough, "
    "or the one that MessagingServiceSid names."
)


async def send(call: Call) -> Response:
    form = call.json
    to = form.get("To", "")
    channel: Channel = "whatsapp" if to.startswith(WHATSAPP) else "sms"
    to = read_phone(to.removeprefix(WHATSAPP))
    if form.get("MediaUrl"):
        raise InvalidRequest("MediaUrl: messages are text here, no files are fetched. Leave it out.", param="MediaUrl")
    if channel == "sms" and call.caller.caught and to in TEST_NUMBERS:
        code, why = TEST_NUMBERS[to]
        raise InvalidPhone(f"{to} is a test number: {why}.", param="To", details={"code": code})
    free = _free_text(call)
    template_id, variables = (None, None) if free else _template(call)
    request = PhoneRequest(
        to=to,
        template_id=template_id,
        variables=variables,
        scheduled_at=_send_at(form),
        expires_at=_expires_at(form, call.context.clock.of(call.team)),
    )
    origin = {ACCOUNT: call.params["account"], **_service(form)}
    sent = await SEND[channel](call.context, call.caller, request, None, await _callback(call), free, origin)
    return await _show(call, sent.id, 201)


async def read(call: Call) -> Response:
    return await _show(call, _id(call))


async def update(call: Call) -> Response:
    """Cancel a scheduled message (`Status=canceled`), or redact the text of a finished message (empty `Body`)."""
    id_ = _id(call)
    if call.json.get("Status") == "canceled":
        await cancel(call.context, call.caller, _channel(id_), id_)
    elif call.json.get("Body") == "":
        await _put_away(call, id_, "message.redact", whole=False)
    else:
        raise InvalidRequest("Send Status=canceled, or an empty Body to redact the message.", param="Status")
    return await _show(call, id_)


async def delete(call: Call) -> Response:
    await _put_away(call, _id(call), "message.delete", whole=True)
    return Response(204, b"")


async def list_all(call: Call) -> Response:
    """Return messages of both channels, newest first. The page token is where the previous page ended.

    `From` removes messages from a page, so a page can be shorter than PageSize.
    """
    query = present(call.request.loose_query())
    query |= {name: query[name].replace(" ", "+") for name in ("To", "From") if name in query}  # unencoded plus
    size = _number(query.get("PageSize", str(PAGE)), "PageSize")
    size, page = min(max(size, 1), PAGE_MAX), _number(query.get("Page", "0"), "Page")
    token, to = query.get("PageToken"), query.get("To", "")
    asked: tuple[Channel, ...] = ("whatsapp",) if to.startswith(WHATSAPP) else ("sms",) if to else CHANNELS
    after, before = _days(query)
    ids: list[str] = []
    for channel in asked:
        wanted = Search(
            limit=size + 1,
            channel=channel,
            address=to.removeprefix(WHATSAPP) or None,
            before=PREFIXES[channel] + token if token else None,
            created_after=after,
            created_before=before,
        )
        ids += [line.id for line in (await call.context.store.messages.search(call.team, wanted)).lines]
    ids.sort(key=lambda id_: id_[4:], reverse=True)
    read = call.context.store.messages.whole
    shown = [
        found for found in await asyncio.gather(*(read(call.team, id_, (), call.hold) for id_ in ids[:size])) if found
    ]
    told = [_record(call, found) for found in shown]
    if from_ := query.get("From"):
        told = [message for message in told if message["from"] == from_]
    first = f"/{VERSION}/Accounts/{call.params['account']}/Messages.json"
    kept = {name: value for name, value in query.items() if name not in ("Page", "PageToken")}
    more = kept | {"Page": str(page + 1), "PageToken": ids[size - 1][4:]} if len(ids) > size else None
    return answer(
        {
            "messages": told,
            "page": page,
            "page_size": size,
            "start": page * size,
            "end": page * size + len(told) - 1,
            "uri": f"{first}?{urlencode(query)}" if query else first,
            "first_page_uri": f"{first}?{urlencode(kept)}" if kept else first,
            "next_page_uri": f"{first}?{urlencode(more)}" if more else None,
            "previous_page_uri": None,
        }
    )


# -- request fields ----------------------------------------------------------------------------------------------------


def _template(call: Call) -> tuple[str, dict[str, Any]]:
    """Return the id of the template and the values of its variables."""
    form = call.json
    id_ = template_id(form.get("ContentSid", ""))
    if not id_:
        return _passthrough(call.caller, form)
    template = call.caller.team.templates.get(id_)
    names = asked_names(template) if template else []
    given = {_name(key, names): value for key, value in _variables(form.get("ContentVariables", "")).items()}
    return id_, only_declared(template, given) or {}


def _free_text(call: Call) -> FreeText | None:
    """Return the message body as free text if it is captured (sandbox) and no template is named; else None."""
    form, caller = call.json, call.caller
    named = form.get("ContentSid") or _passthrough_id(caller, form)
    if not caller.caught or named or not form.get("Body"):
        return None
    return FreeText(body=form["Body"], sender_id=form.get("From", "").removeprefix(WHATSAPP))


def _passthrough(caller: Caller, form: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the id and values of the pass-through template, which sends any text.

    It is named in place of a messaging service, or set for the key or the team.
    """
    templates, id_ = caller.team.templates, _passthrough_id(caller, form)
    if not id_ or not form.get("Body"):
        raise TemplateIdRequired(FREE_TEXT, param="ContentSid")
    if why := wrong_passthrough(templates.get(id_)):
        raise TemplateIdRequired(f"{id_} {why}. {FREE_TEXT}", param="Body")
    return id_, {asked_names(templates[id_])[0]: form["Body"]}


def _passthrough_id(caller: Caller, form: dict[str, str]) -> str:
    given = form.get(SERVICE, "")
    named = template_id(given)
    # A value with our prefix always means a template, even an unknown one.
    known = named in caller.team.templates or given.startswith(PREFIXES["template"])
    return (named if known else "") or caller.key.passthrough or caller.team.record.passthrough


def _service(form: dict[str, str]) -> dict[str, str]:
    return {SERVICE: form[SERVICE]} if form.get(SERVICE) else {}


def _variables(text: str) -> dict[str, Any]:
    try:
        given = parse_json(text.encode(), "ContentVariables") if text else {}
    except InvalidJson:
        given = None
    if not isinstance(given, dict):
        raise InvalidRequest("ContentVariables is a JSON object as text.", param="ContentVariables")
    return given


def _name(key: str, names: list[str]) -> str:
    """Return the name of a variable, which Twilio's clients may give by its position."""
    position = whole_number(key, 3) or 0
    return names[position - 1] if 1 <= position <= len(names) else key


async def _callback(call: Call) -> str | None:
    """Return the URL for the events of this message; None if not given. They are signed with the secret of the team's
    webhook of the format twilio.
    """
    url: str | None = call.json.get("StatusCallback")
    if not url:
        return None
    hooks = call.context.store.setup.current.webhooks.get(call.team, ())
    if not any(hook.format == "twilio" for hook in hooks):
        raise InvalidRequest(
            "StatusCallback needs a webhook of the team with the format twilio: its secret signs the callbacks.",
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
    return timestamp(now + _number(form["ValidityPeriod"], "ValidityPeriod") * SECOND_MS)


def _number(text: str, name: str) -> int:
    number = whole_number(text, 6)
    if number is None:
        raise InvalidRequest(f"{name} is a number, not {text[:80]!r}.", param=name)
    return number


def _days(query: dict[str, str]) -> tuple[int, int]:
    """Return the exclusive time limits from `DateSent`, `DateSent>` and `DateSent<`, which are days or times."""
    after, before = 0, FOREVER
    for name, value in query.items():
        if name.startswith("DateSent"):
            at = parse_timestamp(value if "T" in value else f"{value}T00:00:00Z")
            if at is None:
                raise InvalidRequest(f"{name} is a day such as 2026-11-15.", param=name)
            if not name.endswith("<"):
                after = at - 1
            if not name.endswith(">"):
                before = at + (1 if "T" in value and name.endswith("<") else DAY_MS)
    return after, before


# -- one message -------------------------------------------------------------------------------------------------------


def _id(call: Call) -> str:
    return call.params["sid"].removesuffix(".json")


def _channel(id_: str) -> Channel:
    for channel in CHANNELS:
        if id_.startswith(PREFIXES[channel]):
            return channel
    raise MessageNotFound(f"No message {id_[:80]!r}. {MessageNotFound.fix}", param="Sid")


async def _find(call: Call, id_: str) -> MessageDetails:
    _channel(id_)
    found = await call.context.store.messages.whole(call.team, id_, (), call.hold)
    if found is None:
        raise MessageNotFound(f"No message {id_[:80]!r}. {MessageNotFound.fix}", param="Sid")
    return found


async def _put_away(call: Call, id_: str, action: str, *, whole: bool) -> None:
    _channel(id_)
    team = call.caller.team.record
    entry = call.actor.did(call.context.clock.now(), action, id_, team=team.id)
    done = await call.context.store.messages.put_away(team.ref, id_, entry, whole=whole)
    if done is None:
        raise MessageNotFound(f"No message {id_[:80]!r}. {MessageNotFound.fix}", param="Sid")
    if not done:
        raise AlreadySending("The message has not ended yet.")


async def _show(call: Call, id_: str, status: int = 200) -> Response:
    return replace(answer(_record(call, await _find(call, id_)), status), made=id_)


def _record(call: Call, found: MessageDetails) -> dict[str, Any]:
    facts, (recipient, *_) = found.facts, found.recipients
    account, record = call.params["account"], read_record(facts.record)
    detail = msgspec.json.decode(recipient.detail) if recipient.detail else {}
    sent_at = next((event.created_at for event in found.events if event.status == "sent"), None)
    status = to_status(facts.status, detail.get("reason"), was_sent=sent_at is not None)
    if facts.status == "queued" and record.scheduled_at:
        status = "scheduled"
    failed = facts.status == "failed"
    prefix, body, segments = WHATSAPP if facts.channel == "whatsapp" else "", "", 1
    if facts.content and facts.channel == "sms":
        content = msgspec.json.decode(facts.content, type=SmsContent)
        body, segments = content.body, content.segments
    elif facts.content:
        body = msgspec.json.decode(facts.content, type=WhatsappContent).body
    uri = f"/{VERSION}/Accounts/{account}/Messages/{facts.id}"
    return {
        "sid": facts.id,
        "account_sid": account,
        "messaging_service_sid": record.origin.get(SERVICE),
        "to": prefix + recipient.given,
        "from": sender(facts.id, record.sender_id, detail),
        "body": body,
        "status": status,
        "direction": "outbound-api",
        "num_segments": str(segments),
        "num_media": "0",
        "price": f"-{format_money(facts.price)}" if facts.charge == "captured" else None,
        "price_unit": call.caller.team.record.currency,
        "error_code": error_code(detail.get("reason")) if failed and status != "canceled" else None,
        "error_message": detail.get("text") if failed else None,
        "api_version": VERSION,
        "uri": f"{uri}.json",
        "date_created": mail_time(facts.created_at),
        "date_sent": mail_time(sent_at),
        "date_updated": mail_time(recipient.updated_at),
        "subresource_uris": {"media": f"{uri}/Media.json"},
    }
