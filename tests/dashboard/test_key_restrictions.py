"""Restrictions of API keys on the keys pages: set when a key is created, shown with what is left of its limits."""

import pytest

from heliograph.domain.setup.records import KeyRestrictions, TeamRecord
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
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
        "1.5000 of 1.5000 left",
        f"class=4&amp;key={caller.key.id}",
    ):
        assert text in shown
    assert "restricted" in (await pages.get(KEYS)).html


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
