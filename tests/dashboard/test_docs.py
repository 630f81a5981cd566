"""/docs in a browser: navigation and search, at desktop and phone width, with and without JavaScript."""

from typing import Any

import pytest

from tests.dashboard.conftest import Site, sync_api

expect = sync_api.expect
PHONE = {"width": 390, "height": 844}
PAGES = ("", "/api/post_emails", "/errors", "/errors/unsupported_attachment_type", "/guides/webhooks", "?q=bounce")


def is_wide(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def test_docs_navigation_leads_to_endpoint_and_errors(site: Site) -> None:
    page = site.page()
    page.goto(f"{site.url}/docs")
    page.get_by_label("Search the docs").press_sequentially("send an sms")
    entries = page.locator(".places a:visible")
    expect(entries).to_have_count(1)  # while the user types
    entries.click()
    page.wait_for_url("**/docs/api/post_sms")
    expect(page.locator(".of-curl pre")).to_be_visible()
    page.get_by_role("radio", name="Node").check(force=True)
    expect(page.locator(".of-node pre")).to_contain_text("await fetch(")
    expect(page.locator(".of-curl pre")).to_be_hidden()
    request, response = (page.locator(place).bounding_box() for place in (".fields >> nth=0", ".docs-beside"))
    assert response["x"] > request["x"] + request["width"]  # beside each other
    page.get_by_role("link", name="invalid_phone").click()
    page.wait_for_url("**/docs/errors/invalid_phone")
    expect(page.get_by_role("heading", name="What to do")).to_be_visible()
    page.get_by_role("link", name="Dashboard", exact=True).click()
    page.wait_for_url("**/dashboard/**")


def test_docs_examples_use_data_of_signed_in_team(site: Site) -> None:
    path = "/dashboard/teams/team_acme/start"
    page = site.open("reader@acme.test", "--team", "team_acme", "--role", "developer", path=path)
    page.goto(f"{site.url}/docs/api/post_emails")
    expect(page.locator(".of-curl code")).to_contain_text('"from": "hello@acme.test",')
    expect(page.locator("[data-own]")).to_contain_text("Example for Acme")
    expect(page.locator(".docs-beside")).to_contain_text('"hello@acme.test"')
    expect(page.locator(".docs-beside")).not_to_contain_text("hello@sandbox")  # and the response has no other one
    expect(page.locator(".answers")).not_to_contain_text('"sandbox": true')
    page.context.clear_cookies()
    page.reload()
    expect(page.locator(".of-curl code")).to_contain_text("delivered@simulator.test")
    assert "hello@acme.test" not in page.content()


def test_docs_search_works_without_javascript(site: Site) -> None:
    page = site.page(java_script_enabled=False)
    page.goto(f"{site.url}/docs")
    page.get_by_label("Search the docs").fill("signature")
    page.keyboard.press("Enter")
    page.get_by_role("main").locator("a[href='/docs/guides/webhooks']").first.click()
    page.wait_for_url("**/docs/guides/webhooks")


@pytest.mark.parametrize("path", PAGES)
def test_docs_page_fits_phone_width(site: Site, path: str) -> None:
    page = site.page(viewport=PHONE)
    page.goto(f"{site.url}/docs{path}")
    assert not is_wide(page)


def test_long_endpoint_page_is_folded_on_a_phone(site: Site) -> None:
    page = site.page(viewport=PHONE)
    page.goto(f"{site.url}/docs/api/post_emails")
    assert page.evaluate("document.documentElement.scrollHeight") < 2500
    expect(page.get_by_role("heading", name="Body")).to_be_visible()
    optional = page.locator("details", has=page.get_by_role("heading", name="Optional"))
    expect(optional).not_to_have_attribute("open", "")
    page.goto(f"{site.url}/docs?q=tags")
    page.goto(f"{site.url}/docs/api/post_emails#field-tags")  # from a search result
    expect(optional).to_have_attribute("open", "")
    page.set_viewport_size({"width": 1280, "height": 720})
    page.reload()
    expect(page.get_by_role("link", name="invalid_email")).to_be_visible()


def test_docs_on_phone_have_a_menu(site: Site) -> None:
    page = site.page(viewport=PHONE)
    page.goto(f"{site.url}/docs")
    expect(page.locator(".places")).to_be_hidden()
    page.get_by_label("Menu").click()
    page.locator(".places").get_by_role("link", name="Rate limits").click()
    page.wait_for_url("**/docs/guides/rate-limits")
    expect(page.get_by_role("heading", name="Rate limits", level=1)).to_be_visible()
