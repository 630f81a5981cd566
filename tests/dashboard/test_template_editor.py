"""The template editor without a browser: declared variables, error texts, kept input and publishing."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.setup.records import (
    Domain,
    Layout,
    LocaleParts,
    Platform,
    TeamRecord,
    Template,
    UpstreamTemplate,
    VariableType,
)
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.store import Store
from heliograph.templates.policy.template_quota import LENGTH_MAX_BY_MODE
from tests.dashboard.inside import OPERATOR, PageResult, Pages, write_records
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
    await write_records(store, team, *(("template", item.id, item, TEAM) for item in (MAIL, SMS)))
    return Pages(make_context(store, clock))


def read_form(shown: PageResult) -> dict[str, str]:
    """Return the form fields that a browser would submit."""
    fields = dict(re.findall(r'<input[^>]* name="([\w.]+)"[^>]* value="([^"]*)"', shown.html))
    return {name: value for name, value in fields.items() if name not in ("csrf", "free") and "optional" not in name}


def live_template(pages: Pages, id_: str) -> Template:
    return pages.setup.teams[TEAM].templates[id_]


def find_draft_template(pages: Pages, id_: str) -> Any:
    draft: Any = pages.setup.records.get(("template_draft", id_))
    return draft and draft.template


async def submit_editor(pages: Pages, id_: str, do: str, who: str = "developer", **fields: str) -> PageResult:
    form = read_form(await pages.get(f"{HERE}/{id_}/edit", who))
    return await pages.post(f"{HERE}/{id_}/edit", form | fields | {"do": do}, who)


async def test_template_draft_has_no_effect_until_published(pages: Pages) -> None:
    saved = await submit_editor(pages, MAIL.id, "draft", text="Hi {{customer.name}}, welcome.")
    assert saved.headers["location"] == f"{HERE}/{MAIL.id}/edit?saved=yes"
    assert live_template(pages, MAIL.id) == MAIL
    response = await pages.get(f"{HERE}/{MAIL.id}", "developer")
    assert "Draft, not published yet" in response.text and "Version 1 stays in use until then" in response.text
    assert "+ Hi {{customer.name}}, welcome." in response.text
    assert "Version 1 is in use" in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).text
    assert response.html.count('class="main"') == 1

    revision = re.findall(r'name="mark" value="(\w+)"', response.html)[0]
    published = await pages.post(f"{HERE}/{MAIL.id}/publish", {"mark": revision}, "developer")
    assert published.notice == "Published. Version 2 is in use."
    assert (live_template(pages, MAIL.id).version, find_draft_template(pages, MAIL.id)) == (2, None)


async def test_template_awaiting_approval_says_so(pages: Pages, store: Store) -> None:
    await write_records(store, ("platform", PLATFORM_ID, Platform(templates_need_approval=True), None))
    assert "Submit for approval" in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).text
    assert "Submit for approval" not in (await pages.get(f"{HERE}/{MAIL.id}/edit", OPERATOR)).text
    await submit_editor(pages, MAIL.id, "draft", text="Other")
    assert "Welcome" not in (await pages.get("/dashboard/operator/approvals", OPERATOR)).text
    submitted = await submit_editor(pages, MAIL.id, "publish", text="Other")
    assert submitted.notice == "Submitted. It takes effect once an operator approves it."
    assert "Waiting for approval" in (await pages.get(f"{HERE}/{MAIL.id}", "developer")).text
    assert "Welcome" in (await pages.get("/dashboard/operator/approvals", OPERATOR)).text
    await submit_editor(pages, MAIL.id, "draft", text="Better")
    assert "Welcome" not in (await pages.get("/dashboard/operator/approvals", OPERATOR)).text, "taken back"


async def test_new_variables_are_declared_and_need_examples(pages: Pages) -> None:
    response = await submit_editor(
        pages, MAIL.id, "publish", text="Hi {{customer.name}}, order {{order.id}} of {{day}}."
    )
    assert response.status == 200 and "New variables: order.id, day" in response.text
    assert 'name="variable.1" value="order.id"' in response.html and 'name="variable.2" value="day"' in response.html
    assert live_template(pages, MAIL.id) == MAIL, "not yet"
    words = {"text": "Hi {{customer.name}}, order {{order.id}} of {{day}}.", "do": "publish"}
    await pages.post(f"{HERE}/{MAIL.id}/edit", read_form(response) | words, "developer")
    template = live_template(pages, MAIL.id)
    assert template.text == "Hi {{customer.name}}, order {{order.id}} of {{day}}."
    assert template.variables == ("name", "order.id", "day")

    notice = (await submit_editor(pages, MAIL.id, "draft", text="{{code}}")).notice
    assert notice == "Draft saved. Added a variable: code. Add an example."
    assert find_draft_template(pages, MAIL.id).variables == ("name", "order.id", "day", "code")


async def test_all_template_errors_are_listed_and_preview_stays(pages: Pages) -> None:
    wrong = await submit_editor(pages, MAIL.id, "draft", subject="{{1}}", text="{{brand}} {{First name}} {{customer.x")
    assert wrong.status == 400
    for expected_text in (
        "use the variable's name, as in {{order.id}}",
        "say which, as in {{brand.name}}",
        "write {{first_name}}",
        "close it with }}",
    ):
        assert expected_text in wrong.text
    assert "{{brand}} {{First name}} {{customer.x</textarea>" in wrong.html, "what was typed stands there"
    assert "srcdoc=" in wrong.html and "&lt;body class" in wrong.html
    assert (live_template(pages, MAIL.id), find_draft_template(pages, MAIL.id)) == (MAIL, None)


async def test_concurrent_template_edit_is_reported_and_keeps_input(pages: Pages) -> None:
    begun = read_form(await pages.get(f"{HERE}/{MAIL.id}/edit", "developer"))
    await submit_editor(pages, MAIL.id, "draft", "owner", text="Theirs")
    for do in ("draft", "publish"):
        response = await pages.post(f"{HERE}/{MAIL.id}/edit", begun | {"text": "Mine", "do": do}, "developer")
        assert response.status == 409
        assert "usr_owner changed this template while you were editing" in response.text
        assert "- Theirs" in response.text and "+ Mine" in response.text and ">Mine</textarea>" in response.html
        assert find_draft_template(pages, MAIL.id).text == "Theirs"
    await pages.post(f"{HERE}/{MAIL.id}/edit", read_form(response) | {"text": "Mine", "do": "draft"}, "developer")
    assert find_draft_template(pages, MAIL.id).text == "Mine", "seen, and meant"


@pytest.mark.parametrize("place", ["new", MAIL.id + "/edit"])
async def test_expired_editor_form_keeps_input(pages: Pages, place: str) -> None:
    form = {"channel": "email", "name": "Mine", "subject": "s", "text": "A <long> text", "csrf": "of another session"}
    response = await pages.post(f"{HERE}/{place}", form, "developer")
    assert response.status == 403
    assert "had expired, so nothing was saved" in response.text and ">A &lt;long&gt; text</textarea>" in response.html
    assert 'name="csrf" value="csrf"' in response.html
    assert len(pages.setup.teams[TEAM].templates) == 2 and find_draft_template(pages, MAIL.id) is None
    assert (await pages.post(f"{HERE}/{place}", form, "viewer")).status == 403
    assert "long" not in (await pages.post(f"{HERE}/{place}", form, "viewer")).text


async def test_deleted_template_is_saved_as_new(pages: Pages) -> None:
    begun = read_form(await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")) | {"text": "Mine"}
    await pages.post(f"{HERE}/{MAIL.id}/archive", {}, "owner")
    response = await pages.post(f"{HERE}/{MAIL.id}/edit", begun, "developer")
    assert response.status == 400 and "Save it as a new template" in response.text
    assert ">Mine</textarea>" in response.html and f'action="{HERE}/new"' in response.html
    expired = await pages.post(f"{HERE}/{MAIL.id}/edit", begun | {"csrf": "of another session"}, "developer")
    assert ">Mine</textarea>" in expired.html and f'action="{HERE}/new"' in expired.html


async def test_template_priority_is_saved_and_shown(pages: Pages) -> None:
    await submit_editor(pages, SMS.id, "publish", body="Your parcel is here.", priority="bulk")
    assert live_template(pages, SMS.id).priority == "bulk"
    assert "Priority Bulk" in (await pages.get(f"{HERE}/{SMS.id}")).text
    assert '<option value="bulk" selected>' in (await pages.get(f"{HERE}/{SMS.id}/edit", "developer")).html


async def test_copied_template_is_new_template(pages: Pages) -> None:
    response = await pages.get(f"{HERE}/new?from={MAIL.id}", "developer")
    assert 'value="Copy of Welcome"' in response.html and 'value="Grace"' in response.html
    await pages.post(f"{HERE}/new", read_form(response) | {"text": "Hi {{customer.name}}.", "do": "draft"}, "developer")
    (copy,) = (t for t in pages.setup.teams[TEAM].templates.values() if t.name == "Copy of Welcome")
    assert (copy.status, copy.version, copy.examples) == ("draft", 1, {"name": "Grace"})
    assert (await pages.get(f"{HERE}/new?from=tpl_nothing", "developer")).status == 404


async def test_template_over_quota_is_refused_and_keeps_input(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LENGTH_MAX_BY_MODE, "live", 10)
    response = await submit_editor(pages, MAIL.id, "draft", text="Good day, {{customer.name}}.")
    assert "the maximum is 10" in response.html and "Good day, {{customer.name}}." in response.html
    assert find_draft_template(pages, MAIL.id) is None


async def test_preview_marks_ucs2_characters_and_shows_price(pages: Pages) -> None:
    body = "It’s “here”. " + "x" * 60
    form = {"id": SMS.id, "channel": "sms", "name": "Parcel", "body": body}
    response = await pages.post(f"{HERE}/preview", form, "developer")
    assert "<mark title" in response.html and ">’</mark>" in response.html
    assert "’ right single quotation mark, “ left double quotation mark" in response.text
    assert "takes 1 segment instead of 2" in response.text
    assert "Length 73 of 140 characters" in response.text
    assert "GB, IE 0.07 USD 2 × 0.035" in response.text.replace("\xa0", " ")
    assert "All other countries 0.09 USD 2 × 0.045" in response.text.replace("\xa0", " ")
    assert "<script" not in response.html


async def test_preview_reports_unknown_brand_placeholder(pages: Pages) -> None:
    form = {"channel": "sms", "name": "A", "body": "{{brand.nam}} {{note}}"}
    response = await pages.post(f"{HERE}/preview", form, "developer")
    assert "{{brand.nam}} stays empty" in response.text
    assert 'data-used="note"' in response.html


async def test_template_list_is_searched_and_shows_drafts(pages: Pages) -> None:
    await submit_editor(pages, MAIL.id, "draft", text="Other")
    response = await pages.get(f"{HERE}?q=welc&status=draft", "viewer")
    assert "Welcome" in response.text and "Parcel" not in response.text and "In use Draft" in response.text
    assert "No matching templates" in (await pages.get(f"{HERE}?q=nothing", "viewer")).text
    assert "New template" not in response.text
    choice = await pages.get(f"{HERE}/new", "developer")
    assert all(f"/new?channel={channel}" in choice.html for channel in ("email", "sms", "whatsapp"))


async def test_template_versions_and_test_pages_are_shown(pages: Pages) -> None:
    assert "Version 1 In use" in (await pages.get(f"{HERE}/{MAIL.id}/versions", "viewer")).text
    response = await pages.get(f"{HERE}/{MAIL.id}/test", "developer")
    assert 'value="Grace"' in response.html and response.html.count('class="main"') == 1
    assert (await pages.get(f"{HERE}/{MAIL.id}/test", "viewer")).status == 403
    assert "Send test" not in (await pages.get(f"{HERE}/{MAIL.id}/versions", "viewer")).text


async def test_template_version_is_restored(pages: Pages) -> None:
    await submit_editor(pages, MAIL.id, "publish", text="Hello {{customer.name}}.")
    response = (await pages.get(f"{HERE}/{MAIL.id}/versions/2", "viewer")).text
    assert "+ Hello {{customer.name}}." in response and "- Hi {{customer.name}}." in response
    restored = await pages.post(f"{HERE}/{MAIL.id}/restore", {"version": "1"}, "developer")
    assert "Version 3" in restored.notice and live_template(pages, MAIL.id).text == MAIL.text


async def test_refused_draft_shows_reason(pages: Pages, store: Store) -> None:
    refused = replace(MAIL, id="tpl_new", status="draft", refused_reason="Say who you are.")
    await write_records(store, ("template", refused.id, refused, TEAM))
    for suffix in ("", "/edit"):
        response = await pages.get(f"{HERE}/tpl_new{suffix}", "developer")
        assert "An operator refused this draft" in response.text and "Say who you are." in response.text
    decided = await pages.get(f"{HERE}/tpl_new", OPERATOR)
    assert "Approve" in decided.text and "<summary>Refuse" not in decided.text


async def test_meta_status_of_whatsapp_template_is_shown(pages: Pages, store: Store) -> None:
    chat = Template(id="tpl_chat", team=TEAM, channel="whatsapp", name="parcel", body="Hi", category="UTILITY")
    meta_template = UpstreamTemplate(
        team=TEAM, name="parcel", language="en", status="paused", reason="<b>FIRST_PAUSE", at=1
    )
    await write_records(
        store, ("template", chat.id, chat, TEAM), ("upstream_template", meta_template.id, meta_template, TEAM)
    )
    response = await pages.get(f"{HERE}/{chat.id}", "viewer")
    assert "Meta has paused this template (en)" in response.text and "&lt;b&gt;FIRST_PAUSE" in response.html
    assert "Paused by Meta" in (await pages.get(HERE, "viewer")).text
    await write_records(
        store, ("upstream_template", meta_template.id, replace(meta_template, status="approved", quality="green"), TEAM)
    )
    response = await pages.get(f"{HERE}/{chat.id}", "viewer")
    assert "Meta has" not in response.text and "quality: green" in response.text


LETTER = Layout(id="lay_letter", team=TEAM, name="Letter", html="<main>{{content}}</main>", text="-- {{content}}")
GERMAN = {"locales.de.subject": "Hallo", "locales.de.html": "", "locales.de.text": "Hallo {{name}}."}


async def test_each_template_language_has_tab_and_errors(pages: Pages) -> None:
    response = await submit_editor(
        pages, MAIL.id, "locale", add_locale="DE", text="Hi {{customer.name}}.", subject="Hello"
    )
    assert response.status == 200 and find_draft_template(pages, MAIL.id) is None
    assert 'value="de" id="shown-2" checked' in response.html
    assert 'name="locales.de.text"' in response.html and response.html.count("Hi {{customer.name}}.</textarea>") == 2
    no_tag = await submit_editor(pages, MAIL.id, "locale", add_locale="no tag", text=MAIL.text or "")
    assert no_tag.status == 400 and "is no language tag" in no_tag.text
    form = {"text": MAIL.text or "", "shown": ""}
    wrong = await submit_editor(pages, MAIL.id, "draft", **form, **GERMAN | {"locales.de.text": "\n{{First name}}"})
    assert wrong.status == 400 and "Line 2: '{{First name}}' is not a placeholder" in wrong.text
    assert 'id="shown-2" checked' in wrong.html, "its tab is open"
    await submit_editor(pages, MAIL.id, "draft", **form, **GERMAN)
    assert find_draft_template(pages, MAIL.id).locales == {"de": LocaleParts(subject="Hallo", text="Hallo {{name}}.")}
    form |= {"id": MAIL.id, "variable.0": "name", "example.0": "Grace", "channel": "email", "subject": "Hello"}
    shown = await pages.post(f"{HERE}/preview", form | GERMAN | {"shown": "de"}, "developer")
    assert "Hallo Grace." in shown.text
    await submit_editor(pages, MAIL.id, "draft", **form | dict.fromkeys(GERMAN, ""))
    assert find_draft_template(pages, MAIL.id).locales == {}, "cleared"


async def test_selected_layout_wraps_preview(pages: Pages, store: Store) -> None:
    assert 'name="layout"' not in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).html
    await write_records(store, ("layout", LETTER.id, LETTER, TEAM))
    assert '<option value="lay_letter">Letter' in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).html
    await submit_editor(pages, MAIL.id, "publish", text=MAIL.text or "", layout=LETTER.id)
    assert live_template(pages, MAIL.id).layout == LETTER.id
    assert "-- Hi Grace." in (await pages.get(f"{HERE}/{MAIL.id}/preview", "developer")).text
    await submit_editor(pages, MAIL.id, "publish", text="No select was sent")
    assert live_template(pages, MAIL.id).layout == LETTER.id
    await submit_editor(pages, MAIL.id, "publish", text="Without", layout="")
    assert live_template(pages, MAIL.id).layout is None
    unknown = await submit_editor(pages, MAIL.id, "publish", text="Without", layout="lay_none")
    assert unknown.status == 400 and "lay_none" in unknown.text


async def test_template_page_shows_languages_and_layout(pages: Pages, store: Store) -> None:
    german = replace(MAIL, layout=LETTER.id, locales={"de": LocaleParts(subject="Hallo", text="Hallo {{name}}.")})
    await write_records(store, ("layout", LETTER.id, LETTER, TEAM), ("template", MAIL.id, german, TEAM))
    page = await pages.get(f"{HERE}/{MAIL.id}?locale=de", "developer")
    assert "en, de" in page.text and f'/layouts/{LETTER.id}">Letter' in page.html
    assert '"locale": "de"' in page.text  # of the curl command
    assert f"{MAIL.id}/preview?locale=de" in page.html
    assert "Hallo Grace." in (await pages.get(f"{HERE}/{MAIL.id}/preview?locale=de", "developer")).text
    assert "Hi Grace." in (await pages.get(f"{HERE}/{MAIL.id}/preview?locale=", "developer")).text
    domain = Domain(id="dom_1", team=TEAM, name="acme.test", brand="Acme", verified=True, approved=True)
    await write_records(store, ("domain", domain.id, domain, TEAM))
    form = {"to": "delivered@simulator.test", "from": "a@acme.test", "value.name": "Ada", "locale": "de"}
    sent = await pages.post(f"{HERE}/{MAIL.id}/send", form, "developer")
    assert "Hallo" in (await pages.get(sent.headers["location"], "developer")).text


async def test_linter_warnings_are_shown_at_their_field(pages: Pages) -> None:
    await submit_editor(pages, MAIL.id, "draft", text="", html="<p>\n<img src='https://a.test/b.png'></p>")
    response = await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")
    assert 'data-problems="html"' in response.html and "Line 2: an image has no alt text" in response.text
    assert 'data-problems="text"' in response.html and "no plain text" in response.text
    framed = await pages.get(f"{HERE}/{MAIL.id}/preview?draft=yes", "developer")
    assert "html, line 2: an image has no alt text" in framed.text


async def test_new_variables_get_guessed_examples(pages: Pages) -> None:
    response = await submit_editor(pages, MAIL.id, "publish", text="{{order.total}} {{customer_email}} {{whim}}")
    shown = dict(re.findall(r'name="example\.(\d)" value="([^"]*)"', response.html))
    assert shown == {"0": "Grace", "1": "42.50", "2": "grace@example.com", "3": "", "4": ""}


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ("", "Green tea 42.50 Tea cup 7.90"),
        ('[{"title": "Salt", "price": 3}]', "Salt 3"),
        ("[1]", "Green tea 42.50"),
    ],
)
async def test_list_variable_preview_shows_items(pages: Pages, store: Store, example: str, told: str) -> None:
    listed = replace(
        MAIL, text="{{#each customer.items}}{{item.title}} {{item.price}} {{else}}None{{/each}}", variables=("items",),
        shapes={"items": VariableType(list=("title", "price"))}, examples={"items": example} if example else {},
    )  # fmt: skip
    await write_records(store, ("template", MAIL.id, listed, TEAM))
    assert told in (await pages.get(f"{HERE}/{MAIL.id}/preview", "developer")).text


async def test_variable_without_example_is_shown_as_chip(pages: Pages) -> None:
    form = {"channel": "email", "subject": "{{order}}", "text": "{{customer.whim}} {{name}}", "variable.0": "name"}
    form |= {"html": '<a href="https://a.test/{{whim}}" title="{{whim}}">{{whim}}</a> {{name}}', "example.0": "Grace"}
    response = await pages.post(f"{HERE}/preview", form, "developer")
    assert "Subject 4711" in response.text and '<code class="chip">{{whim}}</code> Grace' in response.html
    assert "&#34;https://a.test/whim&#34; title=&#34;whim&#34;&gt;&lt;span style" in response.html
    assert "{{whim}}&lt;/span&gt;&lt;/a&gt; Grace" in response.html
    assert """data-guesses=\'{"name": "Grace Hopper", "order": "4711", "whim": ""}\'""" in response.html


