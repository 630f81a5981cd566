"""The door: which of the two edges a request is for, and whose it is behind proxies."""

from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_network
from typing import Protocol

from heliograph.rules.client_address import client_address
from heliograph.rules.refusals import Refusal
from heliograph.web.request import Receive, Response, Scope, Send

FORWARDED = b"x-forwarded-for"

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class ApiEdge(Protocol):
    """The API also answers requests that never reach a route."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]: ...

    def refused(self, refusal: Refusal) -> Response: ...

    def no_room(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]: ...


class Front:
    """The door: pages of the dashboard, or the API. Behind it the client is who came to the first trusted proxy."""

    def __init__(self, api: ApiEdge, pages: App, trusted_proxies: Sequence[str] = ()) -> None:
        self._api = api
        self._pages = pages
        self._trusted = [ip_network(text) for text in trusted_proxies]
        self.refused = api.refused
        self.no_room = api.no_room

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if self._trusted and scope.get("client"):
            host, port = scope["client"]
            forwarded = [value for name, value in scope["headers"] if name == FORWARDED]
            client = client_address(host, forwarded, self._trusted)
            if client != host:  # believed: a header left in place was not trusted
                scope["headers"] = [header for header in scope["headers"] if header[0] != FORWARDED]
            scope["client"] = client, port
        return (self._pages if scope["type"] == "http" and _is_page(scope) else self._api)(scope, receive, send)


def _is_page(scope: Scope) -> bool:
    path = scope["path"]
    if path == "/":  # a browser is redirected; for a program there is nothing here
        return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    return bool(path == "/dashboard" or path.startswith("/dashboard/"))
