"""Categories in the settings, the list of unsubscribed recipients, and the operators' page of complaint rates."""

from typing import Any

import pytest

from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.store import Store
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
HERE = "/dashboard/teams/team_acme"


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme", categories=("newsletter",))
    await write_records(store, ("team", record.id, record, record.id))
    return Pages(make_context(store, clock))


async def test_address_is_unsubscribed_and_resubscribed(pages: Pages, store: Store) -> None:
    assert "newsletter" in (await pages.get(f"{HERE}/unsubscribes/new")).text
    form = {"address": "ada@example.com", "category": "newsletter"}
    assert (await pages.post(f"{HERE}/unsubscribes", form)).status == 303
    assert "already on the list" in (await pages.post(f"{HERE}/unsubscribes", form)).text
    assert "ada@example.com newsletter Added by hand" in (await pages.get(f"{HERE}/unsubscribes")).text
    removal = f"{HERE}/unsubscribes/remove"
    assert (await pages.get(f"{removal}?address=ada%40example.com&category=newsletter")).status == 200
    assert (await pages.post(removal, form)).status == 303
    assert await store.unsubscribes.find(1, "ada@example.com") == []


async def test_categories_are_saved_in_the_settings(pages: Pages) -> None:
    assert (await pages.post(f"{HERE}/settings/categories", {"categories": "offers, news"})).status == 303
    assert pages.setup.teams["team_acme"].record.categories == ("offers", "news")
    refused = await pages.post(f"{HERE}/settings/categories", {"categories": "Not valid!"})
    assert refused.status == 400


async def test_complaints_are_shown_by_provider_team_and_source(pages: Pages, store: Store, clock: Any) -> None:
    day = clock.now() - clock.now() % 86_400_000
    rows = [(1, day, "newsletter", "google", 1000, 2), (1, day, "direct", "yahoo", 1000, 4)]
    await store.database.write(lambda tx: tx.run("count_complaint_rates", counts=rows))
    page = await pages.get("/dashboard/operator/complaints", "operator")
    assert page.status == 200
    for expected in ("google 1,000 2 0.2% Above 0.1%", "yahoo 1,000 4 0.4% Above 0.3%", "Acme 2,000 6 0.3%"):
        assert expected in page.text
    assert "newsletter Acme 1,000 2 0.2%" in page.text
    assert "Complaint rate of all teams 0.3% 6 complaints about 2,000 emails Above 0.3%" in page.text
    assert 'class="mark-at" x="60.0"' in page.html  # 0.3% on a scale of 0.5%


async def test_erased_address_stays_unsubscribed_without_being_stored(store: Store, pages: Pages) -> None:
    for category in ("newsletter", "offers"):
        await store.unsubscribes.add(1, "ada@example.com", category, "link")
    name = "erased:" + "0" * 32
    filters = {"team": 1, "address": "ada@example.com"}
    for _ in range(2):  # erased, unsubscribed again, and erased again
        await store.database.write(lambda tx: tx.run("erase_unsubscribes", name=name, **filters))
        await store.database.write(lambda tx: tx.run("delete_unsubscribes", category="", **filters))
        assert await store.unsubscribes.find(1, "ada@example.com") == []
        assert len(await store.unsubscribes.find(1, name)) == 2
        await store.unsubscribes.add(1, "ada@example.com", "newsletter", "link")
