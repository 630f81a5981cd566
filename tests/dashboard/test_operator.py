"""Operator pages: teams with plan and credit, carriers and queues; other roles have no access."""

import re
import sqlite3
from typing import Any

import pytest

from tests.api.sends import EMAIL
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import until

OPERATOR = "/dashboard/operator"
expect = sync_api.expect


def test_operator_creates_funds_and_suspends_team(site: Site, shoot: Shoot) -> None:
    page = site.open("op@example.com", "--operator", path=OPERATOR)
    shoot(page, "operator")
    page.get_by_role("link", name="New team").click()
    page.get_by_label("Name", exact=True).fill("Zebra")
    page.get_by_label("ID", exact=True).fill("zebra")
    page.get_by_label("Currency").fill("EUR")
    page.get_by_label("Opening credit").fill("3.50")
    page.get_by_role("button", name="Create team").click()
    expect(page.get_by_role("alert")).to_contain_text("an id such as team_acme")
    expect(page.get_by_label("Opening credit")).to_have_value("3.50")
    page.get_by_label("ID", exact=True).fill("team_zebra")
    page.get_by_role("button", name="Create team").click()
    expect(page.get_by_role("heading", name="Zebra")).to_be_visible()
    expect(page.locator(".figure").last).to_have_text("3.50\u00a0EUR")

    page.get_by_role("link", name="Credit").click()
    for amount, credit in (("10", "13.50\u00a0EUR"), ("-1.25", "12.25\u00a0EUR")):
        page.get_by_label("Amount").fill(amount)
        page.get_by_label("Note").fill("invoice 7")
        page.get_by_role("button", name="Change credit").click()
        expect(page.locator(".flash")).to_contain_text(f"Available: {credit}")
    page.get_by_label("Amount").fill("-99")
    page.get_by_role("button", name="Change credit").click()
    expect(page.get_by_role("alert")).to_contain_text("the credit is only 12.2500")

    page.get_by_role("link", name="Plan", exact=True).click()
    page.get_by_label("Requests per second").fill("many")
    page.get_by_role("button", name="Save plan").click()
    expect(page.get_by_role("alert")).to_contain_text("expected a whole number")
    page.get_by_label("Requests per second").fill("7")
    page.get_by_label("Verify:").check()
    page.get_by_label("Verify by email").check()
    page.get_by_role("button", name="Save plan").click()
    expect(page.locator(".flash")).to_contain_text("Plan saved")
    expect(page.get_by_label("Requests per second")).to_have_value("7")
    expect(page.get_by_label("Verify:")).to_be_checked()
    expect(page.get_by_label("Verify by email")).to_be_checked()
    expect(page.get_by_label("Verify by WhatsApp")).not_to_be_checked()

    page.get_by_role("link", name="Summary").click()
    page.get_by_role("button", name="Suspend team").click()
    expect(page.locator("main .badge.suspended")).to_be_visible()
    shoot(page, "operator-team")
    page.get_by_role("button", name="Resume team").click()
    expect(page.locator("main .badge.suspended")).to_have_count(0)

    page.goto(OPERATOR)
    page.get_by_label("Name, ID or domain").fill("ZEB")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(f"{OPERATOR}?q=nothing-like-this")
    expect(page.get_by_text("No matching teams")).to_be_visible()


def test_operator_approves_or_refuses_pending_items(site: Site, shoot: Shoot) -> None:
    page = site.open("ada@example.com", "--operator", path=f"{OPERATOR}/approvals")
    shoot(page, "approvals")
    name = page.locator("section", has_text="Send as Acme Pending from acme.test")
    name.locator("summary", has_text="Refuse").click()
    name.get_by_label("Reason").fill(" ")
    name.get_by_role("button", name="Refuse").click()
    expect(name.get_by_role("alert")).to_contain_text("Enter a one-line reason")
    name.get_by_label("Reason").fill("Not your name.")
    name.get_by_role("button", name="Refuse").click()
    expect(page.locator(".flash")).to_contain_text("Refused")
    expect(name).to_have_count(0)
    domain = page.locator("section", has_text="Send as Acme Soon from unapproved.acme.test")
    domain.get_by_role("button", name="Approve").click()
    expect(page.locator(".flash")).to_contain_text("Approved")
    soon = EMAIL | {"from": "hello@unapproved.acme.test"}
    assert site.service.post("/v1/emails", soon).status == 202
    expect(page.locator("section.ask", has_text="template")).to_have_count(1)


