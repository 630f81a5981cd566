"""Restrictions of API keys on the keys pages: set when a key is created, shown with what is left of its limits."""

import re

import pytest

from heliograph.dashboard.restriction_texts import describe_restrictions
from heliograph.domain.setup.key_restrictions import restrictions_revision
from heliograph.domain.setup.records import Domain, KeyRestrictions, TeamRecord
from heliograph.storage.audit import NEWEST, AuditFilter
from heliograph.storage.requests import LoggedRequest
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import PageResult, Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
KEYS = "/dashboard/teams/team_acme/keys"


async def make_pages(store: Store, clock: TestClock) -> Pages:
    await write_records(store, ("team", "team_acme", TeamRecord(ref=1, id="team_acme", name="Acme"), "team_acme"))
    return Pages(make_context(store, clock))


async def test_key_is_created_with_restrictions_and_shows_them(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    form = {
        "name": "agent",
        "send": "yes",
        "recipients": "*@Example.com, +49*",
        "per_day": "5",
        "spend_per_day": "1.50",
    }
    assert (await pages.post(KEYS, form)).status == 200
    (caller,) = store.setup.current.callers.values()
    expected = KeyRestrictions(recipients=("*@example.com", "+49*"), per_day=5, spend_per_day=1_500_000)
    assert caller.key.restrictions == expected
    shown = (await pages.get(f"{KEYS}/{caller.key.id}")).html
    for text in (
        "Only *@example.com, +49*",
        "5 of 5 left",
        "1.50 of 1.50 left",
        f"class=4&amp;key={caller.key.id}",
    ):
        assert text in shown
    assert "restricted" in (await pages.get(KEYS)).html


async def test_ticked_boxes_are_the_entries_of_a_list(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    form = {"name": "agent", "send": "yes", "channels.email": "email", "channels.sms": "sms"}
    assert (await pages.post(KEYS, form)).status == 200
    (caller,) = store.setup.current.callers.values()
    assert caller.key.restrictions == KeyRestrictions(channels=("email", "sms"))
    shown = (await pages.get(f"{KEYS}/{caller.key.id}/restrictions")).html
    assert 'value="sms" checked' in shown and 'value="whatsapp">' in shown


async def test_domains_of_the_team_are_boxes_of_the_senders(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    domain = Domain(id="dom_1", team="team_acme", name="acme.test", brand="Acme")
    await write_records(store, ("domain", "dom_1", domain, "team_acme"))
    assert 'name="senders.*@acme.test"' in (await pages.get(f"{KEYS}/new")).html
    form = {"name": "agent", "send": "yes", "mode_senders": "some", "senders.*@acme.test": "*@acme.test"}
    assert (await pages.post(KEYS, form | {"senders": "shop@b.test"})).status == 200
    (caller,) = store.setup.current.callers.values()
    assert caller.key.restrictions == KeyRestrictions(senders=("shop@b.test", "*@acme.test"))
    page = await pages.get(f"{KEYS}/{caller.key.id}/restrictions")
    assert 'value="*@acme.test" checked' in page.html and 'value="shop@b.test"' in page.html
    assert "This key may send on every channel from shop@b.test and any address at acme.test." in page.text


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("all", None), ("some", KeyRestrictions(channels=("sms",))), ("none", KeyRestrictions(channels=()))],
)
async def test_mode_of_a_list_decides_whether_its_entries_count(
    store: Store, clock: TestClock, mode: str, expected: KeyRestrictions | None
) -> None:
    pages = await make_pages(store, clock)
    form = {"name": "agent", "send": "yes", "mode_channels": mode, "channels.sms": "sms"}
    assert (await pages.post(KEYS, form)).status == 200
    (caller,) = store.setup.current.callers.values()
    assert caller.key.restrictions == expected


async def test_selection_without_entries_is_an_error(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    refused = await pages.post(KEYS, {"name": "agent", "send": "yes", "mode_templates": "some"})
    assert refused.status == 400 and "Select at least one, or choose None." in refused.text
    assert 'name="mode_templates" value="some" checked' in refused.html
    assert '<details class="apart fold" open>' in refused.html
    assert not store.setup.current.callers


@pytest.mark.parametrize(
    ("restrictions", "sentence"),
    [
        (KeyRestrictions(channels=("email", "sms")), "This key may send email and SMS."),
        (KeyRestrictions(channels=("verify",)), "This key may send verification codes."),
        (KeyRestrictions(channels=("email", "verify")), "This key may send email and verification codes."),
        (KeyRestrictions(channels=("*",), senders=()), "This key may send on every channel (no emails)."),
        (
            KeyRestrictions(recipients=("*@a.test", "+49*", "b@c.test")),
            "This key may send on every channel to any address at a.test, numbers that start with +49 and b@c.test.",
        ),
        (KeyRestrictions(recipients=("*",)), "This key may send on every channel to anyone."),
        (
            KeyRestrictions(recipients=("a", "b", "c", "d")),
            "This key may send on every channel to 4 recipient entries.",
        ),
        (KeyRestrictions(templates=("tpl_gone",)), "This key may send on every channel with the template tpl_gone."),
        (KeyRestrictions(templates=("a", "b", "c", "d")), "This key may send on every channel with 4 templates."),
        (
            KeyRestrictions(per_hour=1, per_day=2000, spend_per_day=2_500_000),
            "This key may send on every channel, at most 1 recipient an hour, 2,000 recipients a day"
            " and 2.50 EUR a day.",
        ),
        (
            KeyRestrictions(per_day=5, approval="required"),
            "This key may send on every channel, at most 5 recipients a day. An owner must approve every message.",
        ),
        (KeyRestrictions(channels=()), "This key may not send anything."),
        (KeyRestrictions(per_hour=0), "This key may not send anything."),
    ],
)
def test_restrictions_are_described_in_a_sentence(restrictions: KeyRestrictions, sentence: str) -> None:
    assert describe_restrictions(restrictions, {}, "EUR") == sentence


async def test_key_without_restrictions_shows_none(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    assert (await pages.post(KEYS, {"name": "server", "send": "yes", "recipients": " ", "per_day": ""})).status == 200
    (caller,) = store.setup.current.callers.values()
    assert caller.key.restrictions is None
    assert "is restricted" not in (await pages.get(f"{KEYS}/{caller.key.id}")).html


@pytest.mark.parametrize(
    ("field", "text", "error"),
    [
        ("recipients", "nobody", "expected an email address"),
        ("channels", "fax", "expected"),
        ("per_day", "many", "expected a whole number"),
        ("per_hour", "9" * 30, "expected a whole number"),
        ("spend_per_day", "a lot", "is not an amount"),
    ],
)
async def test_invalid_restriction_is_shown_at_its_field(
    store: Store, clock: TestClock, field: str, text: str, error: str
) -> None:
    pages = await make_pages(store, clock)
    refused = await pages.post(KEYS, {"name": "agent", "send": "yes", field: text})
    assert refused.status == 400 and error in refused.html
    assert not store.setup.current.callers


async def test_restrictions_of_a_key_are_edited_and_removed(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    form = {"recipients": "*@example.com", "channels": "none", "per_day": "0", "approval": "yes"}
    await pages.post(KEYS, {"name": "agent", "send": "yes"} | form)
    (id_,) = store.setup.current.callers
    here = f"{KEYS}/{id_}"
    shown = (await pages.get(f"{here}/restrictions")).html
    for value in (">*@example.com</textarea>", 'value="0"', 'name="approval" value="yes" checked'):
        assert value in shown
    assert 'name="mode_channels" value="none" checked' in shown and 'value="email" checked' not in shown
    before = store.setup.current.callers[id_].key
    assert before.restrictions and (before.restrictions.channels, before.restrictions.approval) == ((), "required")
    assert (await pages.post(f"{here}/restrictions", form)).status == 303
    assert store.setup.current.callers[id_].key == before

    expected = KeyRestrictions(senders=("*@acme.test",), spend_per_day=2_500_000)
    typed = {"senders": "*@Acme.test", "spend_per_day": "2.5", "mark": restrictions_revision(before.restrictions)}
    saved = await pages.post(f"{here}/restrictions", typed, "developer")
    assert (saved.status, saved.notice) == (303, "Restrictions saved.")
    assert store.setup.current.callers[id_].key.restrictions == expected
    rows = (await store.audit.list_page("team_acme", AuditFilter(), NEWEST, 1)).rows
    assert (rows[0].action, rows[0].actor_name) == ("key.restrict", "usr_developer")
    assert rows[0].detail.startswith(f'{id_}: {{"channels":[]') and '→ {"senders":["*@acme.test"]' in rows[0].detail

    assert (
        "no longer restricted"
        in (await pages.post(f"{here}/restrictions", {"mark": restrictions_revision(expected)})).notice
    )
    assert store.setup.current.callers[id_].key.restrictions is None


async def test_restrictions_changed_meanwhile_are_not_overwritten(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    await pages.post(KEYS, {"name": "agent", "send": "yes", "per_day": "5"})
    (id_,) = store.setup.current.callers
    path = f"{KEYS}/{id_}/restrictions"
    first, second = [mark_of(await pages.get(path)) for _ in range(2)]
    assert (await pages.post(path, {"recipients": "*@acme.test", "mark": first})).status == 303
    conflict = await pages.post(path, {"per_day": "500", "mark": second})
    assert conflict.status == 409 and 'value="500"' in conflict.html
    assert "changed the restrictions of this key while you were editing" in conflict.text
    assert "Recipients: *@acme.test" in conflict.text
    saved = store.setup.current.callers[id_].key.restrictions
    assert saved == KeyRestrictions(recipients=("*@acme.test",))
    assert (await pages.post(path, {"per_day": "500", "mark": mark_of(conflict)})).status == 303
    assert store.setup.current.callers[id_].key.restrictions == KeyRestrictions(per_day=500)
    unmarked = await pages.post(path, {"per_day": "7"})
    assert unmarked.status == 409


def mark_of(page: PageResult) -> str:
    """The revision that a form was opened with."""
    match = re.search('name="mark" value="([^"]+)"', page.html)
    assert match
    return match[1]


async def test_invalid_or_forbidden_change_leaves_the_restrictions(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    await pages.post(KEYS, {"name": "agent", "send": "yes", "per_day": "5"})
    (id_,) = store.setup.current.callers
    path = f"{KEYS}/{id_}/restrictions"
    refused = await pages.post(path, {"recipients": "nobody", "per_day": "7"})
    assert refused.status == 400 and "expected an email address" in refused.html and 'value="7"' in refused.html
    assert (await pages.post(path, {}, "viewer")).status == 403
    assert (await pages.get(path, "viewer")).status == 403
    assert (await pages.post(f"{KEYS}/aaaaaaaaaa/restrictions", {})).status == 404
    await pages.post(f"{KEYS}/{id_}/revoke")
    assert "no longer works" in (await pages.post(path, {})).notice
    assert store.setup.current.callers[id_].key.restrictions == KeyRestrictions(per_day=5)


async def test_refusal_in_the_request_log_leads_to_the_key(store: Store, clock: TestClock) -> None:
    pages = await make_pages(store, clock)
    await pages.post(KEYS, {"name": "agent", "send": "yes", "per_day": "0"})
    (id_,) = store.setup.current.callers
    logged = LoggedRequest(
        id=clock.new_id("req_"), at=clock.now(), team=1, key=id_, route="POST /v1/emails", status=429,
        code="key_limit_reached", message="This key may send to 0 recipients a day.", took_ms=1, replayed=0, subject="",
        refused=1,
    )  # fmt: skip
    await store.requests.insert([logged])
    page = await pages.get(f"/dashboard/teams/team_acme/requests/{logged.id}")
    assert "This key may send to 0 recipients a day." in page.text and "What to do:" in page.text
    assert f'href="{KEYS}/{id_}">See what this key may send' in page.html
    assert "See what this key may send" not in (await pages.get(f"{KEYS[:-5]}/requests/{logged.id}", "viewer")).html
