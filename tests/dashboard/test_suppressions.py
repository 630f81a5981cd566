"""The suppression list: search, add, remove after confirmation, export, and an import of 10,000 lines."""

import csv
from pathlib import Path

import pytest

from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.service import until

expect = sync_api.expect
HERE = "/dashboard/teams/team_acme/suppressions"
TEAM = ("--team", "team_acme", "--role")


def test_suppression_is_added_found_and_removed(site: Site, shoot: Shoot) -> None:
    page = site.open("adds@example.com", *TEAM, "developer", path=HERE)
    page.get_by_role("link", name="Add address").click()
    page.get_by_label("Email address").fill("Ada@Example.com")
    page.get_by_label("Reason").select_option("complaint")
    page.get_by_role("button", name="Add address").click()
    page.get_by_text("Ada@Example.com added").wait_for()
    page.get_by_role("link", name="Add address").click()
    page.get_by_label("Email address").fill("ada@example.com")
    page.get_by_role("button", name="Add address").click()
    assert page.get_by_role("alert").inner_text() == "This address is already on the list."
    assert page.get_by_label("Email address").input_value() == "ada@example.com"
    page.goto(HERE)
    page.get_by_label("Address", exact=True).fill("ADA@")
    page.get_by_role("button", name="Search", exact=True).click()
    assert page.locator("tbody tr").count() == 1
    shoot(page, "suppressions")
    page.get_by_role("link", name="Remove Ada@Example.com").click()
    expect(page.get_by_text("This person reported your email as spam")).to_be_visible()
    shoot(page, "suppression-remove")
    page.get_by_role("button", name="Remove suppression").click()
    page.get_by_text("Ada@Example.com removed.").wait_for()
    assert site.service.get("/v1/suppressions/ada@example.com").status == 404


def test_suppression_links_to_causing_message(site: Site) -> None:
    body = {"from": "hi@acme.test", "to": "bounced@example.com", "subject": "Hi", "text": "Hi"}
    id_ = site.service.post("/v1/emails", body).json["id"]
    until(lambda: site.service.get(f"/v1/emails/{id_}").json["status"] == "bounced")
    page = site.open("cause@example.com", *TEAM, "viewer", path=f"{HERE}?q=bounced@")
    assert page.get_by_role("link", name=f"View message {id_}").get_attribute("href").endswith(f"/messages/{id_}")
    expect(page.locator("tbody").get_by_text("Bounce", exact=True)).to_be_visible()


@pytest.mark.in_full
def test_import_of_ten_thousand_lines_is_reported(site: Site, tmp_path: Path, shoot: Shoot) -> None:
    file = tmp_path / "list.csv"
    good = [f"person{number}@example.net,{'bounce' if number % 2 else ''}" for number in range(9_995)]
    odd = ["not an address", "x@example.net,annoyed", "person1@example.net", "gone@example.com,bounce", "<b>@x"]
    file.write_text("\n".join(["email,reason", *good, *odd]))
    page = site.open("imports@example.com", *TEAM, "developer", path=HERE)
    page.get_by_role("link", name="Import CSV").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="Import finished")).to_be_visible()
    facts = page.locator("dl.facts").inner_text().replace(",", "").split("\n")
    assert [line for line in facts if line.strip()][1::2] == ["10000 of 10000", "9996", "1", "3"]
    shoot(page, "suppression-import")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download report").click()
    report = list(csv.reader(download.value.path().read_text().splitlines()))
    assert len(report) == 10_001
    assert report[1] == ["2", "person0@example.net", "manual", "added"]
    assert [row[3].partition(" ")[0] for row in report[-5:]] == ["not", "added", "the", "already", "not"]
    entry = site.service.get("/v1/suppressions/person9993@example.net").json
    assert entry["reason"] == "bounce"
    page.goto(HERE)
    expect(page.locator(".imports tbody tr").first).to_contain_text("9,996")
    shoot(page, "suppressions-imports")
    page.get_by_role("link", name="Older").click()
    assert page.locator("main > table tbody tr").count() == 50
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    exported = list(csv.reader(download.value.path().read_text().splitlines()))
    assert exported[0] == ["email", "reason", "source_message_id", "created_at"]
    assert len({row[0] for row in exported[1:]}) == len(exported) - 1 >= 9_996


def test_invalid_import_file_is_refused(site: Site) -> None:
    page = site.open("bad@example.com", *TEAM, "developer", path=HERE)
    page.get_by_role("link", name="Import CSV").click()
    for content, expected in ((b"", "Choose a CSV file."), (b"email\n", "no addresses"), (b"\xff\xfe", "not UTF-8")):
        file = {"name": "list.csv", "mimeType": "text/csv", "buffer": content}
        page.get_by_label("File").set_input_files([file])
        page.get_by_role("button", name="Import").click()
        expect(page.get_by_role("alert")).to_contain_text(expected)


def test_suppression_change_by_viewer_is_refused(site: Site) -> None:
    page = site.open("views@example.com", *TEAM, "viewer", path=HERE)
    assert page.get_by_role("link", name="Import CSV").count() == page.get_by_role("link", name="Remove").count() == 0
    csrf = page.locator("input[name=csrf]").first.input_value()
    for path in (HERE, f"{HERE}/remove", f"{HERE}/import"):
        assert page.request.post(path, form={"csrf": csrf, "email": "gone@example.com"}).status == 403
    assert site.service.get("/v1/suppressions/gone@example.com").status == 200
