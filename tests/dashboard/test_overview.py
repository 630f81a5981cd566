"""The overview: statistics, alerts, and sending a test message."""

import re
from typing import Any

import pytest

from heliograph.dashboard.views.overview import _share_tile
from heliograph.domain.setup.records import Domain, TeamRecord, Webhook
from heliograph.storage.stats import StateCounts
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.dashboard.inside import Pages, write_records
from tests.service import until
from tests.storage.test_idempotency import make_context

expect = sync_api.expect
PHONE = "+15005550006"


def send_sample_messages(site: Site) -> None:
    """Send two delivered emails, a bounced email and an SMS; the statistics are updated when this returns."""
    hello = {"from": "hello@acme.test", "subject": "Hello", "text": "Hello"}
    ids = [
        site.service.post("/v1/emails", hello | {"to": f"{name}@simulator.test"}).json["id"]
        for name in ("delivered", "delivered+2", "bounced")
    ]
    sms = {"to": PHONE, "template_id": "tpl_short"}
    paths = [f"/v1/emails/{id_}" for id_ in ids] + [f"/v1/sms/{site.service.post('/v1/sms', sms).json['id']}"]
    until(lambda: all(site.service.get(path).json["status"] in ("delivered", "bounced") for path in paths))


def newest_table_row(page: Any) -> list[str]:
    """Return the newest row of the charts' data table."""
    page.get_by_text("As a table").click()
    return [text.strip() for text in page.locator(".behind tbody tr").first.locator("td").all_inner_texts()]


def test_overview_shows_figures_charts_and_tables(site: Site, shoot: Shoot) -> None:
    send_sample_messages(site)
    path = "/dashboard/teams/team_acme?span=month"
    page = site.open("ada@acme.test", "--team", "team_acme", "--role", "viewer", path=path)
    row = page.get_by_role("row", name=re.compile("^Email"))
    assert row.locator("td").all_inner_texts() == ["Email", "3", "2", "0", "1", "0", "0", "66.7%"]
    bar = page.get_by_role("group", name="Sent").get_by_role("link")
    bar.focus()
    assert bar.locator(".said").text_content().endswith("3 Email, 1 SMS")
    expect(bar.locator(".said")).to_be_visible()
    for link in (bar, page.get_by_role("link", name=re.compile("^Sent: 4")), row.get_by_role("link").nth(2)):
        assert re.search(r"/messages\?from=[^&]+&until=", link.get_attribute("href"))  # each leads to its messages
    assert "status=bounced" in row.get_by_role("link").nth(2).get_attribute("href")
    shoot(page, "overview")
    assert newest_table_row(page)[1:] == ["3", "1", "0", "too few", "too few", "too few"]
    for span in ("24 hours", "12 months"):
        page.get_by_role("link", name=span).click()
        expect(page.get_by_role("heading", name=f"Sent, last {span}")).to_be_visible()
    page.get_by_role("group", name="Channel").get_by_role("link", name="SMS").click()
    expect(page.locator(".figure").first).to_have_text("1")
    expect(page.get_by_role("heading", name="Sent, last 12 months")).to_be_visible()
    assert page.get_by_role("heading", name="Bounce rate").count() == 0


@pytest.mark.anyio
async def test_team_that_sent_nothing_sees_its_first_steps(store: Store, clock: TestClock) -> None:
    await write_records(store, ("team", "team_acme", TeamRecord(ref=1, id="team_acme", name="Acme"), "team_acme"))
    pages = Pages(make_context(store, clock))
    path = "/dashboard/teams/team_acme"
    page = await pages.get(path, "developer")
    assert "Get started 0 of 4 done" in page.text and "Bounce rate" not in page.text
    for link in ("/keys/new", "/start", "/senders/domains/new", "/webhooks/new"):
        assert f'class="button" href="{path}{link}"' in page.html
    assert "Get started" not in (await pages.get(path, "viewer")).text
    await pages.post(f"{path}/keys", {"name": "server", "send": "yes"})
    assert "Get started 1 of 4 done" in (await pages.get(path, "developer")).text
    domain = Domain(id="dom_1", team="team_acme", name="acme.test", brand="Acme", verified=True)
    hook = Webhook(id="whk_1", team="team_acme", url="https://acme.test/hook", events=("*",), secret="x", created_at=1)
    await write_records(store, ("domain", "dom_1", domain, "team_acme"), ("webhook", "whk_1", hook, "team_acme"))
    page = await pages.get(path, "developer")
    assert "Get started" not in page.text and "Bounce rate" in page.text


