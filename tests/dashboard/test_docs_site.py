"""The static docs in a browser, opened as files without any server: navigation and search."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.api.site import write_site
from tests.dashboard.conftest import TabPool, sync_api

expect = sync_api.expect


@pytest.fixture
def page(tabs: TabPool) -> Iterator[Any]:
    yield tabs.acquire()
    tabs.release()


def test_static_docs_are_searched_without_a_server(page: Any, tmp_path: Path) -> None:
    write_site(tmp_path / "site")
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"file://{tmp_path}/site/index.html")
    page.get_by_label("Search the docs").fill("signature vectors")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=signature+vectors")
    results = page.locator("#found a")
    expect(results.first).to_contain_text("Webhooks")
    page.get_by_label("Search for words").fill("recipient_suppressed")
    results.first.click()
    page.wait_for_url("**/errors/recipient_suppressed.html")
    expect(page.get_by_role("heading", name="What to do")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Error codes").click()
    page.wait_for_url("**/errors.html")
    assert [url for url in requested if not url.startswith("file://")] == []
