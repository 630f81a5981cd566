"""Members of a team: invitations, roles and removal, and who may change them."""

import re
from typing import Any

import pytest

from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.people import PASSWORD

expect = sync_api.expect
TEAM = "/dashboard/teams/team_acme/team"


def choose_password(page: Any, link: str) -> None:
    page.goto(link)
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_role("button", name=re.compile("Create account|Set password")).click()
    page.wait_for_url("**/dashboard**")


def test_member_is_invited_changed_and_removed(site: Site, shoot: Shoot) -> None:
    owner = site.open("owner@example.com", "--team", "team_acme", "--role", "owner", path=TEAM)
    owner.get_by_role("link", name="Invite member").click()
    owner.get_by_label("Email address").fill("new@example.com")
    owner.get_by_label("Name").fill("Newcomer")
    owner.get_by_role("radio", name="Viewer").check()
    owner.get_by_role("button", name="Invite").click()
    link = owner.locator(".once code").inner_text()
    shoot(owner, "team-link")
    owner.goto(TEAM)
    assert link not in owner.content()
    shoot(owner, "team")

    guest = site.page(viewport={"width": 390, "height": 844})
    choose_password(guest, link)
    guest.goto(TEAM)
    expect(guest.get_by_role("cell", name="Newcomer")).to_be_visible()
    expect(guest.get_by_role("link", name="Invite member")).to_have_count(0)
    shoot(guest, "team-viewer-phone")

    owner.goto(TEAM)
    line = owner.get_by_role("row").filter(has_text="new@example.com")
    line.get_by_role("combobox").select_option("owner")
    line.get_by_role("button", name="Change").click()
    expect(owner.get_by_role("status")).to_have_text("new@example.com is now owner.")
    line.get_by_label("More about new@example.com").click()
    line.get_by_role("button", name="Remove").click()
    expect(owner.get_by_role("status")).to_have_text("new@example.com removed from the team.")
    assert guest.goto(TEAM).status == 404

    owner.get_by_label("More about owner@example.com").click()
    owner.get_by_role("button", name="Remove").click()
    expect(owner.get_by_role("alert")).to_have_text("A team needs an owner. Make another person an owner first.")
    shoot(owner, "team-last-owner")


def test_member_pages_for_non_owner_return_403(site: Site) -> None:
    for role, status in (("viewer", 403), ("developer", 403)):
        page = site.open(f"{role}@example.com", "--team", "team_acme", "--role", role, path=TEAM)
        csrf = page.locator("input[name=csrf]").first.get_attribute("value")
        form = {"csrf": csrf, "email": "x@example.com", "role": "owner"}
        assert page.request.post(f"{site.url}{TEAM}", form=form).status == status
        assert page.goto(TEAM.replace("team_acme", "team_sandbox")).status == 404


@pytest.mark.in_full
def test_inviting_existing_account_shows_owner_no_link(site: Site) -> None:
    """A link gives access to the whole account, so inviting an operator must not return a link."""
    boss = site.open("boss@example.com", "--operator")
    page = site.open("climber@example.com", "--team", "team_acme", "--role", "owner", path=TEAM)
    page.goto(f"{TEAM}/new")
    page.get_by_label("Email address").fill("boss@example.com")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_role("status")).to_contain_text("accepted by someone signed in as boss@example.com")
    boss.goto(page.locator(".once code").inner_text())
    boss.get_by_role("button", name="Accept").click()
    expect(boss.get_by_text("Welcome.")).to_be_visible()
    page.goto(TEAM)
    page.get_by_label("More about boss@example.com").click()
    page.get_by_role("row").filter(has_text="boss@example.com").get_by_role(
        "button", name="Create password reset link"
    ).click()
    expect(page.get_by_role("status")).to_contain_text("Ask an operator for the link")
    expect(page.locator(".copyable")).to_have_count(0)