def test_overview_alerts_link_to_their_fix(site: Site, shoot: Shoot) -> None:
    page = site.open("eve@acme.test", "--operator", path="/dashboard/teams/team_acme")
    concerns = page.locator(".concerns li")
    assert "unapproved.acme.test is waiting for an operator's approval." in concerns.last.inner_text()
    assert (
        concerns.last.get_by_role("link").get_attribute("href")
        == "/dashboard/teams/team_acme/senders/domains/dom_acme_new"
    )
    expected = {
        "team_sandbox": ["in the sandbox"],
        "team_bare": ["no domain", "Credit is low"],
        "team_suspended": ["is suspended", "no domain", "Credit is low"],
        "team_udh": [],
    }
    for team, texts in expected.items():
        page.goto(f"/dashboard/teams/{team}")
        alerts = concerns.filter(has_not_text="simulated:")
        assert alerts.count() == len(texts)
        for index, text in enumerate(texts):
            assert text in alerts.nth(index).inner_text()
        shoot(page, f"overview-{team}")


def test_overview_sends_test_message(site: Site) -> None:
    site.add("dev@acme.test", "--team", "team_sandbox")
    page = site.open("dev@acme.test", "--team", "team_acme", "--role", "developer")
    for team, sender in {"team_acme": "hello@acme.test", "team_sandbox": "hello@sandbox.heliograph.test"}.items():
        page.goto(f"/dashboard/teams/{team}")
        page.get_by_role("button", name="Send test").click()
        # The message may have bounced meanwhile.
        expect(page.locator(".flash.neutral")).to_contain_text("Test message sent.")
        page.wait_for_url(re.compile(f"/dashboard/teams/{team}/messages/eml_"))
        path, key = f"/v1/emails/{page.url.rpartition('/')[2]}", team.removeprefix("team_").upper()
        until(lambda path=path, key=key: site.service.get(path, key=key).json["status"] == "delivered")
        sent = site.service.get(path, key=key).json
        assert (sent["from"], sent["to"]) == (sender, "delivered@simulator.test")


def test_refused_test_message_shows_explanation(site: Site, shoot: Shoot) -> None:
    page = site.open("oda@acme.test", "--operator")
    for team, to, text in [
        ("team_acme", "gone@example.com", "delete the suppression"),
        ("team_sandbox", "stranger@example.com", "sandbox team"),
        ("team_bare", "delivered@simulator.test", "domain"),
    ]:
        page.goto(f"/dashboard/teams/{team}")
        page.get_by_label("To", exact=True).fill(to)
        page.get_by_role("button", name="Send test").click()
        assert text in page.get_by_role("alert").inner_text()
        assert page.get_by_label("To", exact=True).input_value() == to
        shoot(page, f"overview-refused-{team}")


def test_overview_is_readable_by_viewer_but_not_other_teams(site: Site) -> None:
    page = site.open("viewer@acme.test", "--team", "team_acme", "--role", "viewer", path="/dashboard/teams/team_acme")
    assert page.get_by_role("button", name="Send test").count() == 0
    token = page.locator("input[name=csrf]").first.get_attribute("value")
    assert page.request.post(f"{site.url}/dashboard/teams/team_acme/test", form={"csrf": token}).status == 403
    assert page.goto("/dashboard/teams/team_other").status == 404


def test_overview_fits_phone_in_dark_mode(site: Site, shoot: Shoot) -> None:
    small = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    send_sample_messages(site)
    page = site.open("phone@acme.test", "--operator", path="/dashboard/teams/team_acme?span=month", **small)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shoot(page, "overview-phone-dark")


@pytest.mark.parametrize(("previous_sent", "is_better"), [(21, None), (300, False)])
def test_change_of_a_rate_is_judged_only_with_enough_messages(previous_sent: int, is_better: bool | None) -> None:
    current, previous = StateCounts(sent=300, delivered=270), StateCounts(sent=previous_sent, delivered=previous_sent)
    tile = _share_tile("Delivered", "delivered", current, previous, "", "24 hours", higher_is_better=True)
    assert (tile.change, tile.is_better) == ("▼ from 100%", is_better)
