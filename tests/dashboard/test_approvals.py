"""An operator's decisions: made in the list, told to whoever asked, counted in the navigation."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.setup.records import (
    DisplayName,
    Domain,
    Layout,
    LayoutDraft,
    Shape,
    TeamRecord,
    Template,
)
from heliograph.domain.setup.sender_approvals import pending
from heliograph.storage.store import Store
from heliograph.templates.policy.layout_drafts import find_draft
from heliograph.templates.policy.template_approvals import list_pending, mark_of
from tests.dashboard.conftest import Shoot, Site, fits, sync_api
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.samples import message
from tests.storage.test_idempotency import make_context
from tests.storage.test_reputation import deliver

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme"
LIST = "/dashboard/operator/approvals"
DONE = f"{LIST}?decided=yes"
SMS = Template(
    id="tpl_new", team=TEAM, channel="sms", name="Parcel", status="draft", body="Your <b>parcel</b> is here."
)


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    domain = Domain(id="dom_acme", team=TEAM, name="acme.test", brand="Acme", verified=True, approved=True)
    await set_up(
        store,
        ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme"), TEAM),
        ("domain", domain.id, domain, TEAM),
    )
    return Pages(make_context(store, clock))


async def asked(pages: Pages, who: str = "developer") -> dict[str, str]:
    """A name is asked for: the form of the decision."""
    await pages.post(f"{HERE}/senders/names", {"name": "Acme Care", "of": "dom_acme"}, who)
    (item,) = pending(pages.setup)
    return {"kind": item.kind, "id": item.id, "text": item.text}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ({"approve": "yes"}, "Approved: send as Acme Care from acme.test."),
        ({"approve": "no", "reason": "Not <yours>."}, "Refused: send as Acme Care from acme.test. Not <yours>."),
    ],
)
async def test_the_asker_is_told_once_on_the_next_page(pages: Pages, word: dict[str, str], said: str) -> None:
    form = await asked(pages)
    done = await pages.post(f"{LIST}/{TEAM}", form | word, OPERATOR)
    assert (done.status, done.headers["location"]) == (303, DONE)
    assert done.notice.startswith("Approved: Send as" if word["approve"] == "yes" else "Refused: Send as")
    assert said not in (await pages.get(HERE, "owner")).text  # somebody else's
    assert said not in (await pages.get(HERE, "developer", {"sec-fetch-dest": "empty"})).text  # a script's fetch
    assert said not in (await pages.get(HERE, "developer", {"accept": "*/*"})).text  # on plain http
    seen = await pages.get(HERE, "developer")
    assert said in seen.text and f'href="{HERE}/senders"' in seen.html and "<yours>" not in seen.html
    assert said not in (await pages.get(HERE, "developer")).text


@pytest.mark.anyio
async def test_many_decisions_are_told_page_by_page(pages: Pages, store: Store, clock: Any) -> None:
    for number in range(7):
        await store.decisions.tell("usr_developer", f"Approved: name {number}.", HERE)
        clock.forward(1)
    told = [(await pages.get(HERE, "developer")).text for _ in range(3)]
    seen = [[number for number in range(7) if f"Approved: name {number}." in text] for text in told]
    assert seen == [[0, 1, 2, 3, 4], [5, 6], []]


@pytest.mark.anyio
async def test_a_word_on_the_teams_own_page_is_told_too(pages: Pages) -> None:
    form = await asked(pages)
    await pages.post(f"{HERE}/senders/decide", form | {"approve": "yes"}, OPERATOR)
    assert "Approved: send as Acme Care" in (await pages.get(HERE, "developer")).text
    await pages.post(f"{HERE}/senders/decide", form | {"approve": "no", "reason": "Misused."}, OPERATOR)
    assert "Refused: send as Acme Care from acme.test. Misused." in (await pages.get(HERE, "developer")).text


@pytest.mark.anyio
async def test_who_decides_about_their_own_wish_is_not_told(pages: Pages) -> None:
    form = await asked(pages, OPERATOR)
    await pages.post(f"{LIST}/{TEAM}", form | {"approve": "yes"}, OPERATOR)
    assert "Approved: send as" not in (await pages.get(HERE, OPERATOR)).text


@pytest.mark.anyio
async def test_the_count_is_in_the_navigation(store: Store, pages: Pages) -> None:
    assert "waiting" not in (await pages.get("/dashboard/operator", OPERATOR)).html.partition("<main")[0]
    await asked(pages)
    await set_up(store, ("template", SMS.id, SMS, TEAM))
    for path in ("/dashboard/operator", HERE, LIST):
        assert "2 waiting" in (await pages.get(path, OPERATOR)).text
    # That it is not taken for what waits in the team's queue.
    assert "Everything is handed over." in (await pages.get(HERE, OPERATOR)).text
    shown = await pages.get(HERE, "developer")
    assert "2 waiting" not in shown.text and "approvals/live" not in shown.html


@pytest.mark.anyio
async def test_a_template_is_approved_at_the_price_of_the_form(store: Store, pages: Pages) -> None:
    await set_up(store, ("template", SMS.id, SMS, TEAM))
    shown = await pages.get(LIST, OPERATOR)
    assert "Price of one segment, USD" in shown.text and "<b>parcel" not in shown.html
    (draft,) = list_pending(pages.setup)
    place, form = f"{LIST}/{TEAM}/templates/{SMS.id}", {"mark": draft.mark, "approve": "yes", "text": "the template"}
    wrong = await pages.post(place, form | {"price": "0", "country": "Germany (DE)", "country_price": "0.05"}, OPERATOR)
    assert wrong.status == 400 and "Set a price above nothing" in wrong.text and "Germany (DE)" in wrong.html
    prices = {"price": "0.0400", "price.GB": "0.0500", "price.US": "", "country": "germany", "country_price": "0.07"}
    done = await pages.post(place, form | prices, OPERATOR)
    assert (done.status, done.headers["location"], done.notice) == (303, DONE, "Approved: the template.")
    sold = pages.setup.teams[TEAM].templates[SMS.id]
    assert (sold.status, sold.price, sold.prices) == ("approved", 40_000, {"GB": 50_000, "DE": 70_000})


LETTER = Layout(id="lay_letter", team=TEAM, name="Letter", html="<b>{{content}}</b>")
ASKED = replace(LETTER, html="<i>{{content}}</i>", version=2, status="draft", submitted_at=1)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("word", "told", "html", "waits"),
    [
        ({"approve": "yes"}, "Approved: the layout Letter.", ASKED.html, False),
        ({"reason": "No <i>."}, "Refused: the layout Letter. The team sees the reason.", LETTER.html, False),
        ({"reason": " "}, "", LETTER.html, True),
        ({"approve": "yes", "mark": "another"}, "", LETTER.html, True),
    ],
)
async def test_a_layout_is_decided_about_as_it_was_seen(
    store: Store, pages: Pages, word: dict[str, str], told: str, html: str, waits: bool
) -> None:
    draft = LayoutDraft(team=TEAM, layout=ASKED)
    await set_up(store, ("layout", LETTER.id, LETTER, TEAM), ("layout_draft", LETTER.id, draft, TEAM))
    shown = await pages.get(LIST, OPERATOR)
    assert "1 waiting" in shown.text and "Letter" in shown.text and "<i>{{content}}</i>" in shown.text
    form = {"mark": mark_of(ASKED), "text": "the layout Letter"} | word
    done = await pages.post(f"{LIST}/{TEAM}/layouts/{LETTER.id}", form, OPERATOR)
    assert (done.status, done.notice) == ((303, told) if told else (400, ""))
    assert pages.setup.teams[TEAM].layouts[LETTER.id].html == html
    left = find_draft(pages.setup, LETTER.id)
    assert bool(left and left.submitted_at) == waits


@pytest.mark.anyio
async def test_a_template_is_refused_with_a_reason(store: Store, pages: Pages) -> None:
    await set_up(store, ("template", SMS.id, SMS, TEAM))
    (draft,) = list_pending(pages.setup)
    place = f"{LIST}/{TEAM}/templates/{SMS.id}"
    assert (await pages.post(place, {"mark": draft.mark}, OPERATOR)).status == 400
    assert (await pages.post(place, {"mark": draft.mark, "reason": "No."}, "owner")).status == 403
    assert (await pages.post(place, {"mark": draft.mark, "reason": "No."}, OPERATOR)).headers["location"] == DONE
    assert list_pending(pages.setup) == []


def test_decided_in_the_list_and_counted_live(site: Site, shoot: Shoot) -> None:
    """Another page of the operator's follows without a reload, and the asker is told."""
    expect = sync_api.expect
    asker = site.open("asker@acme.test", "--team", TEAM, "--role", "developer", path=f"{HERE}/senders/names/new")
    asker.get_by_label("Name", exact=True).fill("Acme Parcels")
    asker.get_by_role("button", name="Submit for approval").click()
    expect(asker.locator(".flash")).to_contain_text("waits for the operator's approval")
    page = site.open("op@acme.test", "--operator", path=LIST)
    other = page.context.new_page()
    other.goto("/dashboard/operator/people")
    before = int(page.locator("#approvals-count .count").inner_text().split()[0])
    expect(other.locator("#approvals-count .count")).to_contain_text(str(before))
    card = page.locator(".ask", has_text="Acme Parcels")
    expect(card).to_contain_text("asker@acme.test")
    fits(page, shoot, "approvals")
    card.get_by_role("button", name="Approve").click()
    expect(page.locator(".flash")).to_contain_text("Approved: Send as Acme Parcels from")
    expect(page.locator(".ask", has_text="Acme Parcels")).to_have_count(0)
    left = f"{before - 1} waiting" if before > 1 else ""
    expect(other.locator("#approvals-count")).to_have_text(left)
    other.close()
    asker.goto(HERE)
    expect(asker.locator(".flash")).to_contain_text("Approved: send as Acme Parcels from")


