"""The frame of every page: navigation, team switcher and menu, also without JavaScript; errors; times, copying,
passwords and wrong fields."""

import re
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.pages import PAGES
from heliograph.domain.setup.records import Domain, TeamRecord
from heliograph.storage.store import Store
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.dashboard.inside import OBSERVER, OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

expect = sync_api.expect
TEAM = "/dashboard/teams/team_acme"
PHONE = {"width": 390, "height": 844}


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    records = [TeamRecord(ref=n, id=f"team_{name}", name=name.title()) for n, name in enumerate(("acme", "other"), 1)]
    await write_records(store, *(("team", record.id, record, record.id) for record in records))
    return Pages(make_context(store, clock))


@pytest.mark.anyio
async def test_every_page_has_frame_and_marks_menu_item(pages: Pages) -> None:
    for path, name in (("", "Overview"), ("/inbox", "Test inbox"), ("/keys/new", "API keys"), ("/billing", "Billing")):
        html = (await pages.get(TEAM + path)).html
        (marked,) = re.findall(r'<a href="[^"]*" aria-current="page">.*?<span>(.*?)</span>', html)
        assert marked == name
        assert "/dashboard/teams/team_other" in html  # the switcher
        assert html.count("<h1") == 1
    assert "/keys" not in (await pages.get(TEAM, "viewer")).html.partition("<main")[0]
    assert "<title>Overview · Acme · Heliograph</title>" in (await pages.get(TEAM)).html
    assert 'aria-label="Operator"' in (await pages.get("/dashboard/operator", OPERATOR)).html


@pytest.mark.anyio
async def test_get_of_form_action_redirects_to_its_page(pages: Pages) -> None:
    shown = {route.path for route in PAGES if route.method == "GET"}
    for route in PAGES:
        if route.path not in shown:
            path = re.sub(r"{\w+}", "x", route.path.replace("{team}", "team_acme"))
            response = await pages.get(path, OPERATOR)
            where = response.headers.get("location", "").replace("team_acme", "{team}")
            assert response.status == 303 and path.startswith(where.replace("{team}", "team_acme")), route.path
            assert any(re.fullmatch(re.sub(r"{(?!team)\w+}", "x", item), where) for item in shown), (route.path, where)


@pytest.mark.anyio
async def test_start_data_for_docs_is_json_with_team(pages: Pages) -> None:
    response = await pages.get(f"{TEAM}/start/own", "viewer")
    assert response.headers["x-content-type-options"] == "nosniff" and response.headers["cache-control"] == "no-store"
    assert '"team":"Acme"' in response.html and '"keys":[]' in response.html


@pytest.mark.anyio
async def test_empty_instance_offers_to_create_first_team(store: Store, clock: Any) -> None:
    html = (await Pages(make_context(store, clock)).get("/dashboard", OPERATOR)).html
    assert "Create the first team" in html and "Choose a team" not in html and "No team" in html


@pytest.mark.anyio
async def test_send_links_are_shown_only_to_senders(pages: Pages) -> None:
    for path in ("/messages", "/inbox"):
        offered = {
            who: "Send your first message" in (await pages.get(TEAM + path, who)).text
            for who in ("viewer", "developer")
        }
        assert offered == {"viewer": False, "developer": True}, path


@pytest.mark.anyio
async def test_suspended_team_shows_no_mode_badge(pages: Pages, store: Store) -> None:
    record = TeamRecord(ref=1, id="team_acme", name="Acme", mode="live", suspended=True)
    await write_records(store, ("team", record.id, record, record.id))
    for path, who in (
        (TEAM, "owner"),
        ("/dashboard/operator", OPERATOR),
        ("/dashboard/operator/teams/team_acme", OPERATOR),
    ):
        html = (await pages.get(path, who)).html
        assert "badge bad suspended" in html and "badge good live" not in html, path


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
async def test_error_pages_keep_frame_and_link_on(
    pages: Pages, path: str, who: str, status: int, title: str, way: str
) -> None:
    response = await pages.get(path, who)
    assert (response.status, f"<h1>{title}</h1>" in response.html) == (status, True)
    assert '<nav class="side"' in response.html
    assert way in response.html.partition("<main")[2]


@pytest.mark.anyio
async def test_old_money_url_redirects_to_billing(pages: Pages) -> None:
    moved = await pages.get(f"{TEAM}/money", "viewer")
    assert (moved.status, moved.headers["location"]) == (303, f"{TEAM}/billing")


@pytest.mark.anyio
async def test_times_and_charts_use_zone_cookie(pages: Pages, clock: Any) -> None:
    await pages.post(f"{TEAM}/keys", {"name": "one", "send": "yes", "expires": "2099-01-01"})
    response = await pages.get(f"{TEAM}/keys", "owner; heliograph_zone=Asia/Kolkata")
    assert re.search(r"2 Jan 2099, 05:29:59 IST", response.html)
    assert "1 Jan 2099, 23:59:59 UTC" in (await pages.get(f"{TEAM}/keys", "owner; heliograph_zone=Nowhere")).html


@pytest.mark.anyio
async def test_pending_count_is_shown_only_to_operators(pages: Pages, store: Store) -> None:
    domain = Domain(id="dom_acme", team="team_acme", name="acme.test", brand="Acme", verified=True)
    await write_records(store, ("domain", domain.id, domain, "team_acme"))
    response = await pages.get("/dashboard/operator", OPERATOR)
    assert re.findall(r'id="(approvals-\w+)" data-fresh><span class="count">1<', response.html) == [
        "approvals-here",
        "approvals-count",
    ]
    assert "approvals-" not in (await pages.get(TEAM)).html
    watched = await pages.get("/dashboard/operator", OBSERVER)
    assert "Read-only" in watched.text and "Read-only" not in response.text
    assert 'class="count"' not in watched.html and "/approvals/live" not in watched.html


