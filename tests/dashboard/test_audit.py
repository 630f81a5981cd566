"""The audit log: actor, address and text of every change, paging, and CSV export."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from heliograph.dashboard.audit_texts import ACTION_TEXTS, AREA_NAMES
from heliograph.dashboard.csv_rows import encode_csv
from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.events import EVENT_TYPES
from heliograph.domain.setup.records import Key, TeamRecord
from heliograph.storage import audit
from heliograph.storage.store import Store
from tests.dashboard.conftest import Shoot, Site, sync_api
from tests.dashboard.inside import Pages, write_records
from tests.manage.changes import CHANGES
from tests.people import PASSWORD
from tests.storage.test_idempotency import make_context

expect = sync_api.expect
SOURCE = Path(__file__).parents[2] / "src" / "heliograph"
AUDIT = "/dashboard/teams/team_acme/audit"


def test_team_audit_log_is_paged_and_exported(site: Site, shoot: Shoot) -> None:
    page = site.open(
        "keeper@example.com", "--team", "team_acme", "--role", "owner", path="/dashboard/teams/team_acme/team"
    )
    csrf = page.locator("input[name=csrf]").first.get_attribute("value")
    for number in range(51):
        form = {"csrf": csrf, "email": f"{number}@example.com", "role": "viewer"}
        assert page.request.post(f"{site.url}/dashboard/teams/team_acme/team", form=form).ok
    page.goto(AUDIT)
    first = page.locator("tbody tr:not(.day)").first
    for text in ("keeper", "Member invited", "50@example.com", "127.0.0.1"):
        expect(first).to_contain_text(text)
    expect(page.locator("tbody tr:not(.day)")).to_have_count(50)
    shoot(page, "audit")
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr:not(.day)").first).to_contain_text("0@example.com")
    page.get_by_label("Person").select_option("Command line")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr:not(.day)").first).to_contain_text("Command line")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name="Clear").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    assert download.value.suggested_filename == "audit-team_acme.csv"
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    changes = [(row["person"], row["action"], row["subject"], row["detail"]) for row in rows]
    assert changes[0] == ("keeper@example.com", "member.invite", "50@example.com", "viewer")
    assert changes[-1] == ("command line", "member.invite", "keeper@example.com", "owner")
    assert page.goto("/dashboard/operator/audit").status == 403


def test_instance_audit_log_is_shown_to_operators(site: Site, shoot: Shoot) -> None:
    page = site.page()
    page.request.post(site.add("all@example.com", "--operator"), form={"password": PASSWORD})
    page.goto("/dashboard/operator/audit")
    expect(page.get_by_role("cell", name="Operator role accepted").first).to_be_visible()
    shoot(page, "operator-audit")


def test_csv_export_quotes_formula_cells() -> None:
    assert encode_csv([("=1+1", "a,b"), ("+1415", "-")]) == b'"\'=1+1","a,b"\r\n"\'+1415","\'-"\r\n'


@pytest.mark.parametrize("cell", [*"=+-@;\t\r\n＝＋－＠", " =1", "\u200b=1", "\ufeff =1"])
def test_csv_cell_starting_like_formula_gets_apostrophe(cell: str) -> None:
    (row,) = csv.reader(io.StringIO(encode_csv([(cell, "-1.5", "a-b=1")]).decode(), newline=""))
    assert row == [f"'{cell}", "-1.5", "a-b=1"]


@pytest.mark.parametrize("separator", [*";\t,|%\n\r", "; ", ";\u200b", ';"'])
def test_csv_cell_is_no_formula_with_any_separator(separator: str) -> None:
    """A spreadsheet with another separator treats our quotes as text."""
    first, rest = separator[0], separator[1:]
    (row,) = csv.reader(io.StringIO(encode_csv([(f"a{separator}=1+1;b", f"{separator}=1")]).decode(), newline=""))
    assert row == [f"a{first}'{rest}=1+1;b", f"'{first}'{rest}=1"]


# -- without a browser -------------------------------------------------------------------------------------------


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme")
    key = Key(id="key_1", team=record.id, name="Shop", hash="x")
    await write_records(store, ("team", record.id, record, record.id), ("key", key.id, key, record.id))
    actor, by_key = Actor(kind="person", id="usr_9", address="192.0.2.1"), Actor(kind="key", id="key_1")
    day = 86_400_000
    for entry in (
        COMMAND_LINE.audit_entry(1 * day, "team.create", "team_acme", team="team_acme"),
        actor.audit_entry(2 * day, "key.create", "Shop", "key_1", team="team_acme"),
        by_key.audit_entry(3 * day, "suppression.import", "imp_1", "3 lines", team="team_acme"),
        actor.audit_entry(4 * day, "carrier.unheard_of", "relay"),
    ):
        await store.audit.add(entry)
    return Pages(make_context(store, clock))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["Suppressions imported", "API key created", "Team created"]),
        ("?by=usr_9", ["API key created"]),
        ("?by=key%20key_1", ["Suppressions imported"]),
        ("?action=key.", ["API key created"]),
        ("?action=team.create", ["Team created"]),
        ("?from=1970-01-03&until=1970-01-03", ["API key created"]),
        ("?until=1970-01-02", ["Team created"]),
        ("?by=nobody", []),
    ],
)
@pytest.mark.both_databases
async def test_audit_filters_apply_to_page_and_export(pages: Pages, query: str, shown: list[str]) -> None:
    page = await pages.get(f"/dashboard/teams/team_acme/audit{query}")
    rows = page.html.partition("<tbody>")[2]
    titles = [words for words in ("Suppressions imported", "API key created", "Team created") if words in rows]
    assert titles == shown
    file = (await pages.get(f"/dashboard/teams/team_acme/audit.csv{query}")).html
    assert len([line for line in file.splitlines()[1:] if "set up" not in line and "team_acme" in line]) == len(shown)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("teams/team_acme/audit?action=template.", ["API keys", "Suppressions", "Team", "Templates"]),
        ("operator/audit", ["API keys", "Carriers", "Suppressions", "Team", "Test"]),
    ],
)
@pytest.mark.both_databases
async def test_audit_filter_lists_only_what_occurred(pages: Pages, path: str, shown: list[str]) -> None:
    html = (await pages.get(f"/dashboard/{path}", "operator")).html
    assert re.findall('<optgroup label="([^"]*)">', html) == shown
    assert '<option value="key.create">API key created</option>' in html
    assert ('<option value="template." selected>Templates: all</option>' in html) == ("Templates" in shown)


@pytest.mark.anyio
@pytest.mark.both_databases
async def test_audit_entries_show_names_and_links(pages: Pages) -> None:
    page = await pages.get("/dashboard/teams/team_acme/audit")
    assert 'href="/dashboard/teams/team_acme/keys/key_1">Shop</a>' in page.html
    assert "API key Shop" in page.text  # the importing user
    response = await pages.get("/dashboard/operator/audit", "operator")
    assert "Carrier: unheard of" in response.text  # an unknown action is still spelled out
    wrong = await pages.get("/dashboard/teams/team_acme/audit?from=never")
    assert wrong.status == 400 and "Enter a date" in wrong.text
    file = await pages.get("/dashboard/teams/team_acme/audit.csv?from=never&by=usr_9")  # not an unfiltered file
    assert (file.status, file.headers["location"]) == (303, "/dashboard/teams/team_acme/audit?by=usr_9&from=never")


@pytest.mark.anyio
async def test_audit_search_over_scan_limit_is_marked_incomplete(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SCAN_MAX", 1)
    page = await pages.get("/dashboard/teams/team_acme/audit?action=team.create")
    assert "Search older entries" in page.text
    file = (await pages.get("/dashboard/teams/team_acme/audit.csv?action=team.create")).html
    assert "team.create" in file  # the file contains all entries


# names that look like actions
OTHERS = {"opt_out.start_words", "secret.new", "secret.old", "template.id", "template.variables"}


def find_actions_in_code() -> set[str]:
    """Return the audit actions in the code: all such strings in `manage`, elsewhere those of a known area."""
    actions = set()
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "formats":
            quoted = re.findall(r'"(([a-z_]+)\.(?!html")[a-z_]+)"', path.read_text())
            actions |= {text for text, area in quoted if path.parent.name == "manage" or area in AREA_NAMES}
    return actions - set(EVENT_TYPES) - OTHERS


@pytest.mark.parametrize("action", sorted({change.action for change in CHANGES} | find_actions_in_code()))
def test_every_audit_action_has_text(action: str) -> None:
    assert action in ACTION_TEXTS
    assert action.partition(".")[0] in AREA_NAMES


def test_audit_actions_have_different_texts() -> None:
    assert len(ACTION_TEXTS) == len({*ACTION_TEXTS.values()})
