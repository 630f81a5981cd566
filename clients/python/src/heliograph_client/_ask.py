"""One definition of each call, for both clients: what is asked, and how the answer is read.

A method of a resource is written once and answers an `Ask`. Called on a client it is carried out: `Heliograph` gives
the result, `AsyncHeliograph` an awaitable of it.
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
    """Marks the resources of `Heliograph`."""


class Async:
    """Marks those of `AsyncHeliograph`."""


K = TypeVar("K", Sync, Async)
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Ask(Generic[T]):
    read: Callable[[Any], T]  # the answer, or an entry of a list
    method: str
    path: str
    query: Json = field(default_factory=dict)
    body: Json | None = None
    idempotency_key: str | None = None  # the same for all tries
    cursor: str = "id"  # of the last entry: where the next page begins
    towards: str = "after"
    poll_s: float | None = None  # look again for more, after so long, for ever
    wait_s: float = 0  # how long the service may take on purpose
    is_file: bool = False  # answered with its bytes, not with JSON

    def page(self) -> Ask[Json]:
        return replace(self, read=lambda raw: raw)  # type: ignore[return-value]

    def next(self, page: Json) -> Ask[T]:
        seen = {self.towards: page["data"][-1][self.cursor]} if page["data"] else {}
        return replace(self, query={**self.query, **seen})

    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(fields(self.body), default=_plain).encode()


def path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="@") for part in parts)


def fields(given: Json) -> dict[str, Any]:
    """As the service names them: `from` is kept by Python for itself."""
    return {name.removesuffix("_"): value for name, value in given.items() if value is not None}


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone().isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is not JSON")


class Resource(Generic[K]):
    """What a client can be asked about one kind of thing."""

    def __init__(self, client: Any) -> None:
        self._client = client


class _Method(Generic[S, P, T]):
    def __init__(self, build: Callable[Concatenate[S, P], Ask[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def _bound(self, owner: Any, carry_out: str) -> Any:
        if owner is None:
            return self
        return lambda *given, **named: getattr(owner._client, carry_out)(self._build(owner, *given, **named))


class call(_Method[S, P, T]):
    """One request and its answer."""

    @overload
    def __get__(self, owner: Resource[Sync], kind: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, owner: Resource[Async], kind: Any = None) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self._bound(owner, "_run")


class paged(_Method[S, P, T]):
    """A list whose next pages are fetched when they are come to."""

    @overload
    def __get__(self, owner: Resource[Sync], kind: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, owner: Resource[Async], kind: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self._bound(owner, "_pages")
