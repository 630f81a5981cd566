"""The operator's pages: teams with plan and credit, carriers, queues; and nobody else on them."""

import sqlite3

from tests.api.sends import EMAIL, SMS
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import until

OPERATOR = "/dashboard/operator"
expect = sync_api.expect


def test_a_team_is_made_given_credit_a_plan_and_suspended(site: Site, shoot: Shoot) -> None:
    page = site.open("op@example.com", "--operator", path=OPERATOR)
    shoot(page, "operator")
    page.get_by_label("Name", exact=True).fill("Zebra")
    page.get_by_label("Id", exact=True).fill("zebra")
    page.get_by_label("Currency").fill("EUR")
    page.get_by_label("Opening credit").fill("3.50")
    page.get_by_role("button", name="Make the team").click()
    expect(page.get_by_role("alert")).to_contain_text("an id such as team_acme")
    expect(page.get_by_label("Opening credit")).to_have_value("3.50")
    page.get_by_label("Id", exact=True).fill("team_zebra")
    page.get_by_role("button", name="Make the team").click()
    expect(page.get_by_role("heading", name="Zebra")).to_be_visible()
    expect(page.locator(".figure")).to_have_text("3.5000")

    for amount, credit in (("10", "13.5000"), ("-1.25", "12.2500")):
        page.get_by_label("Amount").fill(amount)
        page.get_by_label("Note").fill("invoice 7")
        page.get_by_role("button", name="Book").click()
        expect(page.locator(".told")).to_contain_text(f"The credit is {credit} EUR")
    page.get_by_label("Amount").fill("-99")
    page.get_by_role("button", name="Book").click()
    expect(page.get_by_role("alert")).to_contain_text("the credit is only 12.2500")

    page.get_by_label("Requests a second").fill("many")
    page.get_by_role("button", name="Change the plan").click()
    expect(page.get_by_role("alert")).to_contain_text("expected a whole number")
    page.get_by_label("Requests a second").fill("7")
    page.get_by_label("Verify:").check()
    page.get_by_role("button", name="Change the plan").click()
    expect(page.locator(".told")).to_contain_text("The plan is changed")
    expect(page.get_by_label("Requests a second")).to_have_value("7")
    expect(page.get_by_label("Verify:")).to_be_checked()

    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Suspend the team").click()
    expect(page.locator("main .badge.suspended")).to_be_visible()
    shoot(page, "operator-team")
    page.get_by_role("button", name="Resume the team").click()
    expect(page.locator("main .badge.suspended")).to_have_count(0)

    page.goto(OPERATOR)
    page.get_by_label("Search by").fill("ZEB")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(f"{OPERATOR}?q=nothing-like-this")
    expect(page.get_by_text("No team fits")).to_be_visible()


def test_what_waits_is_approved_or_refused_with_a_reason(site: Site, shoot: Shoot) -> None:
    page = site.open("ada@example.com", "--operator", path=f"{OPERATOR}/approvals")
    shoot(page, "approvals")
    name = page.locator("section", has_text="Send as Acme Pending from acme.test")
    name.get_by_role("button", name="Refuse").click()
    expect(name.get_by_role("alert")).to_contain_text("Give the reason in one line")
    name.get_by_label("Or the reason why not").fill("Not your name.")
    name.get_by_role("button", name="Refuse").click()
    expect(page.locator(".told")).to_contain_text("Refused")
    expect(name).to_have_count(0)
    domain = page.locator("section", has_text="Send as Acme Soon from unapproved.acme.test")
    domain.get_by_role("button", name="Approve").click()
    expect(page.locator(".told")).to_contain_text("Approved")
    soon = EMAIL | {"from": "hello@unapproved.acme.test"}
    assert site.service.post("/v1/emails", soon).status == 202
    expect(page.get_by_role("link", name="Look and decide")).to_have_count(1)


