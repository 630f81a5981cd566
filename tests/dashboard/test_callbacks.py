"""A carrier's page shows its callback URL, the last callback, and a warning if none arrives."""

from typing import Any

import pytest

from heliograph.domain.limits import HOUR_MS, MINUTE_MS
from heliograph.domain.setup.records import CarrierRecord
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
PAGE = "/dashboard/operator/carriers/relay"
SILENT = "No callbacks received"


async def pages_with_carrier(store: Store, clock: TestClock, **options: Any) -> Pages:
    record = CarrierRecord(id="relay", channel="email", kind="smtp", options={"host": "relay.test", **options})
    await write_records(store, ("carrier", "relay", record, None))
    return Pages(make_context(store, clock))


@pytest.mark.parametrize(
    ("options", "shown"),
    [({}, False), ({"provider": "ses"}, True), ({"provider": "postmark", "callback_secret": "u:p"}, True)],
)
async def test_callback_url_is_shown_when_carrier_needs_it(
    store: Store, clock: TestClock, options: dict[str, str], shown: bool
) -> None:
    pages = await pages_with_carrier(store, clock, **options)
    assert ("/carriers/relay/callback" in (await pages.get(PAGE, OPERATOR)).html) is shown


async def test_missing_callbacks_are_reported_until_first_callback(store: Store, clock: TestClock) -> None:
    pages = await pages_with_carrier(store, clock, provider="postmark", callback_secret="u:p")
    page = (await pages.get(PAGE, OPERATOR)).text
    assert "Last callback none yet" in page and SILENT not in page
    minute = clock.now() - clock.now() % MINUTE_MS - 2 * HOUR_MS
    row = ("relay", minute, "seat", 3, 0, 0, 30)
    await store.database.write(lambda tx: tx.run("count_carrier_use", uses=[row]))
    page = (await pages.get(PAGE, OPERATOR)).text
    assert SILENT in page and "3 messages went out through relay in the last 24 hours" in page
    await store.carrier_stats.record_callback("relay", clock.now())
    page = (await pages.get(PAGE, OPERATOR)).text
    assert SILENT not in page and "Last callback none yet" not in page
