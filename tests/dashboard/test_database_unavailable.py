"""A database that goes away while a page is made, also after its view has read all it needs."""

import pytest

from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.decisions import Decisions
from heliograph.storage.ledger import Ledger
from heliograph.storage.store import Store, StoreUnavailable
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, set_up
from tests.storage.test_idempotency import make_context


async def away(*given: object) -> None:
    raise StoreUnavailable("no connection")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("of", "read", "status"),
    [(Ledger, "account", 503), (Decisions, "take", 200)],
)
async def test_the_page_says_so(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch, of: type, read: str, status: int
) -> None:
    record = TeamRecord(ref=1, id="team_acme", name="Acme")
    await set_up(store, ("team", record.id, record, record.id))
    pages = Pages(make_context(store, clock))
    monkeypatch.setattr(of, read, away)
    shown = await pages.get("/dashboard/teams/team_acme/keys")
    assert (shown.status, "database is away" in shown.text) == (status, status == 503)
    assert ("retry-after" in shown.headers) == (status == 503)
