"""The database becomes unavailable while a page is created, also after its view has read all data."""

import pytest

from heliograph.domain.setup.records import TeamRecord
from heliograph.storage.decisions import Decisions
from heliograph.storage.ledger import Ledger
from heliograph.storage.store import Store, StoreUnavailable
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context


async def raise_unavailable(*args: object) -> None:
    raise StoreUnavailable("no connection")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("of", "read", "status"),
    [(Ledger, "get_account", 503), (Decisions, "take_unseen", 200)],
)
async def test_page_without_database_returns_503_with_retry_after(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch, of: type, read: str, status: int
) -> None:
    record = TeamRecord(ref=1, id="team_acme", name="Acme")
    await write_records(store, ("team", record.id, record, record.id))
    pages = Pages(make_context(store, clock))
    monkeypatch.setattr(of, read, raise_unavailable)
    response = await pages.get("/dashboard/teams/team_acme/keys")
    assert (response.status, "database is unavailable" in response.text) == (status, status == 503)
    assert ("retry-after" in response.headers) == (status == 503)
