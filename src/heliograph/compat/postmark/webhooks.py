"""Postmark's webhooks: endpoints that receive events in Postmark's format."""

from typing import Any
from urllib.parse import quote

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.postmark.codec import STREAM, asked, check_stream
from heliograph.domain.exports.postmark import number_of
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import Webhook
from heliograph.web.request import Response
from heliograph.web.route import answer
from heliograph.webhooks.policy.formats.formats import hears
from heliograph.webhooks.policy.formats.postmark import TYPES, USER
from heliograph.webhooks.service import WebhookChange, WebhookRequest

FORMAT = "postmark"
TOLD = ("Delivery", "Bounce", "SpamComplaint", "SubscriptionChange")
OURS = {theirs: [own for own, name in TYPES.items() if name == theirs] for theirs in TOLD}
NEVER = ("Open", "Click")  # events that are never sent


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
    given = _read(call)
    if given.url is None:
        raise InvalidRequest("Url is missing. Say where events are sent.", param="Url")
    wanted = WebhookRequest(url=_with_login(given.url, given), events=_events(given, set()), format=FORMAT)
    made = await call.management.webhooks.create(call.actor, _team(call), wanted)
    own = given.http_auth or PostmarkLogin(username=USER, password=made.secret)  # shown only at creation
    return answer(_webhook(made.webhook) | {"HttpAuth": own})


async def list_all(call: Call) -> Response:
    check_stream(asked(call).get("messagestream", STREAM))
    return answer({"Webhooks": [_webhook(hook) for hook in _own(call)]})


async def read(call: Call) -> Response:
    return answer(_webhook(_found(call)))


async def change(call: Call) -> Response:
    given, hook = _read(call), _found(call)
    url = _with_login(given.url or hook.url, given) if given.url or given.http_auth else None
    events = _events(given, _heard(hook)) if given.triggers is not None else None
    wanted = WebhookChange(url=url, events=events)
    return answer(_webhook(await call.management.webhooks.change(call.actor, _team(call), hook.id, wanted)))


async def delete(call: Call) -> Response:
    hook = _found(call)
    await call.management.webhooks.remove(call.actor, _team(call), hook.id)
    return answer({"ErrorCode": 0, "Message": f"Webhook {number_of(hook.id)} removed."})


def _read(call: Call) -> PostmarkWebhook:
    given = given_as(PostmarkWebhook, call.json)
    check_stream(given.message_stream or STREAM)
    if given.http_headers:
        raise InvalidRequest("HttpHeaders: no headers of your own are sent. Use HttpAuth.", param="HttpHeaders")
    return given


def _with_login(url: str, given: PostmarkWebhook) -> str:
    if given.http_auth is None:
        return url
    scheme, parting, rest = url.partition("://")
    login = f"{quote(given.http_auth.username, safe='')}:{quote(given.http_auth.password, safe='')}"
    return f"{scheme}{parting}{login}@{rest}"


def _events(given: PostmarkWebhook, before: set[str]) -> list[str]:
    triggers = given.triggers or {}
    if unknown := [name for name in triggers if name not in (*TOLD, *NEVER)]:
        raise InvalidRequest(f"Triggers: there is no {unknown[0][:80]!r}.", param="Triggers")
    wanted = [name for name in TOLD if (triggers[name].enabled if name in triggers else name in before)]
    if not wanted:
        raise InvalidRequest(f"Triggers: enable one of {', '.join(TOLD)}: nothing else is told.", param="Triggers")
    return [own for name in wanted for own in OURS[name]]


# -- records ------------------------------------------------------------------------------------------------------


def _team(call: Call) -> str:
    return call.caller.team.record.id


def _own(call: Call) -> list[Webhook]:
    return [hook for hook in call.caller.team.webhooks if hook.format == FORMAT]


def _found(call: Call) -> Webhook:
    given = call.params["id"]
    for hook in _own(call):
        if given in (hook.id, str(number_of(hook.id))):
            return hook
    raise WebhookNotFound(f"No webhook {given[:80]!r}.", param="id")


def _heard(hook: Webhook) -> set[str]:
    return {name for name, types in OURS.items() if any(hears(hook, own) for own in types)}


def _webhook(hook: Webhook) -> dict[str, Any]:
    heard = _heard(hook)
    return {
        "ID": number_of(hook.id),
        "Url": hook.url,
        "MessageStream": STREAM,
        "HttpAuth": None,
        "HttpHeaders": [],
        "Triggers": {name: {"Enabled": name in heard} for name in (*NEVER, *TOLD)},
    }
