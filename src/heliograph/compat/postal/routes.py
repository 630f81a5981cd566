"""The route table and the adapter of the compatibility API for Postal."""

from collections.abc import Awaitable, Callable
from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.postal import messages, send
from heliograph.compat.postal.codec import PREFIX, error, token
from heliograph.domain.limits import EMAIL_BODY_MAX
from heliograph.web.adapter import ApiAdapter
from heliograph.web.bodies import parse_json
from heliograph.web.request import Request, Response
from heliograph.web.route import Route


def _route(path: str, call: Callable[[Call], Awaitable[Response]], body: Any, **options: Any) -> Route:
    path = f"/api/v1/{path}"
    summary = f"POST {path}"
    return Route(method="POST", path=PREFIX + path, call=call, summary=summary, scopes=("send",), body=body, **options)


POSTAL = ApiAdapter(
    prefix=PREFIX,
    routes=(
        _route("send/message", send.send, send.PostalMail, action="email", body_max=EMAIL_BODY_MAX),
        _route("send/raw", send.send_raw, send.PostalRaw, action="email", body_max=EMAIL_BODY_MAX),
        _route("messages/message", messages.read, messages.PostalMessage),
        _route("messages/deliveries", messages.list_attempts, messages.PostalMessage),
    ),
    read_token=token,
    check_media_type=Request.check_media_type,
    parse_body=parse_json,
    error_response=error,
)
