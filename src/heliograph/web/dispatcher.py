"""Dispatches requests to the API or the dashboard, and determines the client's address behind trusted proxies."""

import copy
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_network
from typing import Protocol, Self

from heliograph.domain.network.client_address import client_address
from heliograph.domain.refusals import NotFound, Refusal, WrongCell
from heliograph.domain.setup.snapshot import Setup
from heliograph.web.request import Request, Response, accept_quality

FORWARDED_FOR = b"x-forwarded-for"

# Path prefixes, besides the dashboard's, of requests without an API key: only the host name identifies their cell.
KEYLESS_PREFIXES = ("/carriers/", "/unsubscribe/", "/bin/", "/hooks/", "/compat/resend/files/")

RequestHandler = Callable[[Request], Awaitable[Response]]


class ApiHandler(Protocol):
    """The API. It also creates the error responses for requests that reach no route."""

    def __call__(self, request: Request) -> Awaitable[Response]: ...

    def refusal_response(self, refusal: Refusal, request: Request | None = None) -> Response: ...

    def reject_overload(self, request: Request) -> Awaitable[Response]: ...


class SetupSource(Protocol):
    @property
    def current(self) -> Setup: ...


class Dispatcher:
    """Dispatches requests to the dashboard or the API.

    Behind trusted proxies, the client's address is the last one in X-Forwarded-For that is not a trusted proxy.
    """

    def __init__(
        self,
        api: ApiHandler,
        pages: RequestHandler,
        trusted_proxies: Sequence[str] = (),
        setup: SetupSource | None = None,
        *,
        cell: str = "",
        cell_host: str = "",
    ) -> None:
        """`cell`: name of the cell; empty outside cells. `cell_host`: host name of the cell, if it has one."""
        self._cell, self._cell_host = cell, cell_host
        self._api = api
        self._setup = setup
        self._pages = pages
        self._trusted = [ip_network(text) for text in trusted_proxies]
        self._paths: tuple[str, ...] | None = None  # the only paths served; None: all

    def restricted_to(self, paths: tuple[str, ...]) -> Self:
        """Return a copy of this dispatcher that serves only `paths`."""
        restricted = copy.copy(self)
        restricted._paths = paths
        return restricted

    def __call__(self, request: Request) -> Awaitable[Response]:
        if self._paths is not None and request.path not in self._paths:
            return self._not_found(request)
        if self._trusted and request.address:
            client = client_address(request.address, request.values(FORWARDED_FOR), self._trusted)
            if client != request.address:
                # Remove the evaluated header: later code takes a remaining one as a sign of an untrusted proxy.
                request.address = client
                request.raw_headers = [header for header in request.raw_headers if header[0] != FORWARDED_FOR]
                del request.headers[FORWARDED_FOR]
        if self._setup and self._setup.current.platform.compat_hosts:
            self._add_compat_prefix(request)
        is_page = _is_page(request)
        is_keyless = is_page or request.path.startswith(KEYLESS_PREFIXES)
        if self._cell_host and is_keyless and _host(request) != self._cell_host:
            return self._refuse_wrong_host(request)
        return (self._pages if is_page else self._api)(request)

    def refusal_response(self, refusal: Refusal, request: Request | None = None) -> Response:
        if request:
            self._add_compat_prefix(request)
        return self._api.refusal_response(refusal, request)

    def reject_overload(self, request: Request) -> Awaitable[Response]:
        self._add_compat_prefix(request)
        return self._api.reject_overload(request)

    def _add_compat_prefix(self, request: Request) -> None:
        """Add the prefix of the compatibility API to the path if the host is in `compat_hosts`."""
        hosts = self._setup.current.platform.compat_hosts if self._setup else {}
        if (service := hosts.get(_host(request))) and not request.path.startswith(prefix := f"/compat/{service}"):
            request.path, request.raw_path = prefix + request.path, prefix.encode() + request.raw_path

    async def _refuse_wrong_host(self, request: Request) -> Response:
        message = f"This is {self._cell}, whose host name is {self._cell_host}. Use the host name of your cell."
        return self.refusal_response(WrongCell(message), request)

    async def _not_found(self, request: Request) -> Response:
        return self.refusal_response(NotFound(), request)


def _host(request: Request) -> str:
    return request.headers.get(b"host", b"").decode("latin-1").partition(":")[0].rstrip(".").lower()


def _is_page(request: Request) -> bool:
    path = request.path
    if path == "/":  # browsers are redirected; API clients get 404
        return accept_quality(b",".join(request.values(b"accept")), b"text/html") > 0
    return path == "/dashboard" or path.startswith("/dashboard/")
