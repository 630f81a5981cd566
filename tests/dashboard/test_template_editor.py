"""The template editor without a browser: what is declared, told, kept, and published."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.setup.records import (
    Layout,
    LocaleParts,
    Platform,
    Shape,
    TeamRecord,
    Template,
    UpstreamTemplate,
)
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.store import Store
from heliograph.templates.policy.template_quota import LENGTH_MAX
from tests.dashboard.inside import OPERATOR, Pages, Shown, set_up
from tests.storage.test_idempotency import make_context

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme/templates"
MAIL = Template(
    id="tpl_mail", team=TEAM, channel="email", name="Welcome", subject="Hello", text="Hi {{customer.name}}.",
    variables=("name",), examples={"name": "Grace"},
)  # fmt: skip
SMS = Template(
    id="tpl_sms", team=TEAM, channel="sms", name="Parcel", body="Your parcel is here.",
    price=45_000, prices={"GB": 35_000, "IE": 35_000},
)  # fmt: skip
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    team = ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme", mode="live"), TEAM)
    await set_up(store, team, *(("template", one.id, one, TEAM) for one in (MAIL, SMS)))
    return Pages(make_context(store, clock))


def form_of(shown: Shown) -> dict[str, str]:
    """What a browser would send back."""
    fields = dict(re.findall(r'<input[^>]* name="([\w.]+)"[^>]* value="([^"]*)"', shown.html))
    return {name: value for name, value in fields.items() if name not in ("csrf", "free") and "optional" not in name}


def given(pages: Pages, id_: str) -> Template:
    return pages.setup.teams[TEAM].templates[id_]


def draft_of(pages: Pages, id_: str) -> Any:
    found: Any = pages.setup.records.get(("template_draft", id_))
    return found and found.template


async def edit(pages: Pages, id_: str, do: str, who: str = "developer", **fields: str) -> Shown:
    form = form_of(await pages.get(f"{HERE}/{id_}/edit", who))
    return await pages.post(f"{HERE}/{id_}/edit", form | fields | {"do": do}, who)


async def test_a_draft_changes_nothing_until_it_is_published(pages: Pages) -> None:
    saved = await edit(pages, MAIL.id, "draft", text="Hi {{customer.name}}, welcome.")
    assert saved.headers["location"] == f"{HERE}/{MAIL.id}/edit?saved=yes"
    assert given(pages, MAIL.id) == MAIL
    shown = await pages.get(f"{HERE}/{MAIL.id}", "developer")
    assert "Draft, not published yet" in shown.text and "Version 1 stays in use until then" in shown.text
    assert "+ Hi {{customer.name}}, welcome." in shown.text
    assert "Version 1 is in use" in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).text
    assert shown.html.count('class="main"') == 1

    seen = re.findall(r'name="mark" value="(\w+)"', shown.html)[0]
    published = await pages.post(f"{HERE}/{MAIL.id}/publish", {"mark": seen}, "developer")
    assert published.notice == "Published. Version 2 is in use."
    assert (given(pages, MAIL.id).version, draft_of(pages, MAIL.id)) == (2, None)


async def test_what_waits_for_an_operator_says_so(pages: Pages, store: Store) -> None:
    await set_up(store, ("platform", PLATFORM_ID, Platform(templates_need_approval=True), None))
    assert "Submit for approval" in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).text
    assert "Submit for approval" not in (await pages.get(f"{HERE}/{MAIL.id}/edit", OPERATOR)).text
    await edit(pages, MAIL.id, "draft", text="Other")
    assert "Welcome" not in (await pages.get("/dashboard/operator/approvals", OPERATOR)).text
    submitted = await edit(pages, MAIL.id, "publish", text="Other")
    assert submitted.notice == "Submitted. It is used when an operator approves it."
    assert "Waiting for approval" in (await pages.get(f"{HERE}/{MAIL.id}", "developer")).text
    assert "Welcome" in (await pages.get("/dashboard/operator/approvals", OPERATOR)).text
    await edit(pages, MAIL.id, "draft", text="Better")
    assert "Welcome" not in (await pages.get("/dashboard/operator/approvals", OPERATOR)).text, "taken back"


async def test_new_variables_are_declared_and_examples_asked_for(pages: Pages) -> None:
    asked = await edit(pages, MAIL.id, "publish", text="Hi {{customer.name}}, order {{order.id}} of {{day}}.")
    assert asked.status == 200 and "New variables: order.id, day" in asked.text
    assert 'name="variable.1" value="order.id"' in asked.html and 'name="variable.2" value="day"' in asked.html
    assert given(pages, MAIL.id) == MAIL, "not yet"
    words = {"text": "Hi {{customer.name}}, order {{order.id}} of {{day}}.", "do": "publish"}
    await pages.post(f"{HERE}/{MAIL.id}/edit", form_of(asked) | words, "developer")
    made = given(pages, MAIL.id)
    assert made.text == "Hi {{customer.name}}, order {{customer.order.id}} of {{customer.day}}."
    assert made.variables == ("name", "order.id", "day")

    told = (await edit(pages, MAIL.id, "draft", text="{{code}}")).notice
    assert told == "Draft saved. Added the variable: code. Give an example."
    assert draft_of(pages, MAIL.id).variables == ("name", "order.id", "day", "code")


async def test_all_mistakes_are_named_with_their_cure_and_the_preview_stays(pages: Pages) -> None:
    wrong = await edit(pages, MAIL.id, "draft", subject="{{1}}", text="{{domain}} {{First name}} {{customer.x")
    assert wrong.status == 400
    for told in (
        "write the variable's name, as in {{customer.order.id}}",
        "write {{customer.domain}} or {{brand.domain}}",
        "write {{customer.first_name}}",
        "close it with }}",
    ):
        assert told in wrong.text
    assert "{{domain}} {{First name}} {{customer.x</textarea>" in wrong.html, "what was typed stands there"
    assert "srcdoc=" in wrong.html and "&lt;body class" in wrong.html
    assert (given(pages, MAIL.id), draft_of(pages, MAIL.id)) == (MAIL, None)


async def test_the_second_of_two_is_told_and_loses_nothing(pages: Pages) -> None:
    begun = form_of(await pages.get(f"{HERE}/{MAIL.id}/edit", "developer"))
    await edit(pages, MAIL.id, "draft", "owner", text="Theirs")
    for do in ("draft", "publish"):
        told = await pages.post(f"{HERE}/{MAIL.id}/edit", begun | {"text": "Mine", "do": do}, "developer")
        assert told.status == 409
        assert "usr_owner changed this template while you wrote" in told.text
        assert "- Theirs" in told.text and "+ Mine" in told.text and ">Mine</textarea>" in told.html
        assert draft_of(pages, MAIL.id).text == "Theirs"
    await pages.post(f"{HERE}/{MAIL.id}/edit", form_of(told) | {"text": "Mine", "do": "draft"}, "developer")
    assert draft_of(pages, MAIL.id).text == "Mine", "seen, and meant"


@pytest.mark.parametrize("place", ["new", MAIL.id + "/edit"])
async def test_an_expired_form_is_shown_again_with_its_text(pages: Pages, place: str) -> None:
    form = {"channel": "email", "name": "Mine", "subject": "s", "text": "A <long> text", "csrf": "of another session"}
    shown = await pages.post(f"{HERE}/{place}", form, "developer")
    assert shown.status == 403
    assert "had expired, so nothing was saved" in shown.text and ">A &lt;long&gt; text</textarea>" in shown.html
    assert 'name="csrf" value="csrf"' in shown.html
    assert len(pages.setup.teams[TEAM].templates) == 2 and draft_of(pages, MAIL.id) is None
    assert (await pages.post(f"{HERE}/{place}", form, "viewer")).status == 403
    assert "long" not in (await pages.post(f"{HERE}/{place}", form, "viewer")).text


async def test_a_template_that_went_meanwhile_is_saved_as_a_new_one(pages: Pages) -> None:
    begun = form_of(await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")) | {"text": "Mine"}
    await pages.post(f"{HERE}/{MAIL.id}/archive", {}, "owner")
    told = await pages.post(f"{HERE}/{MAIL.id}/edit", begun, "developer")
    assert told.status == 400 and "save it as a new template" in told.text
    assert ">Mine</textarea>" in told.html and f'action="{HERE}/new"' in told.html
    expired = await pages.post(f"{HERE}/{MAIL.id}/edit", begun | {"csrf": "of another session"}, "developer")
    assert ">Mine</textarea>" in expired.html and f'action="{HERE}/new"' in expired.html


async def test_the_priority_is_chosen_and_shown(pages: Pages) -> None:
    await edit(pages, SMS.id, "publish", body="Your parcel is here.", priority="bulk")
    assert given(pages, SMS.id).priority == "bulk"
    assert "Priority Bulk" in (await pages.get(f"{HERE}/{SMS.id}")).text
    assert '<option value="bulk" selected>' in (await pages.get(f"{HERE}/{SMS.id}/edit", "developer")).html


async def test_a_copy_is_a_new_template(pages: Pages) -> None:
    shown = await pages.get(f"{HERE}/new?from={MAIL.id}", "developer")
    assert 'value="Copy of Welcome"' in shown.html and 'value="Grace"' in shown.html
    await pages.post(f"{HERE}/new", form_of(shown) | {"text": "Hi {{customer.name}}.", "do": "draft"}, "developer")
    (copy,) = (t for t in pages.setup.teams[TEAM].templates.values() if t.name == "Copy of Welcome")
    assert (copy.status, copy.version, copy.examples) == ("draft", 1, {"name": "Grace"})
    assert (await pages.get(f"{HERE}/new?from=tpl_nothing", "developer")).status == 404


async def test_a_team_without_room_is_told_and_keeps_its_text(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LENGTH_MAX, "live", 10)
    shown = await edit(pages, MAIL.id, "draft", text="Good day, {{customer.name}}.")
    assert "10 is the most" in shown.html and "Good day, {{customer.name}}." in shown.html
    assert draft_of(pages, MAIL.id) is None


async def test_a_preview_marks_what_makes_it_ucs2_and_counts_its_price(pages: Pages) -> None:
    body = "It’s “here”. " + "x" * 60
    form = {"id": SMS.id, "channel": "sms", "name": "Parcel", "body": body}
    shown = await pages.post(f"{HERE}/preview", form, "developer")
    assert "<mark title" in shown.html and ">’</mark>" in shown.html
    assert "’ right single quotation mark, “ left double quotation mark" in shown.text
    assert "it takes 1 segment instead of 2" in shown.text
    assert "Length 73 of 140 characters" in shown.text
    assert "GB, IE 0.07 USD 2 × 0.035" in shown.text.replace("\xa0", " ")
    assert "Elsewhere 0.09 USD 2 × 0.045" in shown.text.replace("\xa0", " ")
    assert "<script" not in shown.html


async def test_a_preview_tells_of_a_brand_that_has_no_such_thing(pages: Pages) -> None:
    form = {"channel": "sms", "name": "A", "body": "{{brand.nam}} {{note}}"}
    shown = await pages.post(f"{HERE}/preview", form, "developer")
    assert "{{brand.nam}} stays empty" in shown.text
    assert 'data-used="note"' in shown.html


async def test_the_list_is_searched_and_says_what_is_under_way(pages: Pages) -> None:
    await edit(pages, MAIL.id, "draft", text="Other")
    shown = await pages.get(f"{HERE}?q=welc&status=draft", "viewer")
    assert "Welcome" in shown.text and "Parcel" not in shown.text and "In use Draft" in shown.text
    assert "No template matches" in (await pages.get(f"{HERE}?q=nothing", "viewer")).text
    assert "New template" not in shown.text
    choice = await pages.get(f"{HERE}/new", "developer")
    assert all(f"/new?channel={channel}" in choice.html for channel in ("email", "sms", "whatsapp"))


async def test_versions_and_the_test_send_have_their_pages(pages: Pages) -> None:
    assert "Version 1 In use" in (await pages.get(f"{HERE}/{MAIL.id}/versions", "viewer")).text
    shown = await pages.get(f"{HERE}/{MAIL.id}/test", "developer")
    assert 'value="Grace"' in shown.html and shown.html.count('class="main"') == 1
    assert (await pages.get(f"{HERE}/{MAIL.id}/test", "viewer")).status == 403
    assert "Send test" not in (await pages.get(f"{HERE}/{MAIL.id}/versions", "viewer")).text


async def test_versions_are_compared_and_restored(pages: Pages) -> None:
    await edit(pages, MAIL.id, "publish", text="Hello {{customer.name}}.")
    shown = (await pages.get(f"{HERE}/{MAIL.id}/versions/2", "viewer")).text
    assert "+ Hello {{customer.name}}." in shown and "- Hi {{customer.name}}." in shown
    restored = await pages.post(f"{HERE}/{MAIL.id}/restore", {"version": "1"}, "developer")
    assert "Version 3" in restored.notice and given(pages, MAIL.id).text == MAIL.text


async def test_a_refused_draft_says_why(pages: Pages, store: Store) -> None:
    refused = replace(MAIL, id="tpl_new", status="draft", refused_reason="Say who you are.")
    await set_up(store, ("template", refused.id, refused, TEAM))
    for place in ("", "/edit"):
        shown = await pages.get(f"{HERE}/tpl_new{place}", "developer")
        assert "An operator refused this draft" in shown.text and "Say who you are." in shown.text
    decided = await pages.get(f"{HERE}/tpl_new", OPERATOR)
    assert "Approve" in decided.text and "Refuse it" not in decided.text


async def test_what_meta_says_of_a_template_is_shown(pages: Pages, store: Store) -> None:
    chat = Template(id="tpl_chat", team=TEAM, channel="whatsapp", name="parcel", body="Hi", category="UTILITY")
    told = UpstreamTemplate(team=TEAM, name="parcel", language="en", status="paused", reason="<b>FIRST_PAUSE", at=1)
    await set_up(store, ("template", chat.id, chat, TEAM), ("upstream_template", told.id, told, TEAM))
    shown = await pages.get(f"{HERE}/{chat.id}", "viewer")
    assert "Meta has paused this template (en)" in shown.text and "&lt;b&gt;FIRST_PAUSE" in shown.html
    assert "Paused by Meta" in (await pages.get(HERE, "viewer")).text
    await set_up(store, ("upstream_template", told.id, replace(told, status="approved", quality="green"), TEAM))
    shown = await pages.get(f"{HERE}/{chat.id}", "viewer")
    assert "Meta has" not in shown.text and "quality: green" in shown.text


LETTER = Layout(id="lay_letter", team=TEAM, name="Letter", html="<main>{{content}}</main>", text="-- {{content}}")
GERMAN = {"locales.de.subject": "Hallo", "locales.de.html": "", "locales.de.text": "Hallo {{name}}."}


async def test_each_language_has_its_tab_and_its_mistakes(pages: Pages) -> None:
    asked = await edit(pages, MAIL.id, "locale", add_locale="DE", text="Hi {{customer.name}}.", subject="Hello")
    assert asked.status == 200 and draft_of(pages, MAIL.id) is None
    assert 'value="de" id="shown-2" checked' in asked.html
    assert 'name="locales.de.text"' in asked.html and asked.html.count("Hi {{customer.name}}.</textarea>") == 2
    no_tag = await edit(pages, MAIL.id, "locale", add_locale="no tag", text=MAIL.text or "")
    assert no_tag.status == 400 and "is no language tag" in no_tag.text
    form = {"text": MAIL.text or "", "shown": ""}
    wrong = await edit(pages, MAIL.id, "draft", **form, **GERMAN | {"locales.de.text": "\n{{First name}}"})
    assert wrong.status == 400 and "Line 2: '{{First name}}' is not a placeholder" in wrong.text
    assert 'id="shown-2" checked' in wrong.html, "its tab is open"
    await edit(pages, MAIL.id, "draft", **form, **GERMAN)
    assert draft_of(pages, MAIL.id).locales == {"de": LocaleParts(subject="Hallo", text="Hallo {{customer.name}}.")}
    form |= {"id": MAIL.id, "variable.0": "name", "example.0": "Grace", "channel": "email", "subject": "Hello"}
    shown = await pages.post(f"{HERE}/preview", form | GERMAN | {"shown": "de"}, "developer")
    assert "Hallo Grace." in shown.text
    await edit(pages, MAIL.id, "draft", **form | dict.fromkeys(GERMAN, ""))
    assert draft_of(pages, MAIL.id).locales == {}, "cleared"


async def test_a_layout_is_chosen_and_stands_around_the_preview(pages: Pages, store: Store) -> None:
    assert 'name="layout"' not in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).html
    await set_up(store, ("layout", LETTER.id, LETTER, TEAM))
    assert '<option value="lay_letter">Letter' in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).html
    await edit(pages, MAIL.id, "publish", text=MAIL.text or "", layout=LETTER.id)
    assert given(pages, MAIL.id).layout == LETTER.id
    assert "-- Hi Grace." in (await pages.get(f"{HERE}/{MAIL.id}/preview", "developer")).text
    await edit(pages, MAIL.id, "publish", text="No select was sent")
    assert given(pages, MAIL.id).layout == LETTER.id
    await edit(pages, MAIL.id, "publish", text="Without", layout="")
    assert given(pages, MAIL.id).layout is None
    unknown = await edit(pages, MAIL.id, "publish", text="Without", layout="lay_none")
    assert unknown.status == 400 and "lay_none" in unknown.text


async def test_what_the_linter_says_stands_at_its_part(pages: Pages) -> None:
    await edit(pages, MAIL.id, "draft", text="", html="<p>\n<img src='https://a.test/b.png'></p>")
    shown = await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")
    assert 'data-problems="html"' in shown.html and "Line 2: a picture has no alt text" in shown.text
    assert 'data-problems="text"' in shown.html and "there is no text part" in shown.text
    framed = await pages.get(f"{HERE}/{MAIL.id}/preview?draft=yes", "developer")
    assert "html, line 2: a picture has no alt text" in framed.text


async def test_new_variables_have_a_guess(pages: Pages) -> None:
    asked = await edit(pages, MAIL.id, "publish", text="{{order.total}} {{customer_email}} {{whim}}")
    shown = dict(re.findall(r'name="example\.(\d)" value="([^"]*)"', asked.html))
    assert shown == {"0": "Grace", "1": "42.50", "2": "grace@example.com", "3": "", "4": ""}


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ("", "Green tea 42.50 Green tea 42.50"),
        ('[{"title": "Salt", "price": 3}]', "Salt 3"),
        ("[1]", "Green tea 42.50"),
    ],
)
async def test_a_list_is_shown_with_items(pages: Pages, store: Store, example: str, told: str) -> None:
    listed = replace(
        MAIL, text="{{#each customer.items}}{{item.title}} {{item.price}} {{else}}None{{/each}}", variables=("items",),
        shapes={"items": Shape(list=("title", "price"))}, examples={"items": example} if example else {},
    )  # fmt: skip
    await set_up(store, ("template", MAIL.id, listed, TEAM))
    assert told in (await pages.get(f"{HERE}/{MAIL.id}/preview", "developer")).text


async def test_what_has_no_example_is_a_chip(pages: Pages) -> None:
    form = {"channel": "email", "subject": "{{order}}", "text": "{{customer.whim}} {{name}}", "variable.0": "name"}
    form |= {"html": '<a href="https://a.test/{{whim}}" title="{{whim}}">{{whim}}</a> {{name}}', "example.0": "Grace"}
    shown = await pages.post(f"{HERE}/preview", form, "developer")
    assert '<code class="chip">order</code>' in shown.html and '<code class="chip">whim</code> Grace' in shown.html
    assert "&#34;https://a.test/whim&#34; title=&#34;whim&#34;&gt;&lt;span style" in shown.html
    assert "whim&lt;/span&gt;&lt;/a&gt; Grace" in shown.html
    assert """data-guesses=\'{"name": "Grace Hopper", "order": "4711", "whim": ""}\'""" in shown.html


