"""The route table and the adapter of the compatibility API for Postmark."""

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.postmark import bounces, emails, messages, stats, suppressions, templates, webhooks
from heliograph.compat.postmark.codec import PREFIX, error, token, unsupported_reason
from heliograph.domain.limits import BATCH_BODY_MAX, MIB
from heliograph.web.adapter import ApiAdapter
from heliograph.web.bodies import parse_json
from heliograph.web.request import Request, Response
from heliograph.web.route import Route

SEND, MANAGE = ("send",), ("manage",)
TEMPLATE_BODY: dict[str, Any] = {"body": dict, "body_max": 6 * MIB}  # body options of template routes
Handler = Callable[[Call], Awaitable[Response]]


def _send_routes(path: str, call: Handler) -> list[Route]:
    """Return the routes of a sending call with and without a slash at the end, because Postmark's clients use both."""
    operations = (f"POST {path}", f"POST {path}/")
    return [
        _route(operation, call, SEND, action="email", body=Any, body_max=BATCH_BODY_MAX) for operation in operations
    ]


def _read_routes(path: str, call: Handler) -> list[Route]:
    return [_route(f"GET {path}", call, SEND), _route(f"GET {path}/", call, SEND)]


def _route(operation: str, call: Handler, scopes: tuple[str, ...], **options: Any) -> Route:
    method, path = operation.split()
    return Route(method=method, path=PREFIX + path, call=call, summary=operation, scopes=scopes, **options)


ROUTES = (
    *_send_routes("/email", emails.send),
    *_send_routes("/email/batch", emails.send_several),
    *_send_routes("/email/withTemplate", emails.send_with_template),
    *_send_routes("/email/batchWithTemplates", emails.send_several_with_templates),
    *_read_routes("/messages/outbound", messages.list_all),
    *_read_routes("/messages/outbound/opens", messages.list_opens),
    *_read_routes("/messages/outbound/opens/{id}", messages.list_opens),
    *_read_routes("/messages/outbound/clicks", messages.list_clicks),
    *_read_routes("/messages/outbound/clicks/{id}", messages.list_clicks),
    *_read_routes("/messages/outbound/{id}/details", messages.read),
    *_read_routes("/messages/outbound/{id}/dump", messages.read_source),
    *_read_routes("/bounces", bounces.list_all),
    *_read_routes("/bounces/{id}", bounces.read),
    *_read_routes("/bounces/{id}/dump", bounces.read_source),
    _route("PUT /bounces/{id}/activate", bounces.activate, MANAGE),
    *_read_routes("/deliverystats", bounces.count),
    *_read_routes("/deliveryStats", bounces.count),
    *_read_routes("/message-streams", suppressions.list_streams),
    *_read_routes("/message-streams/{stream}", suppressions.read_stream),
    _route("GET /message-streams/{stream}/suppressions/dump", suppressions.dump, MANAGE),
    _route("POST /message-streams/{stream}/suppressions", suppressions.add, MANAGE, body=dict),
    _route("POST /message-streams/{stream}/suppressions/delete", suppressions.remove, MANAGE, body=dict),
    _route("GET /templates", templates.list_all, MANAGE),
    _route("GET /templates/{id}", templates.read, MANAGE),
    _route("POST /templates", templates.create, MANAGE, **TEMPLATE_BODY),
    _route("POST /templates/", templates.create, MANAGE, **TEMPLATE_BODY),
    _route("POST /templates/validate", templates.validate, MANAGE, **TEMPLATE_BODY),
    _route("PUT /templates/{id}", templates.change, MANAGE, **TEMPLATE_BODY),
    _route("DELETE /templates/{id}", templates.delete, MANAGE),
    _route("GET /webhooks", webhooks.list_all, MANAGE),
    _route("GET /webhooks/{id}", webhooks.read, MANAGE),
    _route("POST /webhooks", webhooks.create, MANAGE, body=dict),
    _route("PUT /webhooks/{id}", webhooks.change, MANAGE, body=dict),
    _route("DELETE /webhooks/{id}", webhooks.delete, MANAGE),
    *_read_routes("/server", stats.read_server),
    *_read_routes("/stats/outbound", stats.overview),
    *_read_routes("/stats/outbound/sends", stats.by_day(Sent="sent")),
    *_read_routes("/stats/outbound/bounces", stats.by_day(HardBounce="bounced", SoftBounce="failed")),
    *_read_routes("/stats/outbound/spam", stats.by_day(SpamComplaint="complained")),
    *_read_routes("/stats/outbound/tracked", stats.empty_stats("Tracked")),
    *_read_routes("/stats/outbound/opens", stats.empty_stats("Opens", "Unique")),
    *_read_routes("/stats/outbound/clicks", stats.empty_stats("Clicks", "Unique")),
    *_read_routes("/stats/outbound/opens/{by}", stats.empty_stats()),
    *_read_routes("/stats/outbound/clicks/{by}", stats.empty_stats()),
)


POSTMARK = ApiAdapter(
    prefix=PREFIX,
    routes=ROUTES,
    read_token=token,
    test_token=b"POSTMARK_API_TEST",
    check_media_type=Request.check_media_type,
    parse_body=parse_json,
    error_response=error,
    unsupported_reason=unsupported_reason,
)