@pytest.mark.anyio
async def test_what_a_template_becomes_at_most(pages: Pages, store: Store) -> None:
    shape = Shape(max_length=100)
    new = replace(SMS, body="Hi {{customer.name}}", variables=("name",), shapes={"name": shape}, price=45000)
    await set_up(store, ("template", new.id, new, TEAM))
    assert "At most 3 segments, 0.135 USD, 1 KB, whatever" in (await pages.get(LIST, OPERATOR)).text
    await set_up(store, ("template", new.id, replace(new, shapes={}), TEAM))
    assert "At most" not in (await pages.get(LIST, OPERATOR)).text


@pytest.mark.anyio
async def test_an_ask_says_how_old_it_is_and_how_the_team_does(store: Store, pages: Pages, clock: Any) -> None:
    id_ = clock.new_id("dom_")
    clock.forward(3 * 86_400_000)
    domain = Domain(id=id_, team=TEAM, name="news.acme.test", brand="Acme News", verified=True)
    await set_up(store, ("template", SMS.id, SMS, TEAM), ("domain", id_, domain, TEAM))
    await store.messages.accept(message(clock, "ada@example.com"))
    await deliver(store, clock, "sent")
    shown = await pages.get(LIST, OPERATOR)
    assert re.search(r"Asked by Acme , 3 days ago", shown.text), shown.text
    assert "of 1 emails 0.0 % bounced" in shown.text
    assert "In the last 30 days" in shown.text and "There is no price list for SMS" in shown.text
    assert "1 segment with its examples, GSM-7" in shown.text
    assert "The oldest was asked for 3 days ago" in (await pages.get("/dashboard/operator", OPERATOR)).text


