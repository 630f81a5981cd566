"""Supabase's auth hooks: Supabase generates the codes and signs its requests; we send the codes from a template
(compat.md).
"""

from typing import Any
from urllib.parse import urlencode

import msgspec

from heliograph.accept.email import EmailRequest, send_email
from heliograph.accept.idempotency import send_once
from heliograph.accept.phone import PhoneRequest
from heliograph.accept.sms import send_sms
from heliograph.compat.call import Call
from heliograph.compat.normalize import own_sender
from heliograph.domain.refusals import (
    InvalidApiKey,
    InvalidRequest,
    MethodNotAllowed,
    MissingApiKey,
    NotFound,
    PayloadTooLarge,
    Refusal,
)
from heliograph.domain.sending.acceptance import IdempotencyKey, Sent
from heliograph.domain.sending.idempotency import Retry
from heliograph.domain.setup.records import Template
from heliograph.templates.policy.values import asked_names
from heliograph.web.adapter import Surface
from heliograph.web.bodies import parse_json
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.route import Route, answer_once
from heliograph.web.status import status_of

PREFIX = "/hooks/supabase"
AGAIN = (429, 500, 503)  # statuses after which Supabase retries
NO_HOOK = (InvalidApiKey, MissingApiKey, NotFound, MethodNotAllowed, PayloadTooLarge)


async def hook(call: Call) -> Response:
    retry = Retry(call.request.texts()["webhook-id"], call.request.path, call.json, call.size)
    done = await send_once(call.context, call.caller.key.id, retry, lambda retry_key: _send(call, retry_key))
    return answer_once(done, 200, b"{}")


async def _send(call: Call, retry_key: IdempotencyKey | None) -> Sent[Any]:
    caller, value = call.caller, call.json
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
    """Return values for the template's variables. A single variable receives a single value, whatever its name."""
    names = asked_names(template)
    if len(names) == 1 and len(told) == 1:
        return dict.fromkeys(names, *told.values())
    return {name: told[name] for name in names if name in told}


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    """Return a refusal as status 200 with an error in the body, as Supabase expects.

    Refusals that Supabase should retry, and those that are not from the hook, keep their status.
    """
    status = status_of(type(refusal))
    body = msgspec.json.encode({"error": {"http_code": status, "message": refusal.message}})
    kept = status in AGAIN or isinstance(refusal, NO_HOOK)
    return Response(status if kept else 200, body, error_headers(refusal) if kept else [])


def unkeyed(_: Request) -> bytes:
    raise MissingApiKey()


SUPABASE = Surface(
    prefix=PREFIX,
    routes=(
        Route(
            method="POST",
            path=PREFIX + "/{team}",
            call=hook,
            summary="Supabase's auth hooks",
            scopes=("send",),
            body=dict,
        ),
    ),
    token=unkeyed,
    check_media_type=lambda request: None,
    parse=parse_json,
    error=error,
    signed=True,
)
