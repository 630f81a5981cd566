"""First steps of a new operator: from an empty folder and the printed link to a delivered message."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, TabPool, assert_fits, printed_link, sync_api
from tests.people import PASSWORD

expect = sync_api.expect


@pytest.fixture
def page(tabs: TabPool, port: int) -> Iterator[Any]:
    yield tabs.acquire(base_url=f"http://127.0.0.1:{port}")  # the shared port; no service is running there yet
    tabs.release()


def send_test_message(page: Any, shoot: Shoot) -> None:
    """Send a test message from the overview and open the test inbox."""
    page.get_by_role("button", name="Send test").click()
    page.wait_for_url("**/messages/eml_*")
    page.evaluate("window.isStillHere = true")
    expect(page.locator("#moving .badge.delivered").first).to_be_visible()
    assert page.evaluate("window.isStillHere"), "the page was not loaded again"
    shoot(page, "first-message")
    page.get_by_role("navigation").get_by_role("link", name="Test inbox").click()
    page.get_by_role("link", name="Test message from").click()
    expect(page.get_by_text("It works! This message was sent from the dashboard")).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Overview").click()
    expect(page.locator(".figure").first).to_have_text("1")


def test_first_start_in_empty_folder_leads_to_delivered_message(page: Any, shoot: Shoot, tmp_path: Path) -> None:
    with printed_link(tmp_path) as link:
        page.goto(link.partition("/dashboard")[0])
        expect(page.locator("main")).to_contain_text("Look for First operator in the terminal or the log")
        assert_fits(page, shoot, "nobody-yet")
        page.goto(link)
        page.get_by_label("Email address").fill("ada@example.com")
        page.get_by_label("Your name").fill("Ada")
        page.get_by_label("New password").fill("short")
        page.get_by_role("button", name="Create account").click()
        expect(page.get_by_role("alert")).to_contain_text("10")
        expect(page.get_by_label("Email address")).to_have_value("ada@example.com")
        page.get_by_label("New password").fill(PASSWORD)
        page.get_by_label("Your first team").fill("Acme")
        assert_fits(page, shoot, "first-start")
        page.get_by_role("button", name="Create account").click()
        expect(page.locator(".flash")).to_contain_text("Send a test message")
        shoot(page, "first-team")
        send_test_message(page, shoot)

        page.goto(page.url.partition("/dashboard")[0])
        expect(page.get_by_role("link", name="Acme")).to_be_visible()
        page.get_by_role("link", name="Operator").click()
        page.get_by_role("link", name="Carriers").click()
        expect(page.get_by_text("without a carrier, these messages go to the test inbox").first).to_be_visible()
        page.goto(link)
        expect(page.get_by_role("heading", name="Not found")).to_be_visible()  # a link works once


def test_demo_link_leads_to_delivered_message(page: Any, shoot: Shoot, tmp_path: Path) -> None:
    with printed_link(tmp_path, "demo") as link:
        page.goto(link)
        page.get_by_role("button", name="Open the dashboard").click()
        send_test_message(page, shoot)


@pytest.mark.in_full
def test_first_start_without_team_name_asks_for_it(page: Any, tmp_path: Path) -> None:
    with printed_link(tmp_path) as link:
        page.goto(link)
        page.get_by_label("Email address").fill("ada@example.com")
        page.get_by_label("New password").fill(PASSWORD)
        page.get_by_role("button", name="Create account").click()
        expect(page.get_by_role("heading", name="Create the first team")).to_be_visible()
        page.get_by_label("Team name").fill("Acme")
        page.get_by_role("button", name="Create team").click()
        expect(page.locator(".flash")).to_contain_text("Send a test message")
