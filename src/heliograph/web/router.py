"""Finds the route of a request.

An exact path takes one dict lookup; a path with `{name}` parameters takes one per arrangement of parameter positions.
"""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar
from urllib.parse import unquote

from heliograph.domain.refusals import MethodNotAllowed, NotFound


class Routed(Protocol):
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Routed)
_Paths = dict[
    tuple[str, ...], tuple[tuple[str, ...], dict[str, R]]
]  # segments ("" for a parameter) → parameter names, routes by method


def _places_of_names(route: Routed) -> list[bool]:
    return [part.startswith("{") for part in route.path.split("/")]


class Router(Generic[R]):
    def __init__(self, routes: Iterable[R]) -> None:
        self._exact: dict[str, dict[str, R]] = {}
        self._named: dict[
            int, dict[tuple[int, ...], _Paths[R]]
        ] = {}  # number of segments → positions of parameters → paths
        for route in sorted(routes, key=_places_of_names):  # literal segments match before parameters
            methods = self._named_methods(route.path) if "{" in route.path else self._exact.setdefault(route.path, {})
            methods[route.method] = route
            if route.method == "GET":  # the connection omits the body
                methods.setdefault("HEAD", route)

    def _named_methods(self, path: str) -> dict[str, R]:
        parts = path.split("/")
        names = {place: part[1:-1] for place, part in enumerate(parts) if part.startswith("{")}
        words = tuple(["" if place in names else part for place, part in enumerate(parts)])
        paths = self._named.setdefault(len(parts), {}).setdefault(tuple(names), {})
        return paths.setdefault(words, (tuple(names.values()), {}))[1]

    def find(self, method: str, path: str, raw_path: bytes) -> tuple[R, dict[str, str]]:
        methods = self._exact.get(path)
        params: dict[str, str] = {}
        if methods is None:
            methods, params = self._match(raw_path)
        route = methods.get(method)
        if route is None:
            allow = ", ".join(sorted(methods))
            raise MethodNotAllowed(f"{method} is not possible here. Use {allow}.", details={"allow": sorted(methods)})
        return route, params

    def _match(self, raw_path: bytes) -> tuple[dict[str, R], dict[str, str]]:
        # Decode after splitting: an email address in the path may contain an encoded slash.
        try:
            segments = raw_path.decode("ascii").split("/")
            if b"%" in raw_path:
                segments = [unquote(part, errors="strict") for part in segments]
        except UnicodeDecodeError:
            raise NotFound() from None
        if "\0" in "".join(segments):  # PostgreSQL cannot store null characters, so no id contains one
            raise NotFound()
        for places, paths in self._named.get(len(segments), {}).items():
            words, values = segments.copy(), list[str]()
            for place in places:
                values.append(segments[place])
                words[place] = ""
            if all(values) and (found := paths.get(tuple(words))):
                names, methods = found
                return methods, dict(zip(names, values, strict=True))
        raise NotFound()
