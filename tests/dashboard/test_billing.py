"""Billing pages of a team: credit, the ledger with the credit after each entry, its export, prices."""

import csv
import io
import itertools

import pytest

from tests.api.sends import SMS
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import until

MONEY = "/dashboard/teams/team_acme/billing"
expect = sync_api.expect


def _send(site: Site, count: int) -> None:
    for _ in range(count):
        assert site.service.post("/v1/sms", SMS | {"to": "+14155550123"}).status == 202
    until(lambda: site.service.get("/v1/me").json["held"] == "0.0000")


def test_ledger_is_paged_and_exported(site: Site, shoot: Shoot) -> None:
    _send(site, 30)  # each message has a hold and a charge
    page = site.open("vera@example.com", "--team", "team_acme", "--role", "viewer", path=MONEY)
    expect(page.locator(".figure").first).to_contain_text("23.65\u00a0USD")
    expect(page.get_by_role("link", name="Change plan")).to_have_count(0)
    rows = page.locator("section", has_text="Ledger").locator("tbody tr")
    expect(rows).to_have_count(10)
    page.get_by_role("link", name="All entries").click()
    ids = page.locator("td a[title^=sms_]").evaluate_all("all => all.map((one) => one.title)")
    assert len(ids) == len(set(ids)) and 20 < len(ids) <= 30  # one row per message, from 50 entries
    expect(page.locator("section", has_text="Spend by month").locator("tbody tr")).to_contain_text(
        "1.35\u00a0USD for 30"
    )
    expect(rows.first).to_contain_text("Charged")
    expect(rows.first).to_contain_text("Parcel to +14155550123")
    expect(rows.first).to_contain_text("23.65")
    shoot(page, "money")
    page.get_by_role("link", name="Older").click()
    expect(rows.last).to_contain_text("Top-up")
    expect(rows.last.locator("td.number").last).to_contain_text("25.00")
    for cursor in ("x", "1", "1.2.3", "-1.5", "9" * 30 + ".1", "1.%00", "٣.٣"):  # invalid cursors are ignored
        assert page.goto(f"{MONEY}?before={cursor}").status == 200

    response = page.request.get(f"{site.url}{MONEY}/ledger.csv")
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    lines = list(csv.DictReader(io.StringIO(response.text())))
    assert len(lines) == 61
    assert (lines[0]["credit"], lines[-1]["credit"], lines[-1]["kind"]) == ("23.6500", "25.0000", "topup")
    for newer, older in itertools.pairwise(lines):
        assert float(newer["credit"]) - float(newer["credit_change"]) == pytest.approx(float(older["credit"]))


def test_billing_page_shows_prices_and_empty_ledger(site: Site, shoot: Shoot) -> None:
    page = site.open("pia@example.com", "--team", "team_acme", "--role", "viewer", path=MONEY)
    row = page.locator("section[aria-labelledby=prices] tr", has_text="Parcel").filter(has_text="SMS")
    expect(row).to_contain_text("0.045")
    expect(row).to_contain_text("Germany (DE) 0.00, United Kingdom (GB) 0.035")
    expect(page.get_by_text("A verification costs 0.05")).to_be_visible()
    page = site.open(
        "sam@example.com", "--team", "team_sandbox", path="/dashboard/teams/team_sandbox/billing", color_scheme="dark"
    )
    expect(page.get_by_text("No transactions yet")).to_be_visible()
    shoot(page, "money-empty-dark")


def test_billing_of_foreign_team_returns_404(site: Site) -> None:
    page = site.open("oda@example.com", "--team", "team_sandbox", "--role", "owner")
    for path in (MONEY, f"{MONEY}/ledger.csv", "/dashboard/teams/team_acme/settings"):
        assert page.goto(path).status == 404
