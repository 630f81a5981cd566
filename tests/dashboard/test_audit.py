"""The audit log: every change with who and from where, by pages, and as CSV."""

import csv
import io

from heliograph.dashboard.csv_lines import csv_lines
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.people import PASSWORD

expect = sync_api.expect
AUDIT = "/dashboard/teams/team_acme/audit"


def test_changes_are_read_by_pages_and_exported(site: Site, shoot: Shoot) -> None:
    page = site.open(
        "keeper@example.com", "--team", "team_acme", "--role", "owner", path="/dashboard/teams/team_acme/team"
    )
    csrf = page.locator("input[name=csrf]").first.get_attribute("value")
    for number in range(51):
        form = {"csrf": csrf, "email": f"{number}@example.com", "role": "viewer"}
        assert page.request.post(f"{site.url}/dashboard/teams/team_acme/team", form=form).ok
    page.goto(AUDIT)
    first = page.locator("tbody tr").first
    for text in ("keeper@example.com", "member.invite", "50@example.com", "127.0.0.1"):
        expect(first).to_contain_text(text)
    expect(page.locator("tbody tr")).to_have_count(50)
    shoot(page, "audit")
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr").first).to_contain_text("0@example.com")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    assert download.value.suggested_filename == "audit-team_acme.csv"
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    changes = [(row["person"], row["action"], row["subject"], row["detail"]) for row in rows]
    assert changes[0] == ("keeper@example.com", "member.invite", "50@example.com", "viewer")
    assert changes[-1] == ("command line", "member.invite", "keeper@example.com", "owner")
    assert page.goto("/dashboard/operator/audit").status == 403


def test_the_whole_log_is_for_operators(site: Site, shoot: Shoot) -> None:
    page = site.page()
    page.request.post(site.add("all@example.com", "--operator"), form={"password": PASSWORD})
    page.goto("/dashboard/operator/audit")
    expect(page.get_by_role("cell", name="operator.accept").first).to_be_visible()
    shoot(page, "operator-audit")


def test_a_cell_is_no_formula() -> None:
    assert csv_lines([("=1+1", "a,b"), ("+1415", "-")]) == b"'=1+1,\"a,b\"\r\n'+1415,'-\r\n"
