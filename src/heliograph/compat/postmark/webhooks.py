"""Compatibility API for Postmark, webhooks: endpoints that receive events in Postmark's format."""

from typing import Any
from urllib.parse import quote

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.postmark.codec import STREAM, check_stream, read_query
from heliograph.domain.exports.postmark import numeric_id
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import Webhook
from heliograph.web.request import Response
from heliograph.web.route import json_response
from heliograph.webhooks.policy.formats.formats import is_subscribed
from heliograph.webhooks.policy.formats.postmark import RECORD_TYPE_BY_TYPE, USER
from heliograph.webhooks.service import WebhookChange, WebhookRequest

FORMAT = "postmark"
TRIGGERS = ("Delivery", "Bounce", "SpamComplaint", "SubscriptionChange")
EVENTS_BY_TRIGGER = {
    trigger: [event for event, name in RECORD_TYPE_BY_TYPE.items() if name == trigger] for trigger in TRIGGERS
}
UNSUPPORTED_TRIGGERS = ("Open", "Click")  # accepted, but never occur, because nothing is tracked


class PostmarkTrigger(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    enabled: bool = False


class PostmarkLogin(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    username: str
    password: str = ""


class PostmarkWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    url: str | None = None
    message_stream: str | None = None
    http_auth: PostmarkLogin | None = None
    http_headers: list[Any] | None = None
    triggers: dict[str, PostmarkTrigger] | None = None


async def create(call: Call) -> Response:
    request = _parse_body(call)
    if request.url is None:
        raise InvalidRequest("Url is missing. Give the URL that receives the events.", param="Url")
    new_webhook = WebhookRequest(url=_with_login(request.url, request), events=_events(request, set()), format=FORMAT)
    created = await call.management.webhooks.create(call.actor, call.team_id, new_webhook)
    # Only this response contains the password.
    credentials = request.http_auth or PostmarkLogin(username=USER, password=created.secret)
    return json_response(_webhook_json(created.webhook) | {"HttpAuth": credentials})


async def list_all(call: Call) -> Response:
    check_stream(read_query(call).get("messagestream", STREAM))
    return json_response({"Webhooks": [_webhook_json(hook) for hook in _postmark_webhooks(call)]})


async def read(call: Call) -> Response:
    return json_response(_webhook_json(_find_webhook(call)))


async def change(call: Call) -> Response:
    request, hook = _parse_body(call), _find_webhook(call)
    url = _with_login(request.url or hook.url, request) if request.url or request.http_auth else None
    events = _events(request, _enabled_triggers(hook)) if request.triggers is not None else None
    changes = WebhookChange(url=url, events=events)
    return json_response(
        _webhook_json(await call.management.webhooks.change(call.actor, call.team_id, hook.id, changes))
    )


async def delete(call: Call) -> Response:
    hook = _find_webhook(call)
    await call.management.webhooks.remove(call.actor, call.team_id, hook.id)
    return json_response({"ErrorCode": 0, "Message": f"Webhook {numeric_id(hook.id)} removed."})


def _parse_body(call: Call) -> PostmarkWebhook:
    request = parse_request(PostmarkWebhook, call.json)
    check_stream(request.message_stream or STREAM)
    if request.http_headers:
        raise InvalidRequest("HttpHeaders: custom headers are not supported. Use HttpAuth.", param="HttpHeaders")
    return request


def _with_login(url: str, request: PostmarkWebhook) -> str:
    if request.http_auth is None:
        return url
    scheme, separator, rest = url.partition("://")
    login = f"{quote(request.http_auth.username, safe='')}:{quote(request.http_auth.password, safe='')}"
    return f"{scheme}{separator}{login}@{rest}"


def _events(request: PostmarkWebhook, previous: set[str]) -> list[str]:
    triggers = request.triggers or {}
    if unknown := [name for name in triggers if name not in (*TRIGGERS, *UNSUPPORTED_TRIGGERS)]:
        raise InvalidRequest(f"Triggers: unknown trigger {unknown[0][:80]!r}.", param="Triggers")
    enabled = [name for name in TRIGGERS if (triggers[name].enabled if name in triggers else name in previous)]
    if not enabled:
        raise InvalidRequest(f"Triggers: enable at least one of {', '.join(TRIGGERS)}.", param="Triggers")
    return [event for name in enabled for event in EVENTS_BY_TRIGGER[name]]


# -- records ------------------------------------------------------------------------------------------------------


def _postmark_webhooks(call: Call) -> list[Webhook]:
    return [hook for hook in call.caller.team.webhooks if hook.format == FORMAT]


def _find_webhook(call: Call) -> Webhook:
    id_ = call.params["id"]
    for hook in _postmark_webhooks(call):
        if id_ in (hook.id, str(numeric_id(hook.id))):
            return hook
    raise WebhookNotFound(f"No webhook {id_[:80]!r}.", param="id")


def _enabled_triggers(hook: Webhook) -> set[str]:
    return {name for name, types in EVENTS_BY_TRIGGER.items() if any(is_subscribed(hook, event) for event in types)}


def _webhook_json(hook: Webhook) -> dict[str, Any]:
    enabled = _enabled_triggers(hook)
    return {
        "ID": numeric_id(hook.id),
        "Url": hook.url,
        "MessageStream": STREAM,
        "HttpAuth": None,
        "HttpHeaders": [],
        "Triggers": {name: {"Enabled": name in enabled} for name in (*UNSUPPORTED_TRIGGERS, *TRIGGERS)},
    }