def test_carriers_are_tried_put_in_order_and_switched(site: Site, shoot: Shoot) -> None:
    page = site.open("carla@example.com", "--operator", path=f"{OPERATOR}/carriers")
    expect(page.get_by_role("heading", name="sim-sms")).to_be_visible()
    shoot(page, "carriers")
    page.get_by_label("Number for a test").fill("nobody")
    page.get_by_role("button", name="Send a test").click()
    expect(page.get_by_role("alert")).to_contain_text("Type a phone number")
    page.get_by_label("Number for a test").fill("+447400123456")
    page.get_by_role("button", name="Send a test").click()
    expect(page.locator("main [role=status]")).to_contain_text("sim-sms took the test for +447400123456")
    page.get_by_label("Priority").fill("first")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("alert")).to_contain_text("A whole number")
    page.get_by_label("Priority").fill("3")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_label("Priority")).to_have_value("3")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Disable").click()
    expect(page.locator("main .badge.disabled")).to_be_visible()
    assert site.service.post("/v1/sms", SMS | {"to": "+14155550123"}).code == "no_carrier_available"
    page.get_by_role("button", name="Enable").click()
    expect(page.locator("main .badge.ok")).to_be_visible()
    assert site.service.post("/v1/sms", SMS | {"to": "+14155550123"}).status == 202


def test_delivery_pauses_and_a_dead_letter_is_tried_again(site: Site, shoot: Shoot) -> None:
    page = site.open("quinn@example.com", "--operator", path=f"{OPERATOR}/queues")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Pause delivery").click()
    expect(page.locator("main .badge.paused")).to_be_visible()
    sent = [site.service.post("/v1/emails", EMAIL | {"to": f"dead{i}@example.com"}).json["id"] for i in range(2)]
    page.reload()
    row = page.locator("tr", has_text="Acme").filter(has_text="email")
    expect(row.locator("td.number").first).to_have_text("2")

    file = sqlite3.connect(site.service.database.removeprefix("sqlite:///"), timeout=10)
    with file:
        file.execute("UPDATE outbox SET claims = 3")  # as if three workers had died with them
    file.close()
    until(lambda: site.service.get(f"/v1/emails/{sent[1]}").json["status"] == "failed", 30)
    page.reload()
    expect(page.get_by_text("Three times a worker ended")).to_be_visible()
    shoot(page, "queues")
    letters = page.locator("section", has_text="Dead letters").locator("tbody tr")
    expect(letters).to_have_count(2)
    letters.filter(has_text="dead0").get_by_role("button", name="Drop").click()
    expect(page.locator(".told")).to_contain_text("Dropped")
    letters.filter(has_text="dead1").get_by_role("button", name="Try again").click()
    expect(page.locator(".told")).to_contain_text("in the queue again")
    expect(page.get_by_text("No dead letters")).to_be_visible()
    page.get_by_role("button", name="Resume delivery").click()
    expect(page.locator(".told")).to_contain_text("Delivery goes on")
    until(lambda: site.service.get(f"/v1/emails/{sent[1]}").json["status"] == "delivered")
    assert site.service.get(f"/v1/emails/{sent[0]}").json["status"] == "failed"


def test_the_instance_is_the_operators(site: Site) -> None:
    page = site.open("owner@example.com", "--team", "team_acme", "--role", "owner")
    expect(page.get_by_role("link", name="Operator")).to_have_count(0)
    form = {"csrf": page.locator("input[name=csrf]").first.get_attribute("value")}
    for place in ("", "/approvals", "/carriers", "/queues", "/teams/team_acme"):
        assert page.goto(OPERATOR + place).status == 403
    assert page.goto(f"{OPERATOR}/teams/team_poor").status == 404
    for place, more in {
        "/teams": {"name": "Mine"},
        "/teams/team_acme/credit": {"amount": "1000"},
        "/teams/team_acme/plan": {"rate_limit": "0"},
        "/carriers/sim-sms": {"enabled": "no"},
        "/queues/pause": {"paused": "yes"},
        "/approvals/team_acme": {"approve": "yes"},
    }.items():
        assert page.request.post(f"{site.url}{OPERATOR}{place}", form=form | more).status == 403
    assert site.service.get("/v1/me").json["credit"].startswith("2")
