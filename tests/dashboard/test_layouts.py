"""Layout pages without a browser: saving, notices, publishing and refusals."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.setup.records import Layout, Platform, TeamRecord, Template
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme/layouts"
LETTER = Layout(id="lay_letter", team=TEAM, name="Letter", html="<main>{{content}}</main>", text="-- {{content}}")
MAIL = Template(id="tpl_mail", team=TEAM, channel="email", name="Welcome", subject="Hi", text="Hi", layout=LETTER.id)
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    team = ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme", mode="live"), TEAM)
    await write_records(store, team, ("layout", LETTER.id, LETTER, TEAM), ("template", MAIL.id, MAIL, TEAM))
    return Pages(make_context(store, clock))


def live_layout(pages: Pages, id_: str = LETTER.id) -> Layout:
    return pages.setup.teams[TEAM].layouts[id_]


async def submit_editor(pages: Pages, do: str, who: str = "developer", **fields: str) -> Any:
    form_html = (await pages.get(f"{HERE}/{LETTER.id}/edit", who)).html
    mark = re.findall(r'name="mark" value="(\w+)"', form_html)[0]
    form = {"name": "Letter", "html": LETTER.html or "", "text": LETTER.text or "", "mark": mark}
    return await pages.post(f"{HERE}/{LETTER.id}/edit", form | fields | {"do": do}, who)


async def test_layout_list_and_page_are_shown_to_viewer(pages: Pages) -> None:
    listed = await pages.get(HERE, "viewer")
    assert "Letter In use" in listed.text and "lay_letter" in listed.text and "New layout" not in listed.text
    response = await pages.get(f"{HERE}/{LETTER.id}", "viewer")
    assert "Welcome" in response.text and "Version 1" in response.text and "Archive" not in response.text
    framed = await pages.get(f"{HERE}/{LETTER.id}/preview", "viewer")
    assert "-- Sample email" in framed.text and "&lt;main&gt;" in framed.html and "Price" not in framed.text
    assert (await pages.get(f"{HERE}/lay_none", "viewer")).status == 404


async def test_layout_draft_has_no_effect_until_published(pages: Pages) -> None:
    saved = await submit_editor(pages, "draft", text="== {{content}}")
    assert saved.headers["location"] == f"{HERE}/{LETTER.id}/edit?saved=yes" and live_layout(pages) == LETTER
    response = await pages.get(f"{HERE}/{LETTER.id}", "developer")
    assert "Draft, not published yet" in response.text and "+ == {{content}}" in response.text
    mark = re.findall(r'name="mark" value="(\w+)"', response.html)[0]
    stale = await pages.post(f"{HERE}/{LETTER.id}/publish", {"mark": "other"}, "developer")
    assert stale.status == 400 and live_layout(pages) == LETTER
    done = await pages.post(f"{HERE}/{LETTER.id}/publish", {"mark": mark}, "developer")
    assert done.notice == "Published. Version 2 is in use." and live_layout(pages).text == "== {{content}}"
    assert "== {{content}}" in (await pages.get(f"{HERE}/{LETTER.id}/versions/2", "viewer")).text


async def test_new_layout_with_errors_keeps_input(pages: Pages) -> None:
    assert "{{content}}</textarea>" in (await pages.get(f"{HERE}/new", "developer")).html
    wrong = await pages.post(f"{HERE}/new", {"name": "Frame", "html": "<p>{{customer.x}}</p>"}, "developer")
    assert wrong.status == 400 and "{{content}} appears 0 times" in wrong.text
    assert "&lt;p&gt;{{customer.x}}&lt;/p&gt;</textarea>" in wrong.html and len(pages.setup.teams[TEAM].layouts) == 1
    response = await pages.post(f"{HERE}/new", {"name": "Frame", "html": "<p>{{content}}</p>"}, "developer")
    assert response.notice == "Published. Version 1 is in use."
    assert (await pages.post(f"{HERE}/new", {"name": "F", "html": "{{content}}", "csrf": "old"}, "owner")).status == 403


async def test_refused_layout_shows_reason(pages: Pages, store: Store) -> None:
    await write_records(store, ("platform", PLATFORM_ID, Platform(templates_need_approval=True), None))
    submitted = await submit_editor(pages, "publish", text="== {{content}}")
    assert (
        submitted.notice == "Submitted. It takes effect once an operator approves it." and live_layout(pages) == LETTER
    )
    assert "Waiting for approval" in (await pages.get(f"{HERE}/{LETTER.id}", "developer")).text
    approvals_html = (await pages.get("/dashboard/operator/approvals", OPERATOR)).html
    mark = re.findall(r'name="mark" value="(\w+)"', approvals_html)[0]
    path = f"/dashboard/operator/approvals/{TEAM}/layouts/{LETTER.id}"
    await pages.post(path, {"mark": mark, "reason": "Say who you are."}, OPERATOR)
    for where in ("", "/edit"):
        response = await pages.get(f"{HERE}/{LETTER.id}{where}", "developer")
        assert "An operator refused this draft" in response.text and "Say who you are." in response.text
    await submit_editor(pages, "publish", text="== {{content}}!")
    assert "Say who" not in (await pages.get(f"{HERE}/{LETTER.id}", "developer")).text


async def test_concurrent_layout_edit_is_reported(pages: Pages) -> None:
    form = {"name": "Letter", "text": "{{content}}", "mark": "of before", "do": "publish"}
    response = await pages.post(f"{HERE}/{LETTER.id}/edit", form, "developer")
    assert (
        response.status == 400
        and "Someone changed this layout while you were editing" in response.text
        and live_layout(pages) == LETTER
    )


async def test_archived_layout_stays_in_use_by_its_templates(pages: Pages) -> None:
    await pages.post(f"{HERE}/{LETTER.id}/archive", {}, "developer")
    assert live_layout(pages) == replace(LETTER, status="archived")
    assert "Archived" in (await pages.get(HERE, "viewer")).text
