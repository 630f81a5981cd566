"""API keys in the browser: creation, use, rotation with an overlap, revocation, and roles."""

from typing import Any

import pytest

from heliograph.manage.keys import next_name
from tests.dashboard.conftest import Shoot, Site, sync_api

expect = sync_api.expect
KEYS = "/dashboard/teams/team_acme/keys"
DEVELOPER = ("--team", "team_acme", "--role", "developer")


def create_key(page: Any, name: str, domain: str) -> str:
    """Create a key on the page and return its token."""
    page.goto(KEYS)
    page.get_by_role("link", name="New key").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Domain", exact=True).select_option(domain)
    page.get_by_role("button", name="Create key").click()
    return shown_token(page)


def shown_token(page: Any) -> str:
    return str(page.locator(".once code").inner_text())


def test_api_key_is_created_rotated_and_deleted(site: Site, shoot: Shoot) -> None:
    page = site.open("kim@example.com", *DEVELOPER)
    first = create_key(page, "reports", "news.acme.test")
    shoot(page, "keys-new")
    page.goto(KEYS)
    expect(page.get_by_text(first)).to_have_count(0)
    row = page.get_by_role("row").filter(has_text="reports")
    expect(row).to_contain_text("news.acme.test")
    expect(row).to_contain_text("Never used")

    assert site.service.get("/v1/emails", key=first).status == 200
    row.get_by_role("link").click()
    expect(page.locator("dd").last).not_to_contain_text("never")
    shoot(page, "key")

    page.get_by_role("button", name="Rotate").click()
    second = shown_token(page)
    shoot(page, "keys-rotated")
    expect(page.get_by_role("row").filter(has_text=first[3:13])).to_contain_text("until")
    assert [site.service.get("/v1/emails", key=key).status for key in (first, second)] == [200, 200]

    page.get_by_role("link", name="reports", exact=True).click()
    page.get_by_role("button", name="Revoke key").click()
    expect(page.get_by_role("status")).to_have_text("Key reports revoked.")
    assert [site.service.get("/v1/emails", key=key).status for key in (first, second)] == [401, 200]


def test_invalid_key_form_shows_errors_at_fields(site: Site, shoot: Shoot) -> None:
    page = site.open("ann@example.com", *DEVELOPER, path=f"{KEYS}/new")
    page.get_by_label("Name", exact=True).fill("server")
    page.get_by_label("send and read").uncheck()
    page.get_by_label("Expiry date").fill("2020-01-01")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("alert")).to_have_text(
        [
            "Another key of the team has this name.",
            "Choose at least one permission.",
            "Choose today or a future date, or leave this empty.",
        ]
    )
    shoot(page, "keys-wrong")
    page.get_by_label("send and read").check()
    page.get_by_label("Expiry date").fill("")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("alert")).to_have_text("Another key of the team has this name.")
    expect(page.get_by_label("Name", exact=True)).to_have_value("server")


def test_viewer_sees_no_api_keys(site: Site) -> None:
    page = site.open("vic@example.com", "--team", "team_acme", "--role", "viewer", path=f"{KEYS[:-5]}/start")
    expect(page.get_by_role("link", name="API keys")).to_have_count(0)
    assert page.goto(KEYS).status == 403
    other = site.open("oth@example.com", "--team", "team_sandbox", "--role", "owner")
    assert other.goto(KEYS).status == 404


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        ("server", set(), "server 2"),
        ("server 2", set(), "server 3"),
        ("server", {"server 2", "server 3"}, "server 4"),
        ("7", set(), "7 2"),
        ("x" * 200, set(), "x" * 190 + " 2"),
    ],
)
def test_next_name_returns_first_free_name(name: str, taken: set[str], expected: str) -> None:
    assert next_name(name, taken) == expected