def test_menu_works_on_phone_without_javascript(site: Site, shoot: Shoot) -> None:
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


def test_phone_folds_filters_without_javascript(site: Site) -> None:
    page = site.open(
        "fold@example.com",
        "--team",
        "team_acme",
        "--role",
        "owner",
        path=TEAM,
        viewport=PHONE,
        java_script_enabled=False,
    )
    for path, label in (
        ("messages", "Status"),
        ("verifications", "From (UTC)"),
        ("requests", "Error"),
        ("audit", "To (UTC)"),
    ):
        page.goto(f"{TEAM}/{path}")
        page.set_viewport_size(PHONE)
        expect(page.get_by_label(label, exact=True)).to_be_hidden()
        page.set_viewport_size({"width": 1440, "height": 900})
        expect(page.get_by_label(label, exact=True)).to_be_visible()
        page.set_viewport_size(PHONE)
        page.get_by_text("Filters", exact=True).click()
        expect(page.get_by_label(label, exact=True)).to_be_visible()
    times = "from=2026-01-01T09:30:00Z&until=2026-12-31T10:30:00Z"  # such as a bar of the chart links to
    for path in ("messages", f"messages?{times}", "verifications", "events", "requests", "audit", "inbox"):
        page.goto(f"{TEAM}/{path}")
        page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_desktop_scripts_handle_forms_and_copying(site: Site, shoot: Shoot) -> None:
    page = site.open("des@example.com", "--team", "team_acme", "--role", "owner", path=f"{TEAM}/keys/new")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.get_by_label("Name", exact=True).fill("server")  # is taken
    page.route(f"**{TEAM}/keys", lambda route: route.fulfill(status=204))  # the page stays
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("button", name="Create key")).to_have_attribute("aria-busy", "true")
    page.unroute(f"**{TEAM}/keys")
    page.evaluate("rest()")
    page.get_by_role("button", name="Create key").click()
    name = page.get_by_label("Name", exact=True)
    expect(name).to_be_focused()
    expect(name).to_have_attribute("aria-invalid", "true")
    border, bad = name.evaluate("(one) => [getComputedStyle(one).boxShadow, getComputedStyle(one).borderColor]")
    assert bad in border, "a wrong field is framed in the colour of what is bad"
    assert bad == page.locator(".error").first.evaluate("(one) => getComputedStyle(one).color")

    page.goto(f"{TEAM}/settings")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # like on plain http
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("ControlOrMeta+v")
    expect(page.get_by_label("Name", exact=True)).to_have_value("team_acme")

    page.locator(".bar .team").evaluate("(one) => { one.textContent = 'A team of a long name'.repeat(3) }")
    side, switch = (page.locator(selector).bounding_box() for selector in (".side", ".bar .switch > summary"))
    assert side and switch and switch["x"] + switch["width"] < side["x"] + side["width"], "a long name is cut short"

    page.locator("header .mine > summary").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    page.goto("/dashboard/account")
    secret = page.get_by_label("New password")
    secret.fill("a secret")
    page.get_by_role("button", name="Show value").last.click()
    expect(secret).to_have_attribute("type", "text")
    assert "heliograph_zone" in {cookie["name"] for cookie in page.context.cookies()}


STATIC = Path(__file__).parents[2] / "src/heliograph/dashboard/static"
SHEET = (STATIC / "style.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", SHEET, re.S)[:2]
)


def test_every_css_section_is_closed() -> None:
    """An unclosed CSS block swallows the sections after it, and no browser reports it."""
    for section in re.split(r"^(?=/\* )", SHEET, flags=re.M):
        assert section.count("{") == section.count("}"), section.partition("\n")[0]


def test_shipped_font_is_small_and_licensed(site: Site) -> None:
    assert (STATIC / "inter.woff2").stat().st_size < 50_000
    assert "SIL OPEN FONT LICENSE" in (STATIC / "inter-OFL.txt").read_text()
    page = site.page()
    for path in ("/dashboard/sign-in", "/docs"):
        page.goto(path)
        page.wait_for_function("[...document.fonts].some((one) => one.family === 'Inter' && one.status === 'loaded')")


GROUNDS = ("ground", "side", "card", "plain-ground")
PAIRS = [
    *((text, ground, 4.5) for text in ("text", "quiet", "accent") for ground in GROUNDS),
    *((kind, f"{kind}-ground", 4.5) for kind in ("good", "info", "wait", "bad", "accent")),
    *((kind, ground, 4.5) for kind in ("good", "bad") for ground in ("ground", "card")),
    *(("info", ground, 4.5) for ground in GROUNDS),  # values in code
    *(("field", ground, 3) for ground in ("ground", "card")),
    ("on-accent", "accent-fill", 4.5),
    *((channel, "card", 3) for channel in ("email", "sms", "whatsapp")),
]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("front", "back", "least"), PAIRS)
def test_colours_have_enough_contrast_in_light_and_dark(front: str, back: str, least: float) -> None:
    for colours in (LIGHT, LIGHT | DARK):
        low, high = sorted((luminance(colours[front]), luminance(colours[back])))
        assert (high + 0.05) / (low + 0.05) >= least, (front, back, colours[front], colours[back])
