"""Templates: one audit entry per change, none without a change, and what is refused."""

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest, TemplateNotFound
from heliograph.domain.setup.records import Template
from heliograph.storage.store import Store
from heliograph.templates import service as templates
from heliograph.templates.policy.template_approvals import list_pending, revision_of
from tests.manage.conftest import ADA, list_entries

pytestmark = pytest.mark.anyio

MAIL = Template(id="tpl_mail", team="team_1", channel="email", name="Mail", subject="s", text="first")
SMS = Template(id="tpl_sms", team="team_1", channel="sms", name="Code", body="Hello", status="draft")


async def save(store: Store, new: Template, mark: str | None = None, *, by_operator: bool = False) -> bool:
    return await templates.save(store, ADA, new, revision=mark, by_operator=by_operator)


def current(store: Store, id_: str) -> Template:
    return templates.get(store.setup.current, None, id_)


async def test_template_change_writes_one_audit_entry(store: Store, teams: None) -> None:
    for _ in range(2):
        await save(store, MAIL)
    first = revision_of(current(store, MAIL.id))
    await save(store, replace(MAIL, text="second"), first)
    with pytest.raises(InvalidRequest, match="Someone changed this template"):
        await save(store, replace(MAIL, text="third"), first)
    for _ in range(2):
        await templates.restore(store, ADA, "team_1", MAIL.id, 1, by_operator=False)
    assert (current(store, MAIL.id).text, current(store, MAIL.id).version) == ("first", 3)
    for _ in range(2):
        await templates.archive(store, COMMAND_LINE, None, MAIL.id)
    for _ in range(2):
        await templates.unarchive(store, COMMAND_LINE, None, MAIL.id, by_operator=True)
    assert await list_entries(store, "team_1") == [
        ("command line", "template.unarchive", MAIL.id, ""),
        ("command line", "template.archive", MAIL.id, ""),
        ("usr_ada", "template.restore", MAIL.id, ""),
        ("usr_ada", "template.publish", MAIL.id, ""),
        ("usr_ada", "template.publish", MAIL.id, ""),
    ]


async def test_a_draft_is_refused_approved_or_discarded(store: Store, teams: None) -> None:
    await save(store, SMS)
    for _ in range(2):
        await templates.refuse(store, COMMAND_LINE, None, SMS.id, None, " Say more. ")
    assert current(store, SMS.id).refused_reason == "Say more."
    with pytest.raises(InvalidRequest, match="Set a price"):
        await templates.approve(store, COMMAND_LINE, None, SMS.id, None)
    with pytest.raises(InvalidRequest, match="was changed in the meantime"):
        await templates.approve(store, COMMAND_LINE, None, SMS.id, "another", {"price": "0.05"})
    await templates.approve(store, COMMAND_LINE, None, SMS.id, None, {"price": "0.05"})
    assert (current(store, SMS.id).status, current(store, SMS.id).price) == ("approved", 50_000)
    with pytest.raises(InvalidRequest, match="has no pending draft"):
        await templates.approve(store, COMMAND_LINE, None, SMS.id, None)
    await save(store, replace(SMS, id="tpl_other", category=None))  # at the price of its kind, so in use at once
    assert not await templates.discard(store, ADA, "team_1", "tpl_other")
    assert [(actor, action) for actor, action, _, _ in await list_entries(store, "team_1")] == [
        ("usr_ada", "template.publish"),
        ("command line", "template.approve"),
        ("command line", "template.refuse"),
        ("usr_ada", "template.submit"),
    ]


async def test_unsubmitted_draft_is_not_pending_until_it_is_published(store: Store, teams: None) -> None:
    await save(store, MAIL)
    draft = replace(MAIL, text="second")
    for _ in range(2):
        mark = revision_of(templates.draft_or_current(store.setup.current, current(store, MAIL.id)))
        await templates.save(store, ADA, draft, revision=mark, by_operator=False, publish=False)
    assert current(store, MAIL.id).text == "first", "what is in use stays"
    assert list_pending(store.setup.current) == [], "nobody is asked yet"
    with pytest.raises(InvalidRequest, match="has no pending draft"):
        await templates.approve(store, COMMAND_LINE, None, MAIL.id, None)
    with pytest.raises(InvalidRequest, match="was changed in the meantime"):
        await templates.publish(store, ADA, "team_1", MAIL.id, "another", by_operator=False)
    mark = revision_of(templates.draft_or_current(store.setup.current, current(store, MAIL.id)))
    assert await templates.publish(store, ADA, "team_1", MAIL.id, mark, by_operator=False)
    assert current(store, MAIL.id) == replace(MAIL, text="second", version=2)
    assert [(actor, action) for actor, action, _, _ in await list_entries(store, "team_1")] == [
        ("usr_ada", "template.publish"),
        ("usr_ada", "template.save"),
        ("usr_ada", "template.publish"),
    ]


async def test_sms_draft_published_by_its_team_waits_for_an_operator(store: Store, teams: None) -> None:
    await templates.save(store, ADA, SMS, revision=None, by_operator=False, publish=False)
    for text in ("more", "still more"):
        own = current(store, SMS.id)
        await templates.save(
            store, ADA, replace(own, body=text), revision=revision_of(own), by_operator=False, publish=False
        )
    assert (current(store, SMS.id).unfinished, current(store, SMS.id).version) == (True, 1)
    await templates.publish(store, ADA, "team_1", SMS.id, revision_of(current(store, SMS.id)), by_operator=False)
    (waiting,) = list_pending(store.setup.current)
    assert (waiting.template.body, waiting.template.status) == ("still more", "draft")
    await templates.approve(store, COMMAND_LINE, None, SMS.id, None, {"price": "0.05"})
    live = current(store, SMS.id)
    assert (live.status, live.version, live.unfinished) == ("approved", 1, False)


async def test_a_draft_that_is_discarded_is_gone(store: Store, teams: None) -> None:
    await save(store, SMS)
    assert await templates.discard(store, ADA, "team_1", SMS.id)
    with pytest.raises(TemplateNotFound):
        await templates.discard(store, ADA, "team_1", SMS.id)


async def test_template_of_another_team_is_not_found(store: Store, teams: None) -> None:
    await save(store, MAIL)
    for change in (templates.archive, templates.discard):
        with pytest.raises(TemplateNotFound):
            await change(store, ADA, "team_2", MAIL.id)
    with pytest.raises(TemplateNotFound, match="version 7"):
        await templates.restore(store, ADA, "team_1", MAIL.id, 7, by_operator=False)


@pytest.mark.parametrize(("prices", "param"), [({"price": "cheap"}, "price"), ({"prices": {"XX": "1"}}, "prices")])
async def test_template_prices_invalid_are_refused(
    store: Store, teams: None, prices: dict[str, str], param: str
) -> None:
    await save(store, SMS)
    with pytest.raises(InvalidRequest) as error:
        await templates.approve(store, ADA, "team_1", SMS.id, None, prices)
    assert error.value.param == param
