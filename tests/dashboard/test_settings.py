"""Team settings, and going live."""

from pathlib import Path

import pytest

from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import until

SETTINGS = "/dashboard/teams/team_sandbox/settings"
DOMAIN = """
[[teams]]
id = "team_sandbox"
  [[teams.domains]]
  name = "sandbox.test"
  verified = true
  approved = {approved}
"""
EMAIL = {"to": "stranger@example.com", "subject": "Hello", "text": "Hello"}
expect = sync_api.expect


def test_team_switches_from_sandbox_to_live(site: Site, shoot: Shoot, tmp_path: Path) -> None:
    page = site.open("olga@example.com", "--team", "team_sandbox", "--role", "owner", path=SETTINGS)
    expect(page.locator(".checks .needed")).to_contain_text("Sending domain")
    expect(page.get_by_role("button", name="Go live")).to_be_disabled()
    expect(page.locator("#live-needs")).to_have_text("Needs: Sending domain.")
    shoot(page, "settings-sandbox")

    form = {"csrf": page.locator("input[name=csrf]").first.get_attribute("value")}
    for approved in ("false", "true"):
        refused = page.request.post(f"{site.url}{SETTINGS}/live", form=form)
        assert (refused.status, "go live yet" in refused.text()) == (400, True)
        (tmp_path / "more.toml").write_text(DOMAIN.format(approved=approved))
        site.service.apply(tmp_path / "more.toml")
    assert site.service.post("/v1/emails", EMAIL, key="SANDBOX").code == "recipient_not_allowed"

    button = page.get_by_role("button", name="Go live")
    until(lambda: page.reload() and button.is_enabled())  # a running service applies it within a second
    button.click()
    expect(page.locator(".flash")).to_contain_text("The team is live")
    expect(page.locator(".side summary .badge")).to_contain_text("Live")
    shoot(page, "settings-live")
    live = EMAIL | {"from": "hello@sandbox.test"}
    assert site.service.post("/v1/emails", live, key="SANDBOX").json["sandbox"] is False


def test_team_switches_from_live_to_sandbox(site: Site, shoot: Shoot) -> None:
    """Messages accepted in live mode are delivered and charged as live; later ones belong to the sandbox."""
    here = "/dashboard/teams/team_udh/settings"
    page = site.open("uma@example.com", "--team", "team_udh", "--role", "owner", path=here)
    assert site.service.run("pause").returncode == 0
    sms = {"to": "+14155550123", "template_id": "tpl_udh_sms", "variables": {"text": "Hi"}}
    until(lambda: site.service.post("/v1/sms", sms, key="UDH").json["status"] == "queued")
    before = site.service.post("/v1/sms", sms, key="UDH").json
    assert before["sandbox"] is False
    account = site.service.get("/v1/me", key="UDH").json
    page.get_by_role("button", name="Back to the sandbox").click()
    expect(page.locator(".flash")).to_contain_text("The team is in the sandbox")
    expect(page.locator(".side summary .badge")).to_contain_text("Sandbox")
    shoot(page, "settings-back")
    assert site.service.post("/v1/sms", sms, key="UDH").code == "recipient_not_allowed"

    assert site.service.run("resume").returncode == 0
    until(lambda: site.service.get(f"/v1/sms/{before['id']}", key="UDH").json["status"] == "delivered")
    message = site.service.get(f"/v1/sms/{before['id']}", key="UDH").json
    assert (message["sandbox"], message["to"]) == (False, "+14155550123")
    me = until(lambda: (me := site.service.get("/v1/me", key="UDH").json)["held"] == "0.0000" and me)
    assert (me["credit"], me["mode"]) == (account["credit"], "sandbox")  # the holds were captured
    page.goto("/dashboard/teams/team_udh/audit")
    expect(page.locator("tr", has_text="Team moved back to the sandbox")).to_contain_text("uma@example.com")
    page.goto(here)
    page.get_by_role("button", name="Go live").click()
    expect(page.locator(".side summary .badge")).to_contain_text("Live")


def test_team_name_and_credit_alert_are_changed(site: Site) -> None:
    page = site.open(
        "nora@example.com", "--team", "team_plain", "--role", "owner", path="/dashboard/teams/team_plain/settings"
    )
    page.get_by_label("Name").fill("Plainly")
    page.get_by_label("Low-credit alert at").fill("much")
    page.get_by_role("button", name="Save team").click()
    expect(page.get_by_role("alert")).to_contain_text("'much' is not an amount")
    expect(page.get_by_label("Name")).to_have_value("Plainly")
    page.get_by_label("Low-credit alert at").fill("12.50")
    page.get_by_role("button", name="Save team").click()
    expect(page.get_by_role("status")).to_contain_text("The name Plainly is waiting for approval")
    expect(page.locator(".side .team")).to_have_text("Sandbox without Verify")
    expect(page.get_by_label("Name")).to_have_value("Plainly")
    expect(page.get_by_label("Low-credit alert at")).to_have_value("12.50")


@pytest.mark.parametrize("role", ["viewer", "developer"])
def test_settings_change_by_non_owner_is_refused(site: Site, role: str) -> None:
    here = "/dashboard/teams/team_narrow/settings"
    page = site.open(f"{role}@example.com", "--team", "team_narrow", "--role", role, path=here)
    expect(page.get_by_text("Only owners of the team can go live.")).to_be_visible()
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    form = {"csrf": page.locator("input[name=csrf]").first.get_attribute("value"), "name": "Mine", "credit_low": "0"}
    for path in (here, f"{here}/live", f"{here}/sandbox"):
        assert page.request.post(f"{site.url}{path}", form=form).status == 403
    page.reload()
    expect(page.locator(".side .team")).not_to_have_text("Mine")
