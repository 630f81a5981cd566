"""Search: the message list with all filters, its export, the global search, and roles."""

import csv
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest

from heliograph.dashboard.pages import PAGES
from heliograph.dashboard.views import messages
from heliograph.dashboard.views.messages import parse_time, time_field
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import CarrierRecord, Domain, Key, TeamRecord, Template, Webhook
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.dashboard.inside import OBSERVER, OPERATOR, Pages, write_records
from tests.service import until
from tests.storage.samples import ENTRY, send_email
from tests.storage.test_idempotency import make_context

TEAM, OTHER = "team_a", "team_b"
HERE = f"/dashboard/teams/{TEAM}"
TAGGED = ExtraFields(tags={"kind": "parcel: ü"})
TAG = "tag=kind:parcel:%20%C3%BC"
FIGURES = 'aria-label="By status"'
HOSTILE = [
    *("%", "_", "'", '"', "\\", "'; DROP TABLE message; --", "<script>alert(1)</script>", "{{7*7}}", "x" * 5000),
    *("ü" * 500, "订单", "\u0301", "\u202e", "a\u0000b", "😀", "*", "team:1", "end1:aa", "(", "AND OR NOT", "%00", " "),
]


@pytest.fixture
async def pages(store: Store, clock: TestClock) -> Pages:
    await write_records(
        store,
        ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme"), TEAM),
        ("team", OTHER, TeamRecord(ref=2, id=OTHER, name="Other"), OTHER),
        ("domain", "dom_1", Domain(id="dom_1", team=TEAM, name="acme.test", brand="Acme"), TEAM),
        ("key", "aaaaaaaaaa", Key(id="aaaaaaaaaa", team=TEAM, name="Parcel robot", hash="secret"), TEAM),
        ("template", "tpl_1", Template(id="tpl_1", team=TEAM, channel="sms", name="Parcel notice", body="x"), TEAM),
        ("webhook", "whk_1", Webhook(id="whk_1", team=TEAM, url="https://parcel.test/hook", secret="s"), TEAM),
    )
    return Pages(make_context(store, clock))


Send = Callable[..., Any]


@pytest.fixture
async def sent(pages: Pages, store: Store, clock: TestClock) -> list[str]:
    """Message ids, oldest first. One of the first's two recipients bounced; the last belongs to another team."""
    both = ("ada@example.com", "bob@example.com")
    accepted = [
        await send_email(
            store, clock, "Your parcel", *both, key_id="aaaaaaaaaa", template_id="tpl_1", extra_fields=TAGGED
        ),
        await send_email(store, clock, "=Receipt", "ada@example.com", sender="x@other.test"),
        await send_email(store, clock, "Your parcel", "secret@other.test", team=2, extra_fields=TAGGED),
    ]
    for claim in await store.outbox.claim("email", 100):
        ends = "bounced" if claim.position else "delivered"
        change = RecipientUpdate(
            message=claim.message, position=claim.position, claim=claim.token, at=clock.now(), target_status=ends
        )
        await store.outbox.record(change)
    return accepted


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [1, 0]),
        ("?q=ADA", [1, 0]),
        ("?q=parc", [0]),
        ("?q=parcel+bob+your", [0]),
        ("?q=bob%40", [0]),
        ("?status=bounced", [0]),
        ("?status=delivered", [1, 0]),
        ("?status=nonsense", [1, 0]),
        ("?channel=sms", []),
        ("?template=tpl_1", [0]),
        pytest.param(f"?{TAG}", [0], marks=pytest.mark.both_databases),
        ("?tag=kind:other", []),
        (f"?{TAG}&status=bounced", [0]),
        (f"?{TAG}&status=failed", []),
        (f"?{TAG}&q=ada&key=aaaaaaaaaa", [0]),
        (f"?{TAG}&domain=other.test", []),
        (f"?{TAG}&sort=oldest", [0]),
        ("?domain=other.test", [1]),
        ("?key=aaaaaaaaaa", [0]),
        ("?sort=oldest", [0, 1]),
        ("?q=ada&domain=acme.test&key=aaaaaaaaaa&template=tpl_1&status=bounced&channel=email&sort=oldest", [0]),
        ("?from=2999-01-01", []),
        ("?until=2001-01-01", []),
        ("?q=secret", []),
    ],
)
async def test_message_filters_apply_to_list_and_export(
    pages: Pages, sent: list[str], query: str, expected: list[int]
) -> None:
    response = await pages.get(f"{HERE}/messages{query}", "developer")
    positions = sorted((response.html.find(f'data-key="{id_}"'), n) for n, id_ in enumerate(sent))
    assert [n for position, n in positions if position >= 0] == expected
    assert ("1 of 2 bounced" in response.text) == (0 in expected)
    if expected:
        assert f"{len(expected)} message" in response.text
    file = await pages.get(f"{HERE}/messages.csv{query}", "developer")
    rows = list(csv.reader(file.html.splitlines()))
    assert rows[0] == list(messages.COLUMNS)
    assert [row[0] for row in rows[1:]] == [sent[n] for n in expected]


