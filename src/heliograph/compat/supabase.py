"""Supabase's auth hooks (compat.md): Supabase generates a code and signs the request, and we send the code."""

from typing import Any
from urllib.parse import urlencode

import msgspec

from heliograph.accept.email import EmailRequest, send_email
from heliograph.accept.idempotency import send_once
from heliograph.accept.phone import PhoneRequest
from heliograph.accept.sms import send_sms
from heliograph.compat.call import Call
from heliograph.compat.normalize import default_sender
from heliograph.domain.refusals import (
    InvalidApiKey,
    InvalidRequest,
    MethodNotAllowed,
    MissingApiKey,
    NotFound,
    PayloadTooLarge,
    Refusal,
)
from heliograph.domain.sending.acceptance import IdempotencyKey, SendResult
from heliograph.domain.sending.idempotency import KeyedRequest
from heliograph.domain.setup.records import Template
from heliograph.templates.policy.values import required_names
from heliograph.web.adapter import ApiAdapter
from heliograph.web.bodies import parse_json
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.route import Route, send_response
from heliograph.web.status import status_of

PREFIX = "/hooks/supabase"
RETRY_STATUSES = (429, 500, 503)  # statuses of responses after which Supabase repeats the request
# Refusals of requests that Supabase's hook never sends
NOT_SENT_BY_HOOK = (InvalidApiKey, MissingApiKey, NotFound, MethodNotAllowed, PayloadTooLarge)


async def handle_hook(call: Call) -> Response:
    keyed_request = KeyedRequest(call.request.decoded_headers()["webhook-id"], call.request.path, call.json, call.size)
    sent = await send_once(
        call.context, call.caller.key.id, keyed_request, lambda idempotency_key: _send(call, idempotency_key)
    )
    return send_response(sent, 200, b"{}")


async def _send(call: Call, idempotency_key: IdempotencyKey | None) -> SendResult[Any]:
    caller, body = call.caller, call.json
    user, sms, mail = (body.get(name) if isinstance(body, dict) else None for name in ("user", "sms", "email_data"))
    id_ = call.request.unchecked_query().get("template", "")
    template = caller.team.templates.get(id_)
    if not isinstance(user, dict) or template is None:
        raise InvalidRequest("Add the template to the hook's URL: ?template=tpl_…", param="template")
    if isinstance(sms, dict):
        phone = "+" + str(user.get("phone", "")).removeprefix("+")
        request = PhoneRequest(
            to=phone, template_id=id_, variables=_fill_variables(template, {"otp": str(sms.get("otp", ""))})
        )
        return await send_sms(call.context, caller, request, idempotency_key)
    if not isinstance(mail, dict):
        raise InvalidRequest("The request has neither sms nor email_data.")
    link = {"token": mail.get("token_hash"), "type": mail.get("email_action_type")}
    values = {name: text for name, text in mail.items() if isinstance(text, str)}
    values["link"] = f"{str(mail.get('site_url', '')).rstrip('/')}/verify?" + urlencode(
        link | {"redirect_to": mail.get("redirect_to", "")}
    )
    email = EmailRequest(
        to=str(user.get("email", "")),
        from_=default_sender(caller),
        template_id=id_,
        variables=_fill_variables(template, values),
    )
    return await send_email(call.context, caller, email, idempotency_key)


def _fill_variables(template: Template, values: dict[str, str]) -> dict[str, str]:
    """Return values for the template's variables. If there is one variable and one value, their names may differ."""
    names = required_names(template)
    if len(names) == 1 and len(values) == 1:
        return dict.fromkeys(names, *values.values())
    return {name: values[name] for name in names if name in values}


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    """Return status 200 with the error in the body, as Supabase expects.

    The response keeps its own status if Supabase should retry, or if the request does not come from the hook.
    """
    status = status_of(type(refusal))
    body = msgspec.json.encode({"error": {"http_code": status, "message": refusal.message}})
    keeps_status = status in RETRY_STATUSES or isinstance(refusal, NOT_SENT_BY_HOOK)
    return Response(status if keeps_status else 200, body, error_headers(refusal) if keeps_status else [])


def refuse_token(_: Request) -> bytes:
    raise MissingApiKey()


SUPABASE = ApiAdapter(
    prefix=PREFIX,
    routes=(
        Route(
            method="POST",
            path=PREFIX + "/{team}",
            call=handle_hook,
            summary="Supabase's auth hooks",
            scopes=("send",),
            body=dict,
        ),
    ),
    read_token=refuse_token,
    check_media_type=lambda request: None,
    parse_body=parse_json,
    error_response=error,
    has_signed_body=True,
)
