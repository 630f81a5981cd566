"""Filters with many options are searched while typing, by keyboard and mouse; without JavaScript they are lists."""

from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, assert_fits, sync_api
from tests.service import until

expect = sync_api.expect
PATHS = ("received", "emails", "sms", "whatsapp", "verify", "suppressions", "domains", "templates", "keys", "webhooks")
LOG = "/dashboard/teams/team_acme/requests"
DEVELOPER = ("--team", "team_acme", "--role", "developer")


@pytest.fixture
def requests_page(site: Site) -> Any:
    """A request log whose endpoint filter has more options than fit a plain list."""
    for path in PATHS:
        site.service.get(f"/v1/{path}", key="ACME")
    page = site.open("filters@example.com", *DEVELOPER)
    until(lambda: page.goto(LOG) and page.get_by_role("combobox", name="Endpoint").is_visible())
    return page


def test_endpoint_filter_is_searched_by_keyboard(requests_page: Any) -> None:
    page = requests_page
    box = page.get_by_role("combobox", name="Endpoint")
    box.focus()
    page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    page.keyboard.type("v1 hook")
    expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(1)
    active = page.locator(f"#{box.get_attribute('aria-activedescendant')}")
    expect(active).to_have_text("GET /v1/webhooks")
    page.keyboard.press("Enter")
    page.wait_for_url("**route=GET+%2Fv1%2Fwebhooks**")
    expect(page.get_by_role("combobox", name="Endpoint")).to_have_value("GET /v1/webhooks")
    page.get_by_role("combobox", name="Endpoint").fill("nothing like this")
    expect(page.get_by_role("listbox").get_by_role("option")).to_have_text("No match")
    page.keyboard.press("Tab")
    expect(page.get_by_role("combobox", name="Endpoint")).to_have_value("GET /v1/webhooks")
    page.get_by_role("combobox", name="Endpoint").fill("")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**route=&**")


def test_endpoint_filter_is_chosen_with_the_mouse_and_fits_a_phone(requests_page: Any, shoot: Shoot) -> None:
    page = requests_page
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_text("Filters", exact=True).click()
    page.get_by_role("combobox", name="Endpoint").click()
    assert_fits(page, shoot, "requests-filter")
    page.get_by_role("group", name="Sms").get_by_role("option").click()
    page.wait_for_url("**route=GET+%2Fv1%2Fsms**")


def test_endpoint_filter_without_javascript_is_a_list(requests_page: Any, site: Site) -> None:
    page = site.open("plain@example.com", *DEVELOPER, java_script_enabled=False)
    page.goto(LOG)
    page.get_by_label("Endpoint").select_option("GET /v1/sms")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**route=GET+%2Fv1%2Fsms**")
    assert {*page.locator("#requests .rowlink").all_inner_texts()} == {"GET /v1/sms"}
