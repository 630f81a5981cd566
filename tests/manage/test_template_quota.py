"""The total size of a team's templates and layouts is limited, because every process holds them in memory."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.refusals import InvalidTemplate
from heliograph.domain.setup.records import Layout, Template
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.store import Store
from heliograph.templates import layout_service as layouts
from heliograph.templates import service as templates
from heliograph.templates.policy import template_quota
from heliograph.templates.policy.template_approvals import revision_of
from tests.manage.conftest import ADA
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

KEY = Actor(kind="key", id="abcdefghij")
MAIL = Template(id="tpl_mail", team="team_1", channel="email", name="Mail", subject="s", text="x" * 1000)
OLD = replace(MAIL, id="tpl_old", status="archived")
LAYOUT = Layout(id="lay_1", team="team_1", name="Letter", text="{{content}}")


async def save(store: Store, actor: Actor, publish: bool) -> bool:
    return await templates.save(store, actor, MAIL, revision=None, by_operator=False, publish=publish)


async def write(store: Store) -> bool:
    fields = {"subject": "s", "text": "x" * 1000}
    return await templates.save_proposed(
        store, KEY, templates.ProposedChange(template=replace(MAIL, text=None), is_new=True, fields=fields)
    )


WAYS: dict[str, Callable[[Store], Awaitable[bool]]] = {
    "saved by a person": lambda store: save(store, ADA, publish=True),
    "saved as a draft": lambda store: save(store, KEY, publish=False),
    "written by API": write,
    "a layout": lambda store: layouts.save(store, KEY, LAYOUT, {"text": "{{content}}" + "x" * 1000}),
}


@pytest.fixture(autouse=True)
async def _old(store: Store, teams: None) -> None:
    await set_up(store, rows=[to_row("template", OLD.id, OLD, "team_1")])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("length", "texts", "code"), [(1500, 500, "too_large"), (9000, 1, "too_many")])
async def test_template_above_the_quota_is_refused(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Store], Awaitable[bool]],
    length: int,
    texts: int,
    code: str,
) -> None:
    monkeypatch.setitem(template_quota.LENGTH_MAX_BY_MODE, "sandbox", length)
    monkeypatch.setattr(template_quota, "TEMPLATES_MAX", texts)
    before = store.setup.current.records
    with pytest.raises(InvalidTemplate, match="Discard unused drafts") as error:
        await way(store)
    assert [item["code"] for item in (error.value.details or {})["problems"]] == [code]
    assert store.setup.current.records == before


async def test_drafts_count_toward_the_quota_until_they_are_discarded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(template_quota.LENGTH_MAX_BY_MODE, "sandbox", 5000)
    await save(store, ADA, publish=True)
    for id_ in (MAIL.id, "tpl_new"):
        draft = replace(MAIL, id=id_, text="y" * 1000)
        await templates.save(store, KEY, draft, revision=None, by_operator=False, publish=False)
    with pytest.raises(InvalidTemplate):
        await layouts.save(store, KEY, LAYOUT, {"text": "{{content}}" + "x" * 1000})
    await templates.discard(store, KEY, "team_1", "tpl_new")
    assert await layouts.save(store, KEY, LAYOUT, {"text": "{{content}}" + "x" * 1000})
    assert await store.versions.list("tpl_new") == []


async def test_a_team_above_its_limit_may_shorten_publish_and_archive(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(store, KEY, publish=False)
    monkeypatch.setitem(template_quota.LENGTH_MAX_BY_MODE, "sandbox", 10)
    now = templates.get(store.setup.current, "team_1", MAIL.id)
    assert await templates.save(
        store, KEY, replace(now, text="short"), revision=revision_of(now), by_operator=False, publish=False
    )
    shorter = templates.get(store.setup.current, "team_1", MAIL.id)
    assert await templates.publish(store, KEY, "team_1", MAIL.id, revision_of(shorter), by_operator=False)
    assert await templates.archive(store, KEY, "team_1", MAIL.id)


async def test_the_command_line_may_add_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_quota, "TEMPLATES_MAX", 0)
    assert await save(store, COMMAND_LINE, publish=True)