@pytest.mark.anyio
async def test_message_export_is_streamed_and_has_no_formulas(
    pages: Pages, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "EXPORT_BATCH", 1)
    rows = list(csv.reader((await pages.get(f"{HERE}/messages.csv", "viewer")).html.splitlines()))
    assert [row[0] for row in rows[1:]] == [sent[1], sent[0]]
    assert rows[1][6] == "'=Receipt"
    assert rows[2][3:5] == ["2", "ada@example.com bob@example.com"]
    assert (await pages.get(f"{HERE}/messages.csv?from=never")).status == 303


@pytest.mark.anyio
async def test_search_excludes_results_a_viewer_may_not_see(pages: Pages, sent: list[str]) -> None:
    shown = await pages.get(f"{HERE}/messages?key=aaaaaaaaaa", "viewer")
    assert "Parcel robot" not in shown.text
    assert all(f'data-key="{id_}"' in shown.html for id_ in sent[:2])  # this role may not use the filter
    for who, names in (("viewer", set[str]()), ("developer", {"Parcel robot"}), ("operator", {"Parcel robot"})):
        response = await pages.get(f"{HERE}/search?q=parcel", who)
        assert {name for name in ("Parcel robot",) if name in response.text} == names
        assert all(text in response.text for text in ("Your parcel", "Parcel notice", "https://parcel.test/hook"))
        assert "secret@other.test" not in response.text
    for who, is_shown in (("viewer", False), ("owner", False), ("operator", True)):
        assert ("/dashboard/operator/carriers" in (await pages.get(f"{HERE}/search?q=carriers", who)).html) == is_shown


@pytest.mark.anyio
async def test_search_finds_all_kinds_of_objects(pages: Pages, store: Store, sent: list[str]) -> None:
    await store.suppressions.add(NewSuppression(1, "gone@acme.test", "gone@acme.test", "bounce"), ENTRY)
    for typed, texts in {
        "acme.test": ("Domains", "gone@acme.test", "Suppressions"),
        "tpl_1": ("Templates", "Parcel notice"),
        "dkim": ("Pages", "Domains & senders"),
        "hk_aaaa": ("API keys", "Parcel robot"),
        sent[0][-5:]: ("Messages", "Your parcel"),
        sent[1][:-2]: ("Messages", "=Receipt"),
        "": ("Pages", "Overview", "Audit log"),
        "nowhere at all": ("Nothing found",),
    }.items():
        response = await pages.get(f"{HERE}/search?q={quote(typed)}")
        assert response.status == 200
        assert all(text in response.text for text in texts), (typed, texts)
    assert (await pages.get(f"{HERE}/search?q={sent[0]}")).headers["location"] == f"{HERE}/messages/{sent[0]}"
    assert (await pages.get(f"{HERE}/search?q={sent[2]}")).status == 200  # of another team


@pytest.mark.anyio
async def test_operator_search_finds_teams_domains_people_and_carriers(pages: Pages, store: Store) -> None:
    await write_records(
        store, ("carrier", "acme-relay", CarrierRecord(id="acme-relay", channel="email", kind="smtp"), None)
    )
    place = "/dashboard/operator/search"
    found = await pages.get(f"{place}?q=acme", OPERATOR)
    links = re.findall(r'<li><a href="([^"]*)"', found.html)
    assert links == [
        "/dashboard/operator/teams/team_a",
        "/dashboard/teams/team_a/senders/domains/dom_1",
        "/dashboard/operator/carriers/acme-relay",
    ]
    assert "Add carrier" in (await pages.get(place, OPERATOR)).text
    observed = (await pages.get(f"{place}?part&q=carrier", OBSERVER)).text
    assert "Carriers" in observed and "Add carrier" not in observed
    assert (await pages.get(place, "owner")).status == 403
    assert 'action="/dashboard/operator/search"' in (await pages.get("/dashboard/operator/queues", OPERATOR)).html


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["messages", "search", "suppressions", "verifications", "messages.csv"])
async def test_hostile_search_text_is_treated_as_text(pages: Pages, sent: list[str], place: str) -> None:
    for typed in HOSTILE:
        response = await pages.get(f"{HERE}/{place}?q={quote(typed)}&domain={quote(typed)}&template={quote(typed)}")
        assert response.status in (200, 400), (place, typed)
        assert "<script>alert" not in response.html
    assert (await pages.get(f"{HERE}/{place}?q=%ff%fe%ed%a0%80")).status in (200, 400)  # no text at all


@pytest.mark.parametrize(
    ("text", "is_end", "expected"),
    [
        ("1970-01-02", False, 86_400_000),
        ("1970-01-02", True, 2 * 86_400_000),
        ("1970-01-01T00:00:01Z", True, 1000),
        ("1970-01-01T01:00:01+01:00", False, 1000),
        ("1970-01-01T00:01", False, 60_000),
        *((text, False, None) for text in ("never", "2026-13-01", "9999-12-3x", "2026-1-1", "", "x" * 5000)),
        ("9999-12-31", True, None),
    ],
)
def test_parse_time_returns_start_or_end_of_range(text: str, is_end: bool, expected: int | None) -> None:
    assert parse_time(text, UTC, is_end) == expected


