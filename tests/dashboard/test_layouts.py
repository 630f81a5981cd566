"""The pages of layouts without a browser: what is written, told, published and refused."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.setup.records import Layout, Platform, TeamRecord, Template
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme/layouts"
LETTER = Layout(id="lay_letter", team=TEAM, name="Letter", html="<main>{{content}}</main>", text="-- {{content}}")
MAIL = Template(id="tpl_mail", team=TEAM, channel="email", name="Welcome", subject="Hi", text="Hi", layout=LETTER.id)
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    team = ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme", mode="live"), TEAM)
    await set_up(store, team, ("layout", LETTER.id, LETTER, TEAM), ("template", MAIL.id, MAIL, TEAM))
    return Pages(make_context(store, clock))


def given(pages: Pages, id_: str = LETTER.id) -> Layout:
    return pages.setup.teams[TEAM].layouts[id_]


async def edit(pages: Pages, do: str, who: str = "developer", **fields: str) -> Any:
    begun = (await pages.get(f"{HERE}/{LETTER.id}/edit", who)).html
    mark = re.findall(r'name="mark" value="(\w+)"', begun)[0]
    form = {"name": "Letter", "html": LETTER.html or "", "text": LETTER.text or "", "mark": mark}
    return await pages.post(f"{HERE}/{LETTER.id}/edit", form | fields | {"do": do}, who)


async def test_the_list_and_the_page_of_one(pages: Pages) -> None:
    listed = await pages.get(HERE, "viewer")
    assert "Letter In use" in listed.text and "lay_letter" in listed.text and "New layout" not in listed.text
    shown = await pages.get(f"{HERE}/{LETTER.id}", "viewer")
    assert "Welcome" in shown.text and "Version 1" in shown.text and "Archive" not in shown.text
    framed = await pages.get(f"{HERE}/{LETTER.id}/preview", "viewer")
    assert "-- A message" in framed.text and "&lt;main&gt;" in framed.html and "Price" not in framed.text
    assert (await pages.get(f"{HERE}/lay_none", "viewer")).status == 404


async def test_a_draft_changes_nothing_until_it_is_published(pages: Pages) -> None:
    saved = await edit(pages, "draft", text="== {{content}}")
    assert saved.headers["location"] == f"{HERE}/{LETTER.id}/edit?saved=yes" and given(pages) == LETTER
    shown = await pages.get(f"{HERE}/{LETTER.id}", "developer")
    assert "Draft, not published yet" in shown.text and "+ == {{content}}" in shown.text
    mark = re.findall(r'name="mark" value="(\w+)"', shown.html)[0]
    stale = await pages.post(f"{HERE}/{LETTER.id}/publish", {"mark": "other"}, "developer")
    assert stale.status == 400 and given(pages) == LETTER
    done = await pages.post(f"{HERE}/{LETTER.id}/publish", {"mark": mark}, "developer")
    assert done.notice == "Published. Version 2 is in use." and given(pages).text == "== {{content}}"
    assert "== {{content}}" in (await pages.get(f"{HERE}/{LETTER.id}/versions/2", "viewer")).text


async def test_a_new_one_is_made_and_mistakes_keep_what_was_typed(pages: Pages) -> None:
    assert "{{content}}</textarea>" in (await pages.get(f"{HERE}/new", "developer")).html
    wrong = await pages.post(f"{HERE}/new", {"name": "Frame", "html": "<p>{{customer.x}}</p>"}, "developer")
    assert wrong.status == 400 and "{{content}} stands in it 0 times" in wrong.text
    assert "&lt;p&gt;{{customer.x}}&lt;/p&gt;</textarea>" in wrong.html and len(pages.setup.teams[TEAM].layouts) == 1
    made = await pages.post(f"{HERE}/new", {"name": "Frame", "html": "<p>{{content}}</p>"}, "developer")
    assert made.notice == "Published. Version 1 is in use."
    assert (await pages.post(f"{HERE}/new", {"name": "F", "html": "{{content}}", "csrf": "old"}, "owner")).status == 403


async def test_what_an_operator_refused_says_why(pages: Pages, store: Store) -> None:
    await set_up(store, ("platform", PLATFORM_ID, Platform(templates_need_approval=True), None))
    submitted = await edit(pages, "publish", text="== {{content}}")
    assert submitted.notice == "Submitted. It is used when an operator approves it." and given(pages) == LETTER
    assert "Waiting for approval" in (await pages.get(f"{HERE}/{LETTER.id}", "developer")).text
    asked = (await pages.get("/dashboard/operator/approvals", OPERATOR)).html
    mark = re.findall(r'name="mark" value="(\w+)"', asked)[0]
    place = f"/dashboard/operator/approvals/{TEAM}/layouts/{LETTER.id}"
    await pages.post(place, {"mark": mark, "reason": "Say who you are."}, OPERATOR)
    for where in ("", "/edit"):
        shown = await pages.get(f"{HERE}/{LETTER.id}{where}", "developer")
        assert "An operator refused this draft" in shown.text and "Say who you are." in shown.text
    await edit(pages, "publish", text="== {{content}}!")
    assert "Say who" not in (await pages.get(f"{HERE}/{LETTER.id}", "developer")).text


async def test_the_second_of_two_is_told(pages: Pages) -> None:
    form = {"name": "Letter", "text": "{{content}}", "mark": "of before", "do": "publish"}
    told = await pages.post(f"{HERE}/{LETTER.id}/edit", form, "developer")
    assert told.status == 400 and "Somebody changed this layout while you wrote" in told.text and given(pages) == LETTER


async def test_archived_it_stays_where_it_is_used(pages: Pages) -> None:
    await pages.post(f"{HERE}/{LETTER.id}/archive", {}, "developer")
    assert given(pages) == replace(LETTER, status="archived")
    assert "Archived" in (await pages.get(HERE, "viewer")).text
