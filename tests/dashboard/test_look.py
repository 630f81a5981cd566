"""The frame of every page: places, team switcher and menu, also without a script; errors inside it; times, copying,
passwords and wrong fields."""

import re
from typing import Any

import pytest

from heliograph.rules.setup.records import TeamRecord
from heliograph.storage.store import Store
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

expect = sync_api.expect
TEAM = "/dashboard/teams/team_acme"
PHONE = {"width": 390, "height": 844}


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    records = [TeamRecord(ref=n, id=f"team_{name}", name=name.title()) for n, name in enumerate(("acme", "other"), 1)]
    await set_up(store, *(("team", record.id, record, record.id) for record in records))
    return Pages(make_context(store, clock))


@pytest.mark.anyio
async def test_each_page_has_the_frame_and_marks_its_place(pages: Pages) -> None:
    for place, name in (("", "Overview"), ("/inbox", "Test inbox"), ("/keys/new", "API keys"), ("/billing", "Billing")):
        html = (await pages.get(TEAM + place)).html
        (marked,) = re.findall(r'<a href="[^"]*" aria-current="page">.*?<span>(.*?)</span>', html)
        assert marked == name
        assert "/dashboard/teams/team_other" in html  # the switcher
        assert html.count("<h1") == 1
    assert "/keys" not in (await pages.get(TEAM, "viewer")).html.partition("<main")[0]
    assert 'aria-label="Operator"' in (await pages.get("/dashboard/operator", OPERATOR)).html


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "who", "status", "title", "way"),
    [
        (f"{TEAM}/nothing/at/all", "owner", 404, "Not found", f'href="{TEAM}"'),
        (f"{TEAM}/messages/eml_nothing", "owner", 404, "Not found", f'href="{TEAM}"'),
        (f"{TEAM}/keys", "viewer", 403, "Not allowed", f'href="{TEAM}"'),
        ("/dashboard/operator/nothing", OPERATOR, 404, "Not found", 'href="/dashboard/operator"'),
        ("/dashboard/nothing", "owner", 404, "Not found", 'href="/dashboard"'),
        ("/dashboard/teams/team_nobodys/messages/x/y", "owner", 404, "Not found", 'href="/dashboard"'),
    ],
)
async def test_errors_stay_in_the_frame_and_lead_on(
    pages: Pages, path: str, who: str, status: int, title: str, way: str
) -> None:
    shown = await pages.get(path, who)
    assert (shown.status, f"<h1>{title}</h1>" in shown.html) == (status, True)
    assert '<nav class="side"' in shown.html
    assert way in shown.html.partition("<main")[2]


@pytest.mark.anyio
async def test_money_is_billing_now(pages: Pages) -> None:
    moved = await pages.get(f"{TEAM}/money", "viewer")
    assert (moved.status, moved.headers["location"]) == (303, f"{TEAM}/billing")


@pytest.mark.anyio
async def test_times_and_charts_are_in_the_zone_of_the_cookie(pages: Pages, clock: Any) -> None:
    await pages.post(f"{TEAM}/keys", {"name": "one", "send": "yes", "expires": "2099-01-01"})
    shown = await pages.get(f"{TEAM}/keys", "owner; heliograph_zone=Asia/Kolkata")
    assert re.search(r"2 Jan 2099, 05:29:59 IST", shown.html)
    assert "1 Jan 2099, 23:59:59 UTC" in (await pages.get(f"{TEAM}/keys", "owner; heliograph_zone=Nowhere")).html


def test_on_a_phone_without_a_script(site: Site, shoot: Shoot) -> None:
    options: dict[str, Any] = {"viewport": PHONE, "java_script_enabled": False}
    page = site.open("pho@example.com", "--team", "team_acme", "--role", "owner", path=TEAM, **options)
    billing = page.get_by_role("navigation", name="Team").get_by_role("link", name="Billing")
    expect(billing).to_be_hidden()
    page.locator(".menu > summary").click()
    shoot(page, "look-menu-phone")
    billing.click()
    expect(page.get_by_role("heading", name="Billing")).to_be_visible()
    page.locator(".bar .switch > summary").click()
    page.get_by_role("link", name="All teams").click()
    page.locator("header .mine > summary").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def test_on_a_desk(site: Site, shoot: Shoot) -> None:
    page = site.open("des@example.com", "--team", "team_acme", "--role", "owner", path=f"{TEAM}/keys/new")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.get_by_label("Name", exact=True).fill("server")  # is taken
    page.get_by_role("button", name="Create key").click()
    name = page.get_by_label("Name", exact=True)
    expect(name).to_be_focused()
    expect(name).to_have_attribute("aria-invalid", "true")
    border, bad = name.evaluate("(one) => [getComputedStyle(one).boxShadow, getComputedStyle(one).borderColor]")
    assert bad in border, "a wrong field is framed in the colour of what is bad"
    assert bad == page.locator(".error").first.evaluate("(one) => getComputedStyle(one).color")

    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as on plain http
    page.goto(f"{TEAM}/settings")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("ControlOrMeta+v")
    expect(page.get_by_label("Name", exact=True)).to_have_value("team_acme")

    page.locator("header .mine > summary").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    page.goto("/dashboard/account")
    secret = page.get_by_label("New password")
    secret.fill("a secret")
    page.get_by_role("button", name="Show what is typed").last.click()
    expect(secret).to_have_attribute("type", "text")
    assert "heliograph_zone" in {cookie["name"] for cookie in page.context.cookies()}
