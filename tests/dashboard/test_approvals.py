"""Approval decisions: made in the queue, reported to the requester, counted in the navigation."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.setup.records import (
    DisplayName,
    Domain,
    Layout,
    LayoutDraft,
    TeamRecord,
    Template,
    VariableType,
)
from heliograph.domain.setup.sender_approvals import pending_senders
from heliograph.storage.store import Store
from heliograph.templates.policy.layout_drafts import find_draft
from heliograph.templates.policy.template_approvals import list_pending, revision_of
from tests.dashboard.conftest import Shoot, Site, assert_fits, sync_api
from tests.dashboard.inside import OPERATOR, Pages, write_records
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
    await write_records(
        store,
        ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme"), TEAM),
        ("domain", domain.id, domain, TEAM),
    )
    return Pages(make_context(store, clock))


async def request_display_name(pages: Pages, who: str = "developer") -> dict[str, str]:
    """Request a display name and return the form that decides about it."""
    await pages.post(f"{HERE}/senders/names", {"name": "Acme Care", "of": "dom_acme"}, who)
    (item,) = pending_senders(pages.setup)
    return {"kind": item.kind, "id": item.id, "text": item.text}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ({"approve": "yes"}, "Approved: send as Acme Care from acme.test."),
        ({"approve": "no", "reason": "Not <yours>."}, "Refused: send as Acme Care from acme.test. Not <yours>."),
    ],
)
async def test_decision_is_shown_to_requester_once_on_next_page(pages: Pages, word: dict[str, str], said: str) -> None:
    form = await request_display_name(pages)
    done = await pages.post(f"{LIST}/{TEAM}", form | word, OPERATOR)
    assert (done.status, done.headers["location"]) == (303, DONE)
    assert done.notice.startswith("Approved: Send as" if word["approve"] == "yes" else "Refused: Send as")
    assert said not in (await pages.get(HERE, "owner")).text  # of another user
    assert said not in (await pages.get(HERE, "developer", {"sec-fetch-dest": "empty"})).text  # a script's fetch
    assert said not in (await pages.get(HERE, "developer", {"accept": "*/*"})).text  # on plain http
    response = await pages.get(HERE, "developer")
    assert said in response.text and f'href="{HERE}/senders"' in response.html and "<yours>" not in response.html
    assert said not in (await pages.get(HERE, "developer")).text


@pytest.mark.anyio
async def test_many_decisions_are_shown_five_per_page(pages: Pages, store: Store, clock: Any) -> None:
    for number in range(7):
        await store.decisions.add("usr_developer", f"Approved: name {number}.", HERE)
        clock.forward(1)
    texts = [(await pages.get(HERE, "developer")).text for _ in range(3)]
    numbers_by_page = [[number for number in range(7) if f"Approved: name {number}." in text] for text in texts]
    assert numbers_by_page == [[0, 1, 2, 3, 4], [5, 6], []]


@pytest.mark.anyio
async def test_decision_on_team_page_notifies_requester(pages: Pages) -> None:
    form = await request_display_name(pages)
    await pages.post(f"{HERE}/senders/decide", form | {"approve": "yes"}, OPERATOR)
    assert "Approved: send as Acme Care" in (await pages.get(HERE, "developer")).text
    await pages.post(f"{HERE}/senders/decide", form | {"approve": "no", "reason": "Misused."}, OPERATOR)
    assert "Refused: send as Acme Care from acme.test. Misused." in (await pages.get(HERE, "developer")).text


@pytest.mark.anyio
async def test_deciding_own_request_shows_no_notice(pages: Pages) -> None:
    form = await request_display_name(pages, OPERATOR)
    await pages.post(f"{LIST}/{TEAM}", form | {"approve": "yes"}, OPERATOR)
    assert "Approved: send as" not in (await pages.get(HERE, OPERATOR)).text


@pytest.mark.anyio
async def test_pending_count_is_in_operator_navigation(store: Store, pages: Pages) -> None:
    assert "waiting" not in (await pages.get("/dashboard/operator", OPERATOR)).html.partition("<main")[0]
    await request_display_name(pages)
    await write_records(store, ("template", SMS.id, SMS, TEAM))
    for path in ("/dashboard/operator", HERE, LIST):
        assert "2 waiting" in (await pages.get(path, OPERATOR)).text
    # so that it is not mistaken for the team's waiting messages
    assert "Queue is empty." in (await pages.get(HERE, OPERATOR)).text
    response = await pages.get(HERE, "developer")
    assert "2 waiting" not in response.text and "approvals/live" not in response.html


@pytest.mark.anyio
async def test_approved_template_gets_price_from_form(store: Store, pages: Pages) -> None:
    await write_records(store, ("template", SMS.id, SMS, TEAM))
    response = await pages.get(LIST, OPERATOR)
    assert "Price per segment, USD" in response.text and "<b>parcel" not in response.html
    (draft,) = list_pending(pages.setup)
    path, form = f"{LIST}/{TEAM}/templates/{SMS.id}", {"mark": draft.revision, "approve": "yes", "text": "the template"}
    wrong = await pages.post(path, form | {"price": "0", "country": "Germany (DE)", "country_price": "0.05"}, OPERATOR)
    assert wrong.status == 400 and "Set a price above zero" in wrong.text and "Germany (DE)" in wrong.html
    prices = {"price": "0.0400", "price.GB": "0.0500", "price.US": "", "country": "germany", "country_price": "0.07"}
    done = await pages.post(path, form | prices, OPERATOR)
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
        ({"reason": "No <i>."}, "Refused: the layout Letter. The team can see the reason.", LETTER.html, False),
        ({"reason": " "}, "", LETTER.html, True),
        ({"approve": "yes", "mark": "another"}, "", LETTER.html, True),
    ],
)
async def test_layout_is_decided_only_as_reviewed(
    store: Store, pages: Pages, word: dict[str, str], told: str, html: str, waits: bool
) -> None:
    draft = LayoutDraft(team=TEAM, layout=ASKED)
    await write_records(store, ("layout", LETTER.id, LETTER, TEAM), ("layout_draft", LETTER.id, draft, TEAM))
    response = await pages.get(LIST, OPERATOR)
    assert "1 waiting" in response.text and "Letter" in response.text and "<i>{{content}}</i>" in response.text
    form = {"mark": revision_of(ASKED), "text": "the layout Letter"} | word
    done = await pages.post(f"{LIST}/{TEAM}/layouts/{LETTER.id}", form, OPERATOR)
    assert (done.status, done.notice) == ((303, told) if told else (400, ""))
    assert pages.setup.teams[TEAM].layouts[LETTER.id].html == html
    draft_after = find_draft(pages.setup, LETTER.id)
    assert bool(draft_after and draft_after.submitted_at) == waits


@pytest.mark.anyio
async def test_refused_template_shows_reason(store: Store, pages: Pages) -> None:
    await write_records(store, ("template", SMS.id, SMS, TEAM))
    (draft,) = list_pending(pages.setup)
    path = f"{LIST}/{TEAM}/templates/{SMS.id}"
    assert (await pages.post(path, {"mark": draft.revision}, OPERATOR)).status == 400
    assert (await pages.post(path, {"mark": draft.revision, "reason": "No."}, "owner")).status == 403
    assert (await pages.post(path, {"mark": draft.revision, "reason": "No."}, OPERATOR)).headers["location"] == DONE
    assert list_pending(pages.setup) == []


def test_decision_updates_open_pages_live(site: Site, shoot: Shoot) -> None:
    """Another open page of the operator updates without a reload, and the requester is notified."""
    expect = sync_api.expect
    asker = site.open("asker@acme.test", "--team", TEAM, "--role", "developer", path=f"{HERE}/senders/names/new")
    asker.get_by_label("Name", exact=True).fill("Acme Parcels")
    asker.get_by_role("button", name="Submit for approval").click()
    expect(asker.locator(".flash")).to_contain_text("is waiting for approval")
    page = site.open("op@acme.test", "--operator", path=LIST)
    other = page.context.new_page()
    other.goto("/dashboard/operator/people")
    before = int(page.locator("#approvals-count .count").inner_text().split()[0])
    expect(other.locator("#approvals-count .count")).to_contain_text(str(before))
    card = page.locator(".ask", has_text="Acme Parcels")
    expect(card).to_contain_text("asker@acme.test")
    assert_fits(page, shoot, "approvals")
    card.get_by_role("button", name="Approve").click()
    expect(page.locator(".flash")).to_contain_text("Approved: Send as Acme Parcels from")
    expect(page.locator(".ask", has_text="Acme Parcels")).to_have_count(0)
    expected_count = f"{before - 1} waiting" if before > 1 else ""
    expect(other.locator("#approvals-count")).to_have_text(expected_count)
    other.close()
    asker.goto(HERE)
    expect(asker.locator(".flash")).to_contain_text("Approved: send as Acme Parcels from")


@pytest.mark.anyio
async def test_approval_shows_maximum_size_and_price_of_template(pages: Pages, store: Store) -> None:
    shape = VariableType(max_length=100)
    new = replace(SMS, body="Hi {{customer.name}}", variables=("name",), shapes={"name": shape}, price=45000)
    await write_records(store, ("template", new.id, new, TEAM))
    assert "At most 3 segments, 0.135 USD, 1 KB, with any values" in (await pages.get(LIST, OPERATOR)).text
    await write_records(store, ("template", new.id, replace(new, shapes={}), TEAM))
    assert "At most" not in (await pages.get(LIST, OPERATOR)).text


@pytest.mark.anyio
async def test_approvals_show_a_template_with_an_unsubscribe_link(pages: Pages, store: Store) -> None:
    fields = {"channel": "email", "body": None, "subject": "News", "text": "{{unsubscribe_url}}", "category": "news"}
    await write_records(store, ("template", SMS.id, replace(SMS, **fields), TEAM))
    assert "At most 1 KB, with any values" in (await pages.get(LIST, OPERATOR)).text


@pytest.mark.anyio
async def test_approval_shows_request_age_and_team_statistics(store: Store, pages: Pages, clock: Any) -> None:
    id_ = clock.new_id("dom_")
    clock.forward(3 * 86_400_000)
    domain = Domain(id=id_, team=TEAM, name="news.acme.test", brand="Acme News", verified=True)
    await write_records(store, ("template", SMS.id, SMS, TEAM), ("domain", id_, domain, TEAM))
    await store.messages.accept(message(clock, "ada@example.com"))
    await deliver(store, clock, "sent")
    response = await pages.get(LIST, OPERATOR)
    assert re.search(r"Requested by Acme , 3 days ago", response.text), response.text
    assert "of 1 emails 0.0% bounced" in response.text
    assert "Last 30 days, including test messages:" in response.text and "There is no SMS price list" in response.text
    assert "1 segment with the example values, GSM-7" in response.text
    assert "Oldest requested 3 days ago" in (await pages.get("/dashboard/operator", OPERATOR)).text


@pytest.mark.anyio
@pytest.mark.parametrize(("approve", "state"), [("yes", "Approved"), ("", "Refused Not yours.")])
async def test_decision_is_listed_and_can_be_undone(pages: Pages, approve: str, state: str) -> None:
    assert "No decisions yet" in (await pages.get(f"{LIST}?tab=decided", OPERATOR)).text
    form = await request_display_name(pages)
    decided = await pages.post(f"{LIST}/{TEAM}", form | {"approve": approve, "reason": "Not yours."}, OPERATOR)
    assert (
        pending_senders(pages.setup) == []
        and "Undo a decision" in (await pages.get(decided.headers["location"], OPERATOR)).text
    )
    listed = (await pages.get(f"{LIST}?tab=decided", OPERATOR)).text
    assert "Send as Acme Care from acme.test Display name Acme " + state in listed and "Undo" in listed
    back = {"kind": "display_name", "said": form["text"], "approved": approve}
    for place, notice in (
        (LIST, "Decision undone. The request waits again."),
        (f"{LIST}?tab=decided", "This request was changed or decided in the meantime."),
    ):
        done = await pages.post(f"{LIST}/{TEAM}/reopen", back, OPERATOR)
        assert (done.headers["location"], done.notice) == (place, notice)
    assert [item.text for item in pending_senders(pages.setup)] == [form["text"]]
    assert "Undo" not in (await pages.get(f"{LIST}?tab=decided", OPERATOR)).text
    assert "Decision undone: send as Acme Care from acme.test." in (await pages.get(HERE, "developer")).text


@pytest.mark.anyio
async def test_undo_of_name_on_two_domains_reopens_only_the_decided_one(pages: Pages, store: Store) -> None:
    other = Domain(id="dom_two", team=TEAM, name="two.test", brand="Acme", verified=True, approved=True)
    names = [
        DisplayName(id=f"dn_{of}", team=TEAM, domain=of, name="Care", approved=True) for of in ("dom_acme", "dom_two")
    ]
    await write_records(
        store, ("domain", other.id, other, TEAM), *(("display_name", entry.id, entry, TEAM) for entry in names)
    )
    form = {"kind": "display_name", "id": "dn_dom_acme", "reason": "Not yours."}
    for approve in ("no", "yes"):
        await pages.post(f"{HERE}/senders/decide", form | {"approve": approve}, OPERATOR)
    html = (await pages.get(f"{LIST}?tab=decided", OPERATOR)).html
    (undo,) = re.findall(r'<form[^>]*/reopen".*?</form>', html, re.DOTALL)
    back = dict(re.findall(r'name="(kind|said|approved)" value="([^"]*)"', undo))
    await pages.post(f"{LIST}/{TEAM}/reopen", back, OPERATOR)
    assert [item.id for item in pending_senders(pages.setup)] == ["dn_dom_acme"]
