"""Erasing an address in the dashboard: confirmation, owners only, and an audit entry without the address."""

import pytest

from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import until

HERE = "/dashboard/teams/team_acme/suppressions"
ADDRESS = "bounced+forget@example.com"
BODY = {"from": "hi@acme.test", "to": ADDRESS, "subject": "Hi", "text": "Hi"}
expect = sync_api.expect


def test_owner_erases_address(site: Site, shoot: Shoot) -> None:
    id_ = site.service.post("/v1/emails", BODY).json["id"]
    until(lambda: site.service.get(f"/v1/suppressions/{ADDRESS}").status == 200)
    page = site.open("forgets@example.com", "--team", "team_acme", "--role", "owner", path=HERE)
    page.get_by_role("link", name="Erase an address").click()
    page.get_by_label("Email address or phone number").fill("nobody")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_contain_text("expected an email address")
    expect(page.get_by_label("Email address or phone number")).to_have_value("nobody")
    page.get_by_label("Email address or phone number").fill(ADDRESS)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("This can't be undone.")).to_be_visible()
    assert ADDRESS not in page.url
    shoot(page, "erase-question")
    assert site.service.get(f"/v1/suppressions/{ADDRESS}").json["email"] == ADDRESS  # nothing is erased yet
    page.get_by_role("button", name="Erase permanently").click()
    expect(page.locator(".flash")).to_contain_text("Address erased. Messages affected: 1.")
    expect(page.locator("tbody tr", has_text="erased address")).to_contain_text("Bounce")
    expect(page.get_by_text(ADDRESS)).to_have_count(0)
    shoot(page, "erase-list")
    page.goto(f"{site.url}/dashboard/teams/team_acme/messages/{id_}")
    expect(page.get_by_text("or when an address is erased")).to_be_visible()
    assert ADDRESS not in page.content()
    page.goto(f"{site.url}/dashboard/teams/team_acme/audit")
    assert "address.erase" in page.content() and ADDRESS not in page.content()
    assert site.service.post("/v1/emails", BODY).code == "recipient_suppressed"


def test_erasing_address_with_queued_message_is_refused(site: Site) -> None:
    site.service.run("pause")
    try:
        until(lambda: site.service.post("/v1/emails", BODY | {"to": "waits@example.com"}).json["status"] == "queued")
        page = site.open("moves@example.com", "--team", "team_acme", "--role", "owner", path=f"{HERE}/erase")
        page.get_by_label("Email address or phone number").fill("waits@example.com")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Erase permanently").click()
        expect(page.get_by_role("alert")).to_contain_text("still in progress")
    finally:
        site.service.run("resume")


@pytest.mark.parametrize("role", ["viewer", "developer"])
def test_erase_page_for_non_owner_returns_403(site: Site, role: str) -> None:
    page = site.open(f"{role}.e@example.com", "--team", "team_acme", "--role", role, path=HERE)
    expect(page.get_by_role("link", name="Erase an address")).to_have_count(0)
    form = {"csrf": page.locator("input[name=csrf]").first.get_attribute("value"), "address": ADDRESS, "sure": "yes"}
    assert page.request.post(f"{site.url}{HERE}/erase", form=form).status == 403
    assert page.request.get(f"{site.url}{HERE}/erase").status == 403