def test_parse_time_uses_reader_zone() -> None:
    assert parse_time("1970-01-02", ZoneInfo("Europe/Vienna"), is_end=False) == 82_800_000


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("", "date", ""),
        ("2026-07-01", "date", "2026-07-01"),
        ("2026-07-01T12:00:00.000Z", "datetime-local", "2026-07-01T14:00"),  # as the charts link to it
        ("2026-07-01T12:00", "datetime-local", "2026-07-01T12:00"),  # as the form field submits it
        ("9999-12-31T23:59:59Z", "text", "9999-12-31T23:59:59Z"),
        ("<script>", "text", "<script>"),
    ],
)
def test_time_field_shows_time_in_reader_zone(text: str, kind: str, value: str) -> None:
    assert time_field(text, ZoneInfo("Europe/Vienna")) == (kind, value)


# -- in a browser ------------------------------------------------------------------------------------------------------


def test_search_dialog_is_usable_by_keyboard(site: Site, shoot: Shoot) -> None:
    body = {"from": "hi@acme.test", "to": ["delivered@simulator.test", "bounced@simulator.test"], "text": "Hi"}
    id_ = site.service.post("/v1/emails", body | {"subject": "Tickets for the concert"}).json["id"]
    until(lambda: {r["status"] for r in site.service.get(f"/v1/emails/{id_}").json["recipients"]} > {"bounced"})
    team = "/dashboard/teams/team_acme"
    page = site.open("finds@example.com", "--team", "team_acme", "--role", "developer", path=team)
    page.keyboard.press("/")
    page.keyboard.type("concert ticket")
    for selector, picture in ((".palette", "palette"), ("main", "search")):  # results while typing, and the search page
        hit = page.locator(f"{selector} .hits a", has_text="Tickets for the concert")
        sync_api.expect(hit).to_be_visible()
        shoot(page, picture)
        page.keyboard.press("ArrowDown")
        sync_api.expect(hit).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/messages/{id_}")
        page.goto(f"{team}/search?q=ticket+concert")
    page.goto(f"{team}/messages/{id_}")
    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.matches('[data-find]')")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{team}/messages?status=bounced&q=concert")
    sync_api.expect(page.locator("tbody tr:not(.day)")).to_contain_text("1 of 2 bounced")
    page.get_by_text("More filters").click()
    page.get_by_label("Sort").select_option("oldest")
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_url("**sort=oldest*")
    sync_api.expect(page.locator("tbody tr:not(.day)")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shoot(page, "messages-phone")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    assert [row[0] for row in csv.reader(download.value.path().read_text().splitlines())][1:] == [id_]
    page.locator("body").press("/")
    page.keyboard.type("webhoo")  # covers the bar on a phone from the first character
    sync_api.expect(page.locator(".palette .hits a", has_text="Webhooks").first).to_be_visible()
    assert page.locator(".top [data-find]").input_value() == "webhoo"
    shoot(page, "palette-phone")
    page.goto(f"{team}/search")
    page.keyboard.type("webhoo")
    page.locator("#results .hits a", has_text="Webhooks").last.click()
    page.wait_for_url(f"**{team}/webhooks")


ASKED = ("q", "search", "id", "before", "after", "by", "action", "type", "test", "key", "domain", "template", "route")
NUL = "?" + "&".join(f"{name}=a%00" for name in ASKED)
GIVEN = {"team": TEAM, "webhook": "whk_1", "template": "tpl_1", "id": "dom_1"}


@pytest.mark.anyio
async def test_nul_in_url_returns_no_server_error(pages: Pages) -> None:
    """PostgreSQL rejects NUL in texts."""
    account_paths = ("/dashboard/account", "/dashboard/account/totp")  # the user exists only in these tests
    paths = [item.path for item in PAGES if item.method == "GET" and not item.path.endswith("/live")]
    params_by_path = {
        path: await pages.get(path.format_map(defaultdict(lambda: "x", GIVEN)) + NUL, OPERATOR)
        for path in paths
        if path not in account_paths
    }
    assert {path for path, page in params_by_path.items() if page.status >= 500} == set()


@pytest.mark.anyio
@pytest.mark.usefixtures("sent")
@pytest.mark.parametrize(
    ("query", "figures"),
    [
        ("template=tpl_1", "1 delivered"),
        (TAG, "1 delivered"),
        (f"{TAG}&channel=sms", ""),
        (f"{TAG}&template=tpl_1", ""),  # of one of them, as it was asked
        ("template=tpl_1&status=delivered", ""),
        ("", ""),
    ],
)
async def test_message_list_shows_figures_of_template_and_tag(pages: Pages, query: str, figures: str) -> None:
    response = await pages.get(f"{HERE}/messages?{query}")
    assert (FIGURES in response.html) == bool(figures)
    assert figures in response.text