ITEMS = "{{#each customer.items}}{{item.title}} {{item.price}} {{else}}None{{/each}}"


async def test_preview_without_script_guesses_values_of_new_variables(pages: Pages) -> None:
    form = {"channel": "sms", "name": "Parcel", "body": "Hi {{name}}: {{#each items}}{{title}}, {{/each}}{{colour}}"}
    response = await pages.post(f"{HERE}/preview", form, "developer")
    assert "Hi Grace Hopper: Green tea, Tea cup, colour" in response.text


async def test_generated_list_items_differ(pages: Pages) -> None:
    form = {"channel": "sms", "name": "Order", "body": "{{#each items}}{{colour}} {{price|money:EUR}}; {{/each}}"}
    assert "colour 1 €42.50; colour 2 €7.90;" in (await pages.post(f"{HERE}/preview", form, "developer")).text


async def test_list_and_length_are_declared_in_editor_form(pages: Pages) -> None:
    response = await submit_editor(pages, MAIL.id, "publish", text=ITEMS)
    assert "New variable: items" in response.text and 'name="fields.1" value="title, price"' in response.html, (
        "by itself"
    )
    declared = {"text": ITEMS, "variable.1": "items", "most.1": "9", "length.1": "80", "length.0": "20", "do": "draft"}
    form = read_form(response) | declared
    wrong = await pages.post(f"{HERE}/{MAIL.id}/edit", form | {"length.0": "many"}, "developer")
    assert wrong.status == 400 and 'value="many"' in wrong.html and "expected a whole number" in wrong.text
    saved = await pages.post(f"{HERE}/{MAIL.id}/edit", form, "developer")
    assert saved.headers["location"].endswith("?saved=yes")
    shapes = {"name": VariableType(max_length=20), "items": VariableType(list=("title", "price"), max=9, max_length=80)}
    assert find_draft_template(pages, MAIL.id).shapes == shapes
    shown = await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")
    assert "List of title, price" in shown.text and "Up to 20 characters" in shown.text
    await submit_editor(pages, MAIL.id, "draft", text=ITEMS, **{"length.0": ""})
    assert list(find_draft_template(pages, MAIL.id).shapes) == ["items"], "cleared"


async def test_test_send_of_list_takes_json_items(pages: Pages, store: Store) -> None:
    listed = replace(MAIL, text=ITEMS, variables=("items",), shapes={"items": VariableType(list=("title", "price"))})
    await write_records(store, ("template", MAIL.id, replace(listed, examples={}), TEAM))
    response = await pages.get(f"{HERE}/{MAIL.id}/test", "developer")
    assert "&#34;title&#34;:&#34;Green tea&#34;" in response.html
    assert "items" in (await pages.get(f"{HERE}/{MAIL.id}")).text
    form = {"to": "delivered@simulator.heliograph.dev", "value.items": "[1]"}
    assert "items[0] is not an object" in (await pages.post(f"{HERE}/{MAIL.id}/send", form, "developer")).text
