"""Requests to the API, defined once for both clients.

A method of a resource returns a `Request`. The decorators `call` and `paged` make the client send the request:
the method then returns the result on `Heliograph`, and an awaitable or async iterator on `AsyncHeliograph`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote


class Sync:
    """Type parameter of the resources of `Heliograph`, whose methods block."""


class Async:
    """Type parameter of the resources of `AsyncHeliograph`, whose methods are awaited."""


K = TypeVar("K", Sync, Async)
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Request(Generic[T]):
    """A request, and how to convert its response; immutable."""

    convert: Callable[[Any], T]  # converts the decoded response, or an item of a list
    method: str
    path: str
    query: Json = field(default_factory=dict)
    body: Json | None = None
    idempotency_key: str | None = None  # the same for all attempts
    cursor_field: str = "id"  # field of a page's last item whose value is the cursor of the next page
    cursor_param: str = "after"  # query parameter for the cursor
    poll_s: float | None = None  # seconds between polls after the last page; None: stop there
    wait_s: float = 0  # seconds for which the service may hold the request before it responds
    is_file: bool = False  # the response is a file instead of JSON

    def page(self) -> Request[Json]:
        """Return a request whose result is a page as decoded JSON."""
        return replace(self, convert=lambda raw: raw)  # type: ignore[return-value]

    def next(self, page: Json) -> Request[T]:
        """Return the request for the items after this page."""
        cursor = {self.cursor_param: page["data"][-1][self.cursor_field]} if page["data"] else {}
        return replace(self, query={**self.query, **cursor})

    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(fields(self.body), default=_encode_value).encode()


def path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="@") for part in parts)


def fields(params: Json) -> dict[str, Any]:
    """Return the fields of a body without None values. `from_` becomes `from`, which is a keyword in Python."""
    return {name.removesuffix("_"): value for name, value in params.items() if value is not None}


def _encode_value(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone().isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is not JSON")


class Resource(Generic[K]):
    """Methods of the API about one kind of object."""

    def __init__(self, client: Any) -> None:
        self._client = client


class _Method(Generic[S, P, T]):
    """Descriptor of a method that builds a request, which the client of its resource then sends."""

    def __init__(self, build: Callable[Concatenate[S, P], Request[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def _bind(self, owner: Any, client_method: str) -> Any:
        if owner is None:
            return self
        return lambda *args, **kwargs: getattr(owner._client, client_method)(self._build(owner, *args, **kwargs))


class call(_Method[S, P, T]):
    """A method that sends one request."""

    @overload
    def __get__(self, owner: Resource[Sync], kind: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, owner: Resource[Async], kind: Any = None) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self._bind(owner, "_run")


class paged(_Method[S, P, T]):
    """A method that iterates over a list; each page is requested when it is reached."""

    @overload
    def __get__(self, owner: Resource[Sync], kind: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, owner: Resource[Async], kind: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self._bind(owner, "_pages")
