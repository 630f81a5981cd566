"""Carriers are set up, tested, ordered and removed in the dashboard, at desktop and phone width."""

import re
from email import message_from_bytes

import pytest

from heliograph.dashboard.views.carriers import result_title
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from tests.api.sends import SMS
from tests.dashboard.conftest import Shoot, Site, assert_fits, sync_api
from tests.journeys.smtp_sink import Sink
from tests.service import until

expect = sync_api.expect
HERE = "/dashboard/operator/carriers"


@pytest.mark.parametrize(
    ("outcome", "has_reply", "title"),
    [
        (Accepted(), True, "Test message accepted"),
        (Refused(), True, "Test message refused"),
        (Deferred(unreachable=True), False, "Test failed: cannot connect"),
        (Deferred(unreachable=True), True, "Test failed: connection or login refused"),
        (Deferred(), True, "Test failed: try again later"),
        (Deferred(uncertain=True), False, "Test failed: no response"),
        (Deferred(detail={"uncertain": True}), False, "Test failed: no response"),
        (Deferred(), False, "Test failed"),
    ],
)
def test_title_of_a_test_names_what_went_wrong(outcome: Outcome, has_reply: bool, title: str) -> None:
    assert result_title(outcome, has_reply=has_reply) == title


def test_relay_carrier_is_added_tested_changed_and_removed(site: Site, shoot: Shoot) -> None:
    page = site.open("ada@example.com", "--operator", path=HERE)
    expect(page.get_by_text("Email and WhatsApp are simulated")).to_be_visible()
    assert_fits(page, shoot, "carriers")
    page.get_by_role("link", name="Set up Email").click()
    assert_fits(page, shoot, "carrier-new")
    page.get_by_role("link", name="SMTP relay").click()
    expect(page.get_by_label("Host")).to_be_focused()
    expect(page.locator("option[value=resend]")).to_have_text("Resend")
    page.get_by_label("Host").fill("127.0.0.1")
    page.get_by_label("Port").fill("none")
    page.get_by_label("Name", exact=True).fill("relay")
    page.get_by_label("Username").fill("ada")
    page.get_by_label(re.compile("^Password")).fill("open sesame")
    page.get_by_role("button", name="Test and add").click()
    expect(page.get_by_role("alert")).to_contain_text("whole number")
    assert "open sesame" not in page.content()
    assert_fits(page, shoot, "carrier-wrong")
    with Sink() as sink:
        page.get_by_label("Port").fill(str(sink.port))
        page.get_by_label("Username").fill("")
        page.get_by_label("Encryption").select_option("none")
        page.get_by_label("Send the test from").fill("hello@acme.test")
        page.get_by_role("button", name="Test and add").click()
        expect(page.get_by_role("heading", name="relay")).to_be_visible()
        expect(page.locator("main .box.good")).to_contain_text("2.0.0 taken")
        page.goto(f"{HERE}/relay")
        page.get_by_label("Send a test message to").fill("nobody")
        page.evaluate("document.querySelector('[name=address]').type = 'text'")
        page.get_by_role("button", name="Send test").click()
        expect(page.get_by_role("alert")).to_contain_text("Enter an email address")
        page.get_by_label("Send a test message to").fill("ada@example.com")
        page.get_by_role("button", name="Send test").click()
        expect(page.locator("main .box.good")).to_contain_text("2.0.0 taken")  # the peer's reply
        assert sink.mails[0][1] == ["ada@example.com"]
        senders = [message_from_bytes(content)["From"] for _, _, content in sink.mails]
        assert senders[0].endswith("<hello@acme.test>") and "acme.test" not in senders[1]
    assert_fits(page, shoot, "carrier")
    page.get_by_role("button", name="Send test").click()
    expect(page.locator("main .box.wait .name")).to_have_text("Test failed: cannot connect")
    expect(page.locator("main .box.wait")).to_contain_text("did not accept the test")
    assert_fits(page, shoot, "carrier-refused")
    page.get_by_role("link", name="Edit").click()
    expect(page.get_by_label("Host")).to_have_value("127.0.0.1")
    page.get_by_label(re.compile("^Password")).fill("open sesame")
    page.get_by_label("Username").fill("ada")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("dl.facts").first).to_contain_text("saved, not shown")
    page.get_by_role("link", name="Edit").click()
    assert "open sesame" not in page.content()
    expect(page.get_by_text("Leave empty to keep the current value.")).to_be_visible()
    assert_fits(page, shoot, "carrier-edit")
    page.goto(f"{HERE}/relay")
    page.get_by_role("button", name="Remove carrier").click()
    expect(page.get_by_text("Email and WhatsApp are simulated")).to_be_visible()


@pytest.mark.in_full
def test_carriers_are_reordered_disabled_and_file_carriers_marked(site: Site, shoot: Shoot) -> None:
    page = site.open("carla@example.com", "--operator", path=f"{HERE}/sim-sms")
    expect(page.get_by_text("This carrier comes from a setup file")).to_be_visible()
    page.get_by_label("Send a test message to").fill("+447400123456")
    page.get_by_role("button", name="Send test").click()
    expect(page.locator("main [role=status]")).to_contain_text("sim-sms accepted the test for +447400123456")
    page.get_by_role("button", name="Disable").click()
    expect(page.locator("main .badge.disabled")).to_be_visible()
    assert site.service.post("/v1/sms", SMS | {"to": "+14155550123"}).code == "no_carrier_available"
    page.get_by_role("button", name="Enable").click()
    expect(page.locator("main .badge.ok")).to_be_visible()
    sent = site.service.post("/v1/sms", SMS | {"to": "+14155550123"}).json["id"]
    until(lambda: site.service.get(f"/v1/sms/{sent}").json["status"] == "delivered")
    page.goto(f"{HERE}/sim-sms")
    rows = page.get_by_label("Throughput of sim-sms").locator("tbody tr")
    for row in ("Last hour", "Last 24 hours"):
        expect(rows.filter(has_text=row).locator("td.number").first).to_have_text("1")
    expect(page.locator(".chart g").first).to_have_attribute("aria-label", re.compile("1 Accepted"))
    page.get_by_text("As a table").click()
    expect(page.locator("details.behind tbody tr")).to_have_count(60)
    shoot(page, "carrier-used")
    assert "last hour: 1 accepted, 0 rejected, 0 deferred" in site.service.run("carriers").stdout
    page.goto(f"{HERE}/new?kind=sms-simulator")
    page.get_by_role("button", name="Add without a test").click()
    page.goto(HERE)
    first = page.locator("#sms tbody tr").first
    expect(first).to_contain_text("sim-sms")
    page.get_by_role("button", name="Try simulator earlier").click()
    expect(first).to_contain_text("simulator")
    shoot(page, "carriers-order")
    expect(page.get_by_role("button", name="Try simulator earlier")).to_be_disabled()
    page.goto(f"{HERE}/simulator")
    page.get_by_role("button", name="Remove carrier").click()
    expect(page.locator("#sms tbody tr")).to_have_count(1)
