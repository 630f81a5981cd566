"""If two routes match a path, the more specific one is used, in any order of definition."""

from typing import NamedTuple

import pytest

from heliograph.domain.refusals import MethodNotAllowed
from heliograph.web.router import Router


class Route(NamedTuple):
    method: str
    path: str


ROUTES = [
    Route("GET", "/emails/{id}"),
    Route("POST", "/emails/{id}/cancel"),
    Route("GET", "/emails/{id}/attachments"),
    Route("POST", "/emails/batch"),
    Route("GET", "/emails/receiving/{id}"),
]


@pytest.mark.parametrize("routes", [ROUTES, ROUTES[::-1]])
@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/emails/batch", None),
        ("POST", "/emails/batch", "/emails/batch"),
        ("POST", "/emails/eml_1/cancel", "/emails/{id}/cancel"),
        ("POST", "/emails/receiving/cancel", None),
        ("GET", "/emails/receiving/attachments", "/emails/receiving/{id}"),
    ],
)
def test_route_is_found_by_method_and_path(routes: list[Route], method: str, path: str, found: str | None) -> None:
    router = Router(routes)
    if found:
        assert router.find(method, path, path.encode())[0].path == found
    else:
        with pytest.raises(MethodNotAllowed):
            router.find(method, path, path.encode())
