"""The route table and the adapter of the compatibility API for Resend."""

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.resend import domains, emails, files, keys, logs, receiving, suppressions, templates, webhooks
from heliograph.compat.resend.codec import PREFIX, error, parse, unsupported_reason
from heliograph.domain.limits import EMAIL_BODY_MAX, MIB
from heliograph.web.adapter import ApiAdapter, read_bearer_token
from heliograph.web.request import Request, Response
from heliograph.web.route import Route

SEND, MANAGE = ("send",), ("manage",)
SEND_OR_MANAGE = ("send", "manage")
TEMPLATE_BODY_MAX = 6 * MIB


def _route(
    operation: str, call: Callable[[Call], Awaitable[Response]], scopes: tuple[str, ...] | None, **options: Any
) -> Route:
    method, path = operation.split()
    body = dict if method in ("POST", "PATCH") else None
    return Route(method=method, path=PREFIX + path, call=call, summary=operation, scopes=scopes, body=body, **options)


ROUTES = (
    _route("POST /emails", emails.send, SEND, action="email", body_max=EMAIL_BODY_MAX),
    _route("POST /emails/batch", emails.send_several, SEND, action="email", body_max=EMAIL_BODY_MAX),
    _route("GET /emails", emails.list_all, SEND),
    _route("GET /emails/receiving", receiving.list_all, SEND_OR_MANAGE),
    _route("GET /emails/receiving/{id}", receiving.read, SEND_OR_MANAGE),
    _route("GET /emails/receiving/{id}/attachments", receiving.list_attachments, SEND_OR_MANAGE),
    _route("GET /emails/receiving/{id}/attachments/{attachment}", receiving.read_attachment, SEND_OR_MANAGE),
    _route("GET /files/{id}/{file}", files.download, None),
    _route("GET /emails/{id}", emails.read, SEND),
    _route("PATCH /emails/{id}", emails.reschedule, SEND),
    _route("POST /emails/{id}/cancel", emails.cancel, SEND),
    _route("GET /emails/{id}/attachments", emails.list_attachments, SEND),
    _route("GET /emails/{id}/attachments/{attachment}", emails.read_attachment, SEND),
    _route("POST /domains", domains.create, MANAGE),
    _route("GET /domains", domains.list_all, MANAGE),
    _route("GET /domains/{id}", domains.read, MANAGE),
    _route("PATCH /domains/{id}", domains.change, MANAGE),
    _route("DELETE /domains/{id}", domains.delete, MANAGE),
    _route("POST /domains/{id}/verify", domains.verify, MANAGE),
    _route("POST /webhooks", webhooks.create, MANAGE),
    _route("GET /webhooks", webhooks.list_all, MANAGE),
    _route("GET /webhooks/{id}", webhooks.read, MANAGE),
    _route("PATCH /webhooks/{id}", webhooks.change, MANAGE),
    _route("DELETE /webhooks/{id}", webhooks.delete, MANAGE),
    _route("POST /webhooks/{id}/signing-secret/rotate", webhooks.rotate, MANAGE),
    _route("GET /webhooks/{id}/events", webhooks.list_events, MANAGE),
    _route("GET /webhooks/{id}/events/{event}", webhooks.read_event, MANAGE),
    _route("GET /webhooks/{id}/events/{event}/attempts", webhooks.list_attempts, MANAGE),
    _route("POST /webhooks/{id}/events/{event}/replay", webhooks.replay, MANAGE),
    _route("POST /suppressions", suppressions.add, MANAGE),
    _route("GET /suppressions", suppressions.list_all, MANAGE),
    _route("GET /suppressions/{id}", suppressions.read, MANAGE),
    _route("DELETE /suppressions/{id}", suppressions.remove, MANAGE),
    _route("POST /suppressions/batch/add", suppressions.add_several, MANAGE),
    _route("POST /suppressions/batch/remove", suppressions.remove_several, MANAGE),
    _route("POST /api-keys", keys.create, MANAGE, action="keys"),
    _route("GET /api-keys", keys.list_all, MANAGE),
    _route("PATCH /api-keys/{id}", keys.rename, MANAGE, action="keys"),
    _route("DELETE /api-keys/{id}", keys.delete, MANAGE),
    _route("POST /templates", templates.create, MANAGE, body_max=TEMPLATE_BODY_MAX),
    _route("GET /templates", templates.list_all, MANAGE),
    _route("GET /templates/{id}", templates.read, MANAGE),
    _route("PATCH /templates/{id}", templates.change, MANAGE, body_max=TEMPLATE_BODY_MAX),
    _route("DELETE /templates/{id}", templates.delete, MANAGE),
    _route("POST /templates/{id}/publish", templates.publish, MANAGE),
    _route("POST /templates/{id}/duplicate", templates.duplicate, MANAGE),
    _route("GET /logs", logs.list_all, MANAGE),
    _route("GET /logs/{id}", logs.read, MANAGE),
)


def check_media_type(request: Request) -> None:
    """Check the media type if the request has one; clients send none with an empty body."""
    if b"content-type" in request.headers:
        request.check_media_type()


RESEND = ApiAdapter(
    prefix=PREFIX,
    routes=ROUTES,
    read_token=read_bearer_token,
    check_media_type=check_media_type,
    parse_body=parse,
    error_response=error,
    unsupported_reason=unsupported_reason,
)