@pytest.mark.anyio
@pytest.mark.parametrize(("approve", "state"), [("yes", "Approved"), ("", "Refused Not yours.")])
async def test_a_decision_is_listed_and_taken_back(pages: Pages, approve: str, state: str) -> None:
    assert "Nothing was decided yet" in (await pages.get(f"{LIST}?tab=decided", OPERATOR)).text
    form = await asked(pages)
    decided = await pages.post(f"{LIST}/{TEAM}", form | {"approve": approve, "reason": "Not yours."}, OPERATOR)
    assert pending(pages.setup) == [] and "Undo it" in (await pages.get(decided.headers["location"], OPERATOR)).text
    listed = (await pages.get(f"{LIST}?tab=decided", OPERATOR)).text
    assert "Send as Acme Care from acme.test Display name Acme " + state in listed and "Undo" in listed
    back = {"kind": "display_name", "said": form["text"], "approved": approve}
    for place, notice in ((LIST, "It waits again."), (f"{LIST}?tab=decided", "It was changed or decided meanwhile.")):
        done = await pages.post(f"{LIST}/{TEAM}/reopen", back, OPERATOR)
        assert (done.headers["location"], done.notice) == (place, notice)
    assert [item.text for item in pending(pages.setup)] == [form["text"]]
    assert "Undo" not in (await pages.get(f"{LIST}?tab=decided", OPERATOR)).text
    assert "Taken back: send as Acme Care from acme.test. It waits" in (await pages.get(HERE, "developer")).text


@pytest.mark.anyio
async def test_of_a_name_on_two_domains_the_one_decided_about_is_taken_back(pages: Pages, store: Store) -> None:
    other = Domain(id="dom_two", team=TEAM, name="two.test", brand="Acme", verified=True, approved=True)
    names = [
        DisplayName(id=f"dn_{of}", team=TEAM, domain=of, name="Care", approved=True) for of in ("dom_acme", "dom_two")
    ]
    await set_up(store, ("domain", other.id, other, TEAM), *(("display_name", one.id, one, TEAM) for one in names))
    form = {"kind": "display_name", "id": "dn_dom_acme", "reason": "Not yours."}
    for approve in ("no", "yes"):
        await pages.post(f"{HERE}/senders/decide", form | {"approve": approve}, OPERATOR)
    html = (await pages.get(f"{LIST}?tab=decided", OPERATOR)).html
    (undo,) = re.findall(r'<form[^>]*/reopen".*?</form>', html, re.DOTALL)
    back = dict(re.findall(r'name="(kind|said|approved)" value="([^"]*)"', undo))
    await pages.post(f"{LIST}/{TEAM}/reopen", back, OPERATOR)
    assert [item.id for item in pending(pages.setup)] == ["dn_dom_acme"]