def test_operator_pauses_delivery_and_retries_dead_letter(site: Site, shoot: Shoot) -> None:
    page = site.open("quinn@example.com", "--operator", path=f"{OPERATOR}/queues")
    page.get_by_role("button", name="Pause delivery").click()
    expect(page.locator("#delivery")).to_contain_text("Delivery is paused")
    page.goto(OPERATOR)
    page.locator("#notices > summary", has_text="Delivery is paused").click()
    page.locator("#notices").get_by_role("link", name="Resume delivery").click()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    viewer = site.open("vera@example.com", "--team", "team_acme", "--role", "viewer", path="/dashboard/teams/team_acme")
    expect(viewer.get_by_text("Delivery is paused: messages are accepted and queued. View queue")).to_be_visible()
    shoot(viewer, "overview-paused")
    viewer.goto("/dashboard/teams/team_acme/keys")  # this role may not open the page, but the alert is shown
    viewer.locator("#notices > summary").click()
    expect(viewer.get_by_text("Delivery is paused: messages are accepted and queued")).to_be_visible()
    expect(viewer.get_by_role("link", name="Queues")).to_have_count(0)
    sent = [site.service.post("/v1/emails", EMAIL | {"to": f"dead{i}@example.com"}).json["id"] for i in range(2)]
    page.reload()
    row = page.locator("tr", has_text="Acme").filter(has_text="Email")
    expect(row.locator("td.number").first).to_have_text("2")

    make_dead_letters(site, f"/v1/emails/{sent[1]}")
    page.reload()
    expect(page.get_by_text("repeatedly failed to process")).to_be_visible()
    shoot(page, "queues")
    letters = page.locator("section", has_text="Dead letters").locator("tbody tr")
    expect(letters).to_have_count(2)
    letters.filter(has_text="dead0").get_by_role("button", name="Delete").click()
    expect(page.locator(".flash")).to_contain_text("Dead letter deleted")
    letters.filter(has_text="dead1").get_by_role("button", name="Retry").click()
    expect(page.locator(".flash")).to_contain_text("queued again")
    expect(page.get_by_text("No dead letters")).to_be_visible()
    page.get_by_role("button", name="Resume delivery").click()
    expect(page.locator(".flash")).to_contain_text("Delivery resumed")
    viewer.reload()
    expect(viewer.get_by_text("Delivery is paused")).to_have_count(0)
    until(lambda: site.service.get(f"/v1/emails/{sent[1]}").json["status"] == "delivered")
    assert site.service.get(f"/v1/emails/{sent[0]}").json["status"] == "failed"


def make_dead_letters(site: Site, last: str, key: str = "ACME") -> None:
    """Turn all waiting messages into dead letters; wait until `last` appears on the page."""
    file = sqlite3.connect(site.service.database.removeprefix("sqlite:///"), timeout=60)
    with file:
        file.execute("UPDATE outbox SET claims = 2, alone = 3")
    file.close()
    until(lambda: site.service.get(last, key=key).json["status"] == "failed")


def open_paused_queues(site: Site, email: str) -> Any:
    page = site.open(email, "--operator", path=f"{OPERATOR}/queues")
    page.get_by_role("button", name="Pause delivery").click()
    expect(page.locator("#delivery")).to_contain_text("Delivery is paused")
    return page


def adjust_credit(page: Any, amount: str) -> None:
    page.goto(f"{OPERATOR}/teams/team_poor?tab=credit")
    page.get_by_label("Amount").fill(amount)
    page.get_by_role("button", name="Change credit").click()
    expect(page.locator(".flash")).to_contain_text("Credit changed")


