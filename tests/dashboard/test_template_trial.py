"""Trying a template's draft on its recent sends: what fails, grows or changes, and that nothing is stored or sent."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.dashboard.views import template_trial
from heliograph.domain.setup.records import TeamRecord, Template
from heliograph.storage.search.message_search import Search
from heliograph.storage.store import Store
from heliograph.templates.policy.trial import try_draft
from tests.dashboard.inside import PageResult, Pages, write_records
from tests.storage.test_idempotency import make_context

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme/templates"
MAIL = Template(
    id="tpl_mail", team=TEAM, channel="email", name="Welcome", status="approved", version=1, subject="Hello",
    text="Hi {{name}}.\nBye.", html="<p>Hi {{name}}</p>", variables=("name", "gift"), optional=("gift",),
)  # fmt: skip
SMS = Template(
    id="tpl_sms", team=TEAM, channel="sms", name="Parcel", status="approved", version=1, price=45_000,
    body="Your parcel {{parcel}} is here.", variables=("parcel",),
)  # fmt: skip


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    team = ("team", TEAM, TeamRecord(ref=1, id=TEAM, name="Acme"), TEAM)
    await write_records(store, team, *(("template", item.id, item, TEAM) for item in (MAIL, SMS)))
    return Pages(make_context(store, clock))


async def send(pages: Pages, template: Template, to: str, **values: str) -> None:
    form = {"to": to} | {f"value.{name}": value for name, value in values.items()}
    sent = await pages.post(f"{HERE}/{template.id}/send", form, "developer")
    assert sent.status == 303, sent.text


async def try_text(pages: Pages, template: Template, who: str = "developer", **fields: str) -> PageResult:
    names = {f"variable.{number}": name for number, name in enumerate(template.variables)}
    optional = {
        f"optional.{number}": "yes" for number, name in enumerate(template.variables) if name in template.optional
    }
    texts = {part: getattr(template, part) or "" for part in ("subject", "html", "text", "body")}
    form = {"name": template.name, "channel": template.channel, "do": "try", **texts, **names, **optional, **fields}
    return await pages.post(f"{HERE}/{template.id}/edit", form, who)


@pytest.mark.anyio
async def test_draft_is_tried_with_the_variables_of_recent_sends(pages: Pages, store: Store) -> None:
    for name in ("Ada", "<b>Bob</b>"):
        await send(pages, MAIL, "delivered@simulator.test", name=name)
    before = await store.messages.search(1, Search(limit=9)), pages.setup.version
    same = await try_text(pages, MAIL)
    assert same.status == 200
    assert "0 sends would fail, 0 would need more segments, 0 would read differently, 2 would stay" in same.text
    changed = await try_text(pages, MAIL, text="Dear {{name}}.\nBye.")
    assert "2 would read differently, 0 would stay the same. Nothing was saved or sent." in changed.text
    assert "- Hi <b>Bob</b>. + Dear <b>Bob</b>." in changed.text and "<b>Bob" not in changed.html
    assert 'name="text"' in changed.html and "Dear {{name}}" in changed.text  # the draft is still in the editor
    assert (await store.messages.search(1, Search(limit=9)), pages.setup.version) == before


@pytest.mark.anyio
async def test_draft_with_a_new_variable_fails_recent_sends(pages: Pages) -> None:
    await send(pages, MAIL, "delivered@simulator.test", name="Ada")
    shown = await try_text(pages, MAIL, text="Hi {{name}}, order {{order}}.")
    assert "1 send would fail" in shown.text and "needs these variables: order" in shown.text


@pytest.mark.anyio
async def test_draft_of_an_sms_lists_sends_that_grow_by_a_segment(pages: Pages) -> None:
    await send(pages, SMS, "+15005550006", parcel="7")
    await send(pages, SMS, "+15005550006", parcel="7" * 30)
    filler = "Your parcel {{parcel}} is here. " + "x" * 110
    shown = await try_text(pages, SMS, body=filler)
    assert "1 would need more segments, 1 would read differently" in shown.text
    assert "1 → 2 segments" in shown.text


@pytest.mark.anyio
async def test_sends_without_kept_content_are_counted_apart(
    pages: Pages, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(pages, MAIL, "delivered@simulator.test", name="Ada")
    await send(pages, MAIL, "delivered@simulator.test", name="Bob")
    newest, _ = (await store.messages.search(1, Search(limit=2))).rows
    await store.database.write(lambda tx: tx.run("purge_contents", messages=[(newest.key,)]))
    shown = await try_text(pages, MAIL)
    assert "last 1 send " in shown.text and "1 send could not be tried" in shown.text
    monkeypatch.setattr(template_trial, "OCTETS_MAX", 0)
    assert "2 sends could not be tried" in (await try_text(pages, MAIL)).text


@pytest.mark.anyio
async def test_only_editors_try_drafts(pages: Pages) -> None:
    assert (await try_text(pages, MAIL, "viewer")).status == 403
    broken = await try_text(pages, MAIL, text="{{#if gift}}")
    assert broken.status == 400 and "Your draft with the last" not in broken.text
    assert "Try on recent sends" in (await pages.get(f"{HERE}/{MAIL.id}/edit", "developer")).text
    assert "Try on recent sends" not in (await pages.get(f"{HERE}/new?channel=sms", "developer")).text


def test_trial_of_a_send_that_the_template_in_use_would_refuse_shows_the_change() -> None:
    result = try_draft(MAIL, SMS, {"name": "Ada"}, locale=None, brand={"name": "Acme", "domain": "a.test"}, layouts={})
    assert (result.result, result.part, result.before, result.after) == ("changes", "subject", "", "Hello")


def test_trial_shows_the_difference_of_a_long_line() -> None:
    """HTML of a mail builder is one line."""
    live = replace(MAIL, html="<p>" + "x" * 900 + " Hi {{name}}.</p>")
    draft = replace(live, html="<p>" + "x" * 900 + " Dear {{name}}.</p>")
    brand = {"name": "Acme", "domain": "a.test"}
    result = try_draft(draft, live, {"name": "Ada"}, locale=None, brand=brand, layouts={})
    assert (result.part, result.before[0], result.after[0]) == ("html", "…", "…")
    assert result.before.endswith("xx Hi Ada.</p>") and result.after.endswith("xx Dear Ada.</p>")
    assert len(result.before) < 250
