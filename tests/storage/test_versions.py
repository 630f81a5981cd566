"""Versions of templates are stored with the change that creates them, whoever makes it."""

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import Actor, AuditEntry
from heliograph.domain.setup.records import Layout, Template
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store
from heliograph.templates.store import PAGE_SIZE
from tests.setup_helpers import SET_UP, set_up

ADA = Actor(kind="person", id="usr_a")

pytestmark = pytest.mark.anyio


def template(version: int, body: str, name: str = "Parcel") -> Template:
    return Template(id="tpl_x", team="team_a", channel="sms", name=name, version=version, body=body)


async def put(store: Store, *templates: Template, audit: AuditEntry = SET_UP) -> None:
    for item in templates:
        rows = [to_row("template", item.id, item, item.team)]
        await store.setup.change(lambda _, __, rows=rows: SetupChange(rows=rows, audit=audit))  # type: ignore[misc]


async def test_each_template_version_stays_readable(store: Store) -> None:
    await put(store, template(1, "first"), template(2, "second"))
    listed = await store.versions.list("tpl_x")
    assert [(line.version, line.person) for line in listed] == [(2, "command line"), (1, "command line")]
    assert all(line.at for line in listed)
    old = await store.versions.find_template("tpl_x", 1)
    assert old == template(1, "first")
    assert await store.versions.find_template("tpl_x", 3) is None


async def test_change_without_a_new_version_keeps_its_author(store: Store) -> None:
    await put(store, template(1, "first"))
    await put(
        store,
        template(1, "first", name="Other"),
        audit=ADA.audit_entry(1, "a", "b"),
    )
    (line,) = await store.versions.list("tpl_x")
    assert line.person == "command line"
    result = await store.versions.find_template("tpl_x", 1)
    assert result and result.name == "Other"


async def test_version_date_is_its_publication(store: Store) -> None:
    draft = replace(template(1, "first"), status="draft")
    await put(store, draft, audit=SET_UP)
    await put(store, template(1, "first"), audit=ADA.audit_entry(1, "a", "b"))
    await put(store, template(1, "first", name="Other"), audit=SET_UP)
    (line,) = await store.versions.list("tpl_x")
    assert line.person == "usr_a"


async def test_refusing_a_draft_does_not_change_its_author(store: Store) -> None:
    draft = replace(template(1, "first"), status="draft")
    await put(store, draft)
    await put(store, replace(draft, refused_reason="Say more."), audit=ADA.audit_entry(1, "a", "b"))
    (line,) = await store.versions.list("tpl_x")
    assert line.person == "command line"
    await put(store, replace(draft, refused_reason="Say more.", unfinished=True), audit=ADA.audit_entry(1, "a", "b"))
    (line,) = await store.versions.list("tpl_x")
    assert line.person == "usr_a"


async def test_version_author_is_the_actor_of_the_audit_entry(store: Store) -> None:
    await put(store, template(1, "first"), audit=ADA.audit_entry(1, "a", "b"))
    (line,) = await store.versions.list("tpl_x")
    assert line.person == "usr_a"


async def test_change_that_raises_stores_no_version(store: Store) -> None:
    def decide(_: Setup, __: int) -> SetupChange:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        await store.setup.change(decide)
    assert await store.versions.list("tpl_x") == []


async def test_versions_are_listed_page_by_page(store: Store) -> None:
    many = [template(n, f"body {n}") for n in range(1, PAGE_SIZE + 3)]
    await set_up(store, rows=[to_row("template", item.id, item, item.team) for item in many[-1:]])
    await put(store, *many[:-1])
    first = await store.versions.list("tpl_x")
    assert [line.version for line in first] == list(range(PAGE_SIZE + 2, 1, -1))
    rest = await store.versions.list("tpl_x", first[-2].version)
    assert [line.version for line in rest] == [2, 1]


async def test_layout_change_stores_a_version(store: Store) -> None:
    first = Layout(id="lay_x", team="team_a", name="L", text="{{content}}")
    for item in (first, replace(first, version=2, text="{{content}}!")):
        rows = [to_row("layout", item.id, item, item.team)]
        await store.setup.change(lambda _, __, rows=rows: SetupChange(rows=rows, audit=SET_UP))  # type: ignore[misc]
    assert [line.version for line in await store.versions.list("lay_x")] == [2, 1]
    assert await store.versions.find_layout("lay_x", 1) == first


async def test_newest_versions_are_kept_until_the_template_is_deleted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.templates.store.VERSIONS_MAX", 2)
    await put(store, *(template(n, f"body {n}") for n in range(1, 5)))
    assert [line.version for line in await store.versions.list("tpl_x")] == [4, 3]
    gone = [to_row("template", "tpl_x", None, "team_a")]
    await store.setup.change(lambda _, __: SetupChange(rows=gone, audit=SET_UP))
    assert await store.versions.list("tpl_x") == []
