"""Dispatches each request to the API or the dashboard, and determines the client address behind trusted proxies."""

import copy
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_network
from typing import Protocol, Self

from heliograph.domain.network.client_address import client_address
from heliograph.domain.refusals import NotFound, Refusal
from heliograph.domain.setup.snapshot import Setup
from heliograph.web.request import Request, Response, liking

FORWARDED = b"x-forwarded-for"

Edge = Callable[[Request], Awaitable[Response]]


class ApiEdge(Protocol):
    """The API application, which also answers requests that never reach a route."""

    def __call__(self, request: Request) -> Awaitable[Response]: ...

    def refused(self, refusal: Refusal, request: Request | None = None) -> Response: ...

    def no_room(self, request: Request) -> Awaitable[Response]: ...


class SetupInUse(Protocol):
    @property
    def current(self) -> Setup: ...


class Front:
    """Dispatcher of requests to the dashboard or the API.

    Behind trusted proxies, the client address is the one that connected to the first trusted proxy.
    """

    def __init__(
        self, api: ApiEdge, pages: Edge, trusted_proxies: Sequence[str] = (), setup: SetupInUse | None = None
    ) -> None:
        self._api = api
        self._setup = setup
        self._pages = pages
        self._trusted = [ip_network(text) for text in trusted_proxies]
        self._paths: tuple[str, ...] | None = None  # paths that are served; None for all

    def part(self, paths: tuple[str, ...]) -> Self:
        """Return a copy of this dispatcher that serves only `paths`."""
        made = copy.copy(self)
        made._paths = paths
        return made

    def __call__(self, request: Request) -> Awaitable[Response]:
        if self._paths is not None and request.path not in self._paths:
            return self._nothing(request)
        if self._trusted and request.address:
            client = client_address(request.address, request.values(FORWARDED), self._trusted)
            if client != request.address:  # the header was trusted, so remove it; a header that remains is untrusted
                request.address = client
                request.raw_headers = [header for header in request.raw_headers if header[0] != FORWARDED]
                del request.headers[FORWARDED]
        if self._setup and self._setup.current.platform.compat_hosts:
            self._place(request)
        return (self._pages if _is_page(request) else self._api)(request)

    def refused(self, refusal: Refusal, request: Request | None = None) -> Response:
        if request:
            self._place(request)
        return self._api.refused(refusal, request)

    def no_room(self, request: Request) -> Awaitable[Response]:
        self._place(request)
        return self._api.no_room(request)

    def _place(self, request: Request) -> None:
        """Add the prefix of the compatibility API to the path if the host is in `compat_hosts`."""
        hosts = self._setup.current.platform.compat_hosts if self._setup else {}
        name = request.headers.get(b"host", b"").decode("latin-1").partition(":")[0].rstrip(".").lower()
        if (service := hosts.get(name)) and not request.path.startswith(prefix := f"/compat/{service}"):
            request.path, request.raw_path = prefix + request.path, prefix.encode() + request.raw_path

    async def _nothing(self, request: Request) -> Response:
        return self.refused(NotFound(), request)


def _is_page(request: Request) -> bool:
    path = request.path
    if path == "/":  # browsers are redirected; API clients get 404
        return liking(b",".join(request.values(b"accept")), b"text/html") > 0
    return path == "/dashboard" or path.startswith("/dashboard/")
