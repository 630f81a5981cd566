"""How long a team keeps its content and messages, set by its owner."""

import pytest

from tests.dashboard.conftest import Shoot, Site, sync_api

HERE = "/dashboard/teams/team_plain/settings"
expect = sync_api.expect


def test_owner_sets_retention_days(site: Site, shoot: Shoot) -> None:
    page = site.open("rita@example.com", "--team", "team_plain", "--role", "owner", path=HERE)
    content, messages = page.get_by_label("Content (days)"), page.get_by_label("Messages (days)")
    save = page.get_by_role("button", name="Save retention")
    expect(content).to_have_value("7")
    expect(messages).to_have_value("90")
    for days, error in (
        (("0", "90"), "from 1 to 90, got 0"),
        (("a week", "90"), "expected a whole number"),
        (("30", "3651"), "from 1 to 3650"),
        (("30", "29"), "expected at least 30"),
    ):
        content.fill(days[0])
        messages.fill(days[1])
        save.click()
        expect(page.get_by_role("alert")).to_contain_text(error)
        expect(content).to_have_value(days[0])  # the typed value is kept
    shoot(page, "settings-retention-wrong")
    messages.fill("30")
    save.click()
    expect(page.locator(".flash")).to_contain_text("saved")
    expect(messages).to_have_value("30")
    page.goto(f"{site.url}/dashboard/teams/team_plain/audit")
    expect(page.locator("tbody tr:not(.day)").first).to_contain_text("keep_content_days=30, keep_messages_days=30")


@pytest.mark.parametrize("role", ["viewer", "developer"])
def test_retention_for_non_owner_is_read_only(site: Site, role: str) -> None:
    here = "/dashboard/teams/team_narrow/settings"
    page = site.open(f"{role}.r@example.com", "--team", "team_narrow", "--role", role, path=here)
    expect(page.locator("dd", has_text="90 days")).to_be_visible()
    expect(page.get_by_label("Content (days)")).to_have_count(0)
    form = {"csrf": page.locator("input[name=csrf]").first.get_attribute("value"), "keep_content_days": "1"}
    assert page.request.post(f"{site.url}{here}/keep", form=form | {"keep_messages_days": "1"}).status == 403