def test_retried_dead_letter_is_charged_again(site: Site, shoot: Shoot) -> None:
    page = open_paused_queues(site, "iris@example.com")
    sent = site.service.post("/v1/sms", {"to": "+14155550123", "template_id": "tpl_poor_sms"}, key="POOR").json["id"]
    make_dead_letters(site, f"/v1/sms/{sent}", "POOR")
    adjust_credit(page, "-0.4500")
    page.goto(f"{OPERATOR}/queues")
    page.get_by_role("link", name="+14155550123").click()
    expect(page.get_by_text("A retry holds 0.045")).to_be_visible()
    expect(page.get_by_label("History").locator("tbody tr").last).to_contain_text("3 workers died")
    shoot(page, "dead-letter")
    letter = page.url
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("alert")).to_contain_text("This message costs 0.0450, and the credit is 0.0000")
    adjust_credit(page, "0.0500")
    page.goto(letter)
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".flash")).to_contain_text("queued again")
    assert page.goto(letter).status == 404
    me = site.service.get("/v1/me", key="POOR").json
    assert (me["credit"], me["held"]) == ("0.0050", "0.0450")
    page.goto(f"{OPERATOR}/queues")
    page.get_by_role("button", name="Resume delivery").click()
    until(lambda: site.service.get(f"/v1/sms/{sent}", key="POOR").json["status"] == "delivered")
    me = site.service.get("/v1/me", key="POOR").json
    assert (me["credit"], me["held"]) == ("0.0050", "0.0000")
    page.goto(f"{OPERATOR}/audit")
    expect(page.locator("tr", has_text="Dead letter retried").first).to_contain_text(sent)


@pytest.mark.in_full
def test_operator_retries_or_deletes_all_dead_letters(site: Site, shoot: Shoot) -> None:
    page = open_paused_queues(site, "alma@example.com")
    sent = [site.service.post("/v1/emails", EMAIL | {"to": f"all{i}@example.com"}).json["id"] for i in range(3)]
    letters = page.locator("section", has_text="Dead letters").locator("tbody tr")
    for button, notice in (
        ("Retry all", "queued again"),
        ("Delete all", "deleted. The messages stay failed"),
    ):
        make_dead_letters(site, f"/v1/emails/{sent[2]}")
        until(lambda: page.reload() and letters.count() == 3)
        form = {"csrf": page.locator("input[name=csrf]").first.get_attribute("value"), "until": "9" * 15}
        for action in ("retry-all", "drop-all"):  # nothing happens without the confirmation checkbox
            assert "Nothing was changed" in page.request.post(f"{site.url}{OPERATOR}/queues/{action}", form=form).text()
        page.get_by_label("Yes, all 3 dead letters").check()
        shoot(page, "queues-all")
        page.get_by_role("button", name=button).click()
        expect(page.locator(".flash")).to_have_text(re.compile(f"3 dead letters {notice}"))
        expect(page.get_by_text("No dead letters")).to_be_visible()
    page.get_by_role("button", name="Resume delivery").click()
    assert {site.service.get(f"/v1/emails/{id_}").json["status"] for id_ in sent} == {"failed"}


def test_operator_pages_for_team_owner_return_403(site: Site) -> None:
    page = site.open("owner@example.com", "--team", "team_acme", "--role", "owner")
    expect(page.get_by_role("link", name="Operator")).to_have_count(0)
    form = {"csrf": page.locator("input[name=csrf]").first.get_attribute("value")}
    for path in ("", "/approvals", "/carriers", "/queues", "/queues/dead/1-0", "/teams/team_acme"):
        assert page.goto(OPERATOR + path).status == 403
    assert page.goto(f"{OPERATOR}/teams/team_poor").status == 404
    for path, more in {
        "/teams": {"name": "Mine"},
        "/teams/team_acme/credit": {"amount": "1000"},
        "/teams/team_acme/plan": {"rate_limit": "0"},
        "/carriers/sim-sms": {"enabled": "no"},
        "/carriers/sim-sms/edit": {"step_ms": "1"},
        "/carriers/sim-sms/remove": {},
        "/carriers": {"kind": "email-mx", "id": "mine"},
        "/queues/pause": {"paused": "yes"},
        "/queues/drop-all": {"sure": "yes", "until": "9" * 15},
        "/queues/retry-all": {"sure": "yes", "until": "9" * 15},
        "/approvals/team_acme": {"approve": "yes"},
    }.items():
        assert page.request.post(f"{site.url}{OPERATOR}{path}", form=form | more).status == 403
    assert site.service.get("/v1/me").json["credit"].startswith("2")
