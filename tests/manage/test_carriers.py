"""Carriers changed and tried: one entry each, and none for what is refused."""

import pytest

from heliograph.channels.carrier import Carriers
from heliograph.channels.email.simulator import EmailSimulator
from heliograph.handover import Handover
from heliograph.manage import carriers
from heliograph.manage.carriers import CarrierChange
from heliograph.rules.audit import COMMAND_LINE
from heliograph.rules.outcome import Accepted
from heliograph.rules.refusals import InvalidRequest, NotFound
from heliograph.rules.setup.records import PRIORITY_MAX, CarrierRecord
from heliograph.rules.setup.snapshot import to_row
from heliograph.storage.store import Store
from tests.entries import set_up
from tests.manage.conftest import ADA, entries

pytestmark = pytest.mark.anyio


@pytest.fixture
async def relay(store: Store) -> str:
    record = CarrierRecord(id="relay", channel="email", kind="simulator")
    await set_up(store, rows=[to_row("carrier", "relay", record, None)])
    return record.id


async def test_each_change_has_one_entry(store: Store, relay: str) -> None:
    disabled = await carriers.change(store, ADA, relay, CarrierChange(enabled=False))
    assert (disabled.enabled, disabled.priority) == (False, 10)
    for _ in range(2):  # the second changes nothing
        await carriers.change(store, COMMAND_LINE, relay, CarrierChange(enabled=False, priority=5))
    assert await entries(store) == [
        ("command line", "carrier.change", "relay", "enabled=False, priority=5"),
        ("usr_ada", "carrier.change", "relay", "enabled=False, priority=10"),
    ]


async def test_a_test_message(store: Store, relay: str) -> None:
    handover = Handover(store, Carriers(lambda _: EmailSimulator(0)), store.clock)
    assert isinstance(await carriers.test(store, ADA, handover, relay, "me@example.com"), Accepted)
    assert await entries(store) == [("usr_ada", "carrier.test", "relay", "me@example.com")]
    with pytest.raises(InvalidRequest, match="Type an email address"):
        await carriers.test(store, ADA, handover, relay, "me")
    assert len(await entries(store)) == 1


async def test_what_is_refused_leaves_no_entry(store: Store, relay: str) -> None:
    with pytest.raises(InvalidRequest, match="A whole number"):
        await carriers.change(store, ADA, relay, CarrierChange(priority=PRIORITY_MAX + 1))
    with pytest.raises(NotFound, match="There is no carrier other"):
        await carriers.change(store, ADA, "other", CarrierChange(enabled=False))
    assert await entries(store) == []
