"""Supabase's auth hooks: it makes the codes and signs its requests; we send them, from a template (compat.md)."""

from typing import Any
from urllib.parse import urlencode

import msgspec

from heliograph.accept.email import EmailRequest, send_email
from heliograph.accept.idempotency import once
from heliograph.accept.phone import PhoneRequest
from heliograph.accept.sms import send_sms
from heliograph.compat.call import Call
from heliograph.compat.given import own_sender
from heliograph.rules.acceptance import Answer, IdempotencyKey
from heliograph.rules.idempotency import Retry
from heliograph.rules.limits import SECOND_MS
from heliograph.rules.refusals import InvalidRequest, Refusal
from heliograph.rules.setup.records import Caller, Key, Template
from heliograph.rules.templates.values import asked_names
from heliograph.rules.webhook_signature import is_signed
from heliograph.web.bodies import parse_json
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.route import Route, answer
from heliograph.web.status import status_of
from heliograph.web.surface import Surface, bearer

PREFIX = "/hooks/supabase"
AGAIN = (429, 503)  # statuses after which Supabase tries once more


async def hook(call: Call) -> Response:
    """A refusal is a 200 that holds it, as Supabase wants, unless it is to come again."""
    raw = await call.read() if call.read else b""
    given = {name.decode("latin-1"): value.decode("latin-1") for name, value in call.request.headers.items()}
    team = call.context.store.setup.current.teams.get(call.params["team"])
    secrets = call.management.webhooks.secrets(team) if team else []
    if team is None or not is_signed(secrets, given, raw, call.context.clock.now() // SECOND_MS):
        words = "The signature does not match the secret of an enabled webhook of this team."
        return Response(401, _body(401, words), [(b"heliograph-should-retry", b"false")])
    key = Key(id=f"supabase {team.record.id}", team=team.record.id, name="Supabase", hash="")
    try:
        if team.record.suspended:
            return Response(200, _body(403, "The team is suspended."))
        value = parse_json(raw)
        retry = Retry(given["webhook-id"], call.request.path, value, len(raw))
        caller = Caller(team=team, key=key)
        await once(call.context, key.id, retry, lambda retry_key: _send(call, caller, value, retry_key))
    except Refusal as refusal:
        status = status_of(type(refusal))
        if status in AGAIN:
            return error(refusal, call.request, "")
        return Response(200, _body(status, refusal.message))
    return answer({})


async def _send(call: Call, caller: Caller, value: Any, retry_key: IdempotencyKey | None) -> Answer:
    user, sms, mail = (value.get(name) if isinstance(value, dict) else None for name in ("user", "sms", "email_data"))
    id_ = call.request.loose_query().get("template", "")
    template = caller.team.templates.get(id_)
    if not isinstance(user, dict) or template is None:
        raise InvalidRequest("Put the template into the hook's address: ?template=tpl_…", param="template")
    if isinstance(sms, dict):
        phone = "+" + str(user.get("phone", "")).removeprefix("+")
        request = PhoneRequest(to=phone, template_id=id_, variables=_fill(template, {"otp": str(sms.get("otp", ""))}))
        return await send_sms(call.context, caller, request, retry_key)
    if not isinstance(mail, dict):
        raise InvalidRequest("The hook has neither sms nor email_data.")
    link = {"token": mail.get("token_hash"), "type": mail.get("email_action_type")}
    told = {name: text for name, text in mail.items() if isinstance(text, str)}
    told["link"] = f"{str(mail.get('site_url', '')).rstrip('/')}/verify?" + urlencode(
        link | {"redirect_to": mail.get("redirect_to", "")}
    )
    mailed = EmailRequest(
        to=str(user.get("email", "")),
        from_=own_sender(caller),
        template_id=id_,
        variables=_fill(template, told),
    )
    return await send_email(call.context, caller, mailed, retry_key)


def _fill(template: Template, told: dict[str, str]) -> dict[str, str]:
    """What the template declares; what has one variable gets the one value there is, whatever it calls it."""
    names = asked_names(template)
    if len(names) == 1 and len(told) == 1:
        return dict.fromkeys(names, *told.values())
    return {name: told[name] for name in names if name in told}


def _body(status: int, message: str) -> bytes:
    return msgspec.json.encode({"error": {"http_code": status, "message": message}})


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    """Of what is no hook, or is to come again: it keeps its status."""
    status = status_of(type(refusal))
    return Response(status, _body(status, refusal.message), error_headers(refusal))


SUPABASE = Surface(
    prefix=PREFIX,
    routes=(Route(method="POST", path=PREFIX + "/{team}", call=hook, summary="Supabase's auth hooks"),),
    token=bearer,
    check_media_type=Request.check_media_type,
    parse=parse_json,
    error=error,
)
