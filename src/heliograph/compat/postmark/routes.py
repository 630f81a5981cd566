"""The route table and the adapter of Postmark's API."""

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.postmark import bounces, emails, messages, stats, suppressions, templates, webhooks
from heliograph.compat.postmark.codec import PREFIX, error, token
from heliograph.domain.limits import BATCH_BODY_MAX, MIB
from heliograph.web.adapter import Surface
from heliograph.web.bodies import parse_json
from heliograph.web.request import Request, Response
from heliograph.web.route import Route

SEND, MANAGE = ("send",), ("manage",)
WORDS: dict[str, Any] = {"body": dict, "body_max": 6 * MIB}  # body options of template routes
Answering = Callable[[Call], Awaitable[Response]]


def _sends(path: str, call: Answering) -> list[Route]:
    """Return the routes of a sending call with and without a trailing slash: Postmark's clients use both."""
    lines = (f"POST {path}", f"POST {path}/")
    return [_route(line, call, SEND, body=Any, body_max=BATCH_BODY_MAX) for line in lines]


def _reads(path: str, call: Answering) -> list[Route]:
    return [_route(f"GET {path}", call, SEND), _route(f"GET {path}/", call, SEND)]


def _route(line: str, call: Answering, scopes: tuple[str, ...], **more: Any) -> Route:
    method, path = line.split()
    return Route(method=method, path=PREFIX + path, call=call, summary=line, scopes=scopes, **more)


ROUTES = (
    *_sends("/email", emails.send),
    *_sends("/email/batch", emails.send_several),
    *_sends("/email/withTemplate", emails.send_with_template),
    *_sends("/email/batchWithTemplates", emails.send_several_with_templates),
    *_reads("/messages/outbound", messages.list_all),
    *_reads("/messages/outbound/opens", messages.list_opens),
    *_reads("/messages/outbound/opens/{id}", messages.list_opens),
    *_reads("/messages/outbound/clicks", messages.list_clicks),
    *_reads("/messages/outbound/clicks/{id}", messages.list_clicks),
    *_reads("/messages/outbound/{id}/details", messages.read),
    *_reads("/messages/outbound/{id}/dump", messages.read_source),
    *_reads("/bounces", bounces.list_all),
    *_reads("/bounces/{id}", bounces.read),
    *_reads("/bounces/{id}/dump", bounces.read_source),
    _route("PUT /bounces/{id}/activate", bounces.activate, MANAGE),
    *_reads("/deliverystats", bounces.count),
    *_reads("/deliveryStats", bounces.count),
    *_reads("/message-streams", suppressions.list_streams),
    *_reads("/message-streams/{stream}", suppressions.read_stream),
    _route("GET /message-streams/{stream}/suppressions/dump", suppressions.dump, MANAGE),
    _route("POST /message-streams/{stream}/suppressions", suppressions.add, MANAGE, body=dict),
    _route("POST /message-streams/{stream}/suppressions/delete", suppressions.remove, MANAGE, body=dict),
    _route("GET /templates", templates.list_all, MANAGE),
    _route("GET /templates/{id}", templates.read, MANAGE),
    _route("POST /templates", templates.create, MANAGE, **WORDS),
    _route("POST /templates/", templates.create, MANAGE, **WORDS),
    _route("POST /templates/validate", templates.validate, MANAGE, **WORDS),
    _route("PUT /templates/{id}", templates.change, MANAGE, **WORDS),
    _route("DELETE /templates/{id}", templates.delete, MANAGE),
    _route("GET /webhooks", webhooks.list_all, MANAGE),
    _route("GET /webhooks/{id}", webhooks.read, MANAGE),
    _route("POST /webhooks", webhooks.create, MANAGE, body=dict),
    _route("PUT /webhooks/{id}", webhooks.change, MANAGE, body=dict),
    _route("DELETE /webhooks/{id}", webhooks.delete, MANAGE),
    *_reads("/server", stats.read_server),
    *_reads("/stats/outbound", stats.overview),
    *_reads("/stats/outbound/sends", stats.by_day(Sent="sent")),
    *_reads("/stats/outbound/bounces", stats.by_day(HardBounce="bounced", SoftBounce="failed")),
    *_reads("/stats/outbound/spam", stats.by_day(SpamComplaint="complained")),
    *_reads("/stats/outbound/tracked", stats.untracked("Tracked")),
    *_reads("/stats/outbound/opens", stats.untracked("Opens", "Unique")),
    *_reads("/stats/outbound/clicks", stats.untracked("Clicks", "Unique")),
    *_reads("/stats/outbound/opens/{by}", stats.untracked()),
    *_reads("/stats/outbound/clicks/{by}", stats.untracked()),
)


POSTMARK = Surface(
    prefix=PREFIX,
    routes=ROUTES,
    token=token,
    test_token=b"POSTMARK_API_TEST",
    check_media_type=Request.check_media_type,
    parse=parse_json,
    error=error,
)