ITEMS = "{{#each customer.items}}{{item.title}} {{item.price}} {{else}}None{{/each}}"


async def test_lists_and_lengths_are_declared_in_the_form(pages: Pages) -> None:
    asked = await edit(pages, MAIL.id, "publish", text=ITEMS)
    assert "New variable: items" in asked.text and 'name="fields.1" value="title, price"' in asked.html, "by itself"
    declared = {"text": ITEMS, "variable.1": "items", "most.1": "9", "length.1": "80", "length.0": "20", "do": "draft"}
    form = form_of(asked) | declared
    wrong = await pages.post(f"{HERE}/{MAIL.id}/edit", form | {"length.0": "many"}, "developer")
    assert wrong.status == 400 and 'value="many"' in wrong.html and "expected a whole number" in wrong.text
    saved = await pages.post(f"{HERE}/{MAIL.id}/edit", form, "developer")
    assert saved.headers["location"].endswith("?saved=yes")
    shapes = {"name": Shape(max_length=20), "items": Shape(list=("title", "price"), max=9, max_length=80)}
    assert draft_of(pages, MAIL.id).shapes == shapes
    shown = await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")
    assert "A list of title, price" in shown.text and "At most 20 characters" in shown.text
    await edit(pages, MAIL.id, "draft", text=ITEMS, **{"length.0": ""})
    assert list(draft_of(pages, MAIL.id).shapes) == ["items"], "cleared"


async def test_a_test_of_a_list_takes_its_items_as_json(pages: Pages, store: Store) -> None:
    listed = replace(MAIL, text=ITEMS, variables=("items",), shapes={"items": Shape(list=("title", "price"))})
    await set_up(store, ("template", MAIL.id, replace(listed, examples={}), TEAM))
    shown = await pages.get(f"{HERE}/{MAIL.id}/test", "developer")
    assert "&#34;title&#34;:&#34;Green tea&#34;" in shown.html
    assert "items" in (await pages.get(f"{HERE}/{MAIL.id}")).text
    form = {"to": "delivered@simulator.heliograph.dev", "value.items": "[1]"}
    assert "items[0] is not an object" in (await pages.post(f"{HERE}/{MAIL.id}/send", form, "developer")).text
