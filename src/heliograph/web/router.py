"""Finds the route of a request.

A path without parameters takes one dict lookup. The routes with parameters are grouped by the number of their segments
and the positions of their `{name}` parameters; each group with as many segments as the path takes one lookup.
"""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar
from urllib.parse import unquote

from heliograph.domain.refusals import MethodNotAllowed, NotFound


class RouteLike(Protocol):
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=RouteLike)
# segments (empty for a parameter) → (parameter names, method → route)
_Paths = dict[tuple[str, ...], tuple[tuple[str, ...], dict[str, R]]]


def _parameter_flags(route: RouteLike) -> list[bool]:
    return [part.startswith("{") for part in route.path.split("/")]


class Router(Generic[R]):
    def __init__(self, routes: Iterable[R]) -> None:
        self._exact: dict[str, dict[str, R]] = {}
        # number of segments → positions of the parameters → routes
        self._with_params: dict[int, dict[tuple[int, ...], _Paths[R]]] = {}
        for route in sorted(routes, key=_parameter_flags):  # literal segments are matched before parameters
            methods = (
                self._methods_with_params(route.path) if "{" in route.path else self._exact.setdefault(route.path, {})
            )
            methods[route.method] = route
            if route.method == "GET":
                methods.setdefault("HEAD", route)  # the connection omits the body of the response

    def _methods_with_params(self, path: str) -> dict[str, R]:
        parts = path.split("/")
        names = {position: part[1:-1] for position, part in enumerate(parts) if part.startswith("{")}
        literals = tuple(["" if position in names else part for position, part in enumerate(parts)])
        paths = self._with_params.setdefault(len(parts), {}).setdefault(tuple(names), {})
        return paths.setdefault(literals, (tuple(names.values()), {}))[1]

    def find(self, method: str, path: str, raw_path: bytes) -> tuple[R, dict[str, str]]:
        """Return the route of a request and the values of its path parameters."""
        methods = self._exact.get(path)
        params: dict[str, str] = {}
        if methods is None:
            methods, params = self._match(raw_path)
        route = methods.get(method)
        if route is None:
            allow = ", ".join(sorted(methods))
            raise MethodNotAllowed(f"{method} is not allowed here. Use {allow}.", details={"allow": sorted(methods)})
        return route, params

    def _match(self, raw_path: bytes) -> tuple[dict[str, R], dict[str, str]]:
        # Percent-decode after splitting, because an email address in the path may contain an encoded slash.
        try:
            segments = raw_path.decode("ascii").split("/")
            if b"%" in raw_path:
                segments = [unquote(part, errors="strict") for part in segments]
        except UnicodeDecodeError:
            raise NotFound() from None
        if "\0" in "".join(segments):  # PostgreSQL cannot store null characters, so no id contains one
            raise NotFound()
        for positions, paths in self._with_params.get(len(segments), {}).items():
            literals, values = segments.copy(), list[str]()
            for position in positions:
                values.append(segments[position])
                literals[position] = ""
            if all(values) and (entry := paths.get(tuple(literals))):
                names, methods = entry
                return methods, dict(zip(names, values, strict=True))
        raise NotFound()
