"""Every page of a new team without data works."""

from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES
from tests.dashboard.conftest import Site

NEW = """
[[teams]]
id = "team_new"
name = "New"
mode = "{mode}"
"""
# pages that not every team has, or that need a public host name
NOT_PAGES = (
    *("/live", "/zone", "/suppressions/remove", "/senders/recipients", "/recipients/new"),
    *("/passkeys/new", "/account/provider"),
)
PATHS = [
    route.path.format(team="team_new")
    for route in PAGES
    if route.method == "GET"
    and route.required_role != "anyone"
    and route.path.count("{") == route.path.count("{team}")
    and not route.path.endswith(NOT_PAGES)
]


@pytest.mark.parametrize("mode", ["sandbox", "live"])
def test_every_page_of_new_team_returns_200(site: Site, tmp_path: Path, mode: str) -> None:
    file = tmp_path / "new.toml"
    file.write_text(NEW.format(mode=mode))
    site.service.apply(file)
    page = site.open(f"{mode}@example.com", "--operator")
    assert len(PATHS) > 25
    assert {path: status(page, site, path) for path in PATHS} == dict.fromkeys(PATHS, 200)


def status(page: Any, site: Site, path: str) -> int:
    response: int = page.request.get(site.url + path).status
    return response
