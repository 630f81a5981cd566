"""Finds the route of a request: exact paths in one look-up, paths with names by their segments."""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar
from urllib.parse import unquote

from heliograph.rules.refusals import MethodNotAllowed, NotFound


class Routed(Protocol):
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Routed)


class Router(Generic[R]):
    def __init__(self, routes: Iterable[R]) -> None:
        self._exact: dict[str, dict[str, R]] = {}
        self._named: dict[tuple[str, ...], dict[str, R]] = {}
        for route in routes:
            if "{" in route.path:
                methods = self._named.setdefault(tuple(route.path.split("/")), {})
            else:
                methods = self._exact.setdefault(route.path, {})
            methods[route.method] = route
            if route.method == "GET":  # the connection leaves the body out
                methods.setdefault("HEAD", route)

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
        # Decoded after splitting: an email address in the path may hold an encoded slash.
        try:
            segments = [unquote(part, errors="strict") for part in raw_path.decode("ascii").split("/")]
        except UnicodeDecodeError:
            raise NotFound() from None
        if "\0" in "".join(segments):  # PostgreSQL cannot store it, so nothing has such an id
            raise NotFound()
        for pattern, methods in self._named.items():
            if len(pattern) == len(segments):
                params = {}
                for part, segment in zip(pattern, segments, strict=True):
                    if part.startswith("{") and segment:
                        params[part[1:-1]] = segment
                    elif part != segment:
                        break
                else:
                    return methods, params
        raise NotFound()
