"""A carrier's page says where it calls back, when it last did, and that it should have."""

from typing import Any

import pytest

from heliograph.domain.limits import HOUR_MS, MINUTE_MS
from heliograph.domain.setup.records import CarrierRecord
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio
PAGE = "/dashboard/operator/carriers/relay"
SILENT = "No callback came"


async def pages_with(store: Store, clock: TestClock, **options: Any) -> Pages:
    record = CarrierRecord(id="relay", channel="email", kind="smtp", options={"host": "relay.test", **options})
    await set_up(store, ("carrier", "relay", record, None))
    return Pages(make_context(store, clock))


@pytest.mark.parametrize(
    ("options", "shown"),
    [({}, False), ({"provider": "ses"}, True), ({"provider": "postmark", "callback_secret": "u:p"}, True)],
)
async def test_the_address(store: Store, clock: TestClock, options: dict[str, str], shown: bool) -> None:
    pages = await pages_with(store, clock, **options)
    assert ("/carriers/relay/callback" in (await pages.get(PAGE, OPERATOR)).html) is shown


async def test_silence_is_told_until_one_comes(store: Store, clock: TestClock) -> None:
    pages = await pages_with(store, clock, provider="postmark", callback_secret="u:p")
    page = (await pages.get(PAGE, OPERATOR)).text
    assert "Last callback none yet" in page and SILENT not in page
    minute = clock.now() - clock.now() % MINUTE_MS - 2 * HOUR_MS
    row = ("relay", minute, "seat", 3, 0, 0, 30)
    await store.database.write(lambda tx: tx.run("count_carrier_use", uses=[row]))
    page = (await pages.get(PAGE, OPERATOR)).text
    assert SILENT in page and "3 messages went out by relay in the last 24 hours" in page
    await store.carrier_use.heard("relay", clock.now())
    page = (await pages.get(PAGE, OPERATOR)).text
    assert SILENT not in page and "Last callback none yet" not in page
