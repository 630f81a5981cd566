"""Carriers are changed and tested: one audit entry for each change, and none for a refused one."""

import pytest

from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carriers
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.outcome import Accepted
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup.carrier_kinds import CarrierKind
from heliograph.domain.setup.records import PRIORITY_MAX, CarrierRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage import carriers
from heliograph.manage.carriers import CarrierChange
from heliograph.storage.carrier_stats import RecentCarrierCounts
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, list_entries
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio


@pytest.fixture
async def relay(store: Store) -> str:
    record = CarrierRecord(id="relay", channel="email", kind="simulator")
    await set_up(store, rows=[to_row("carrier", "relay", record, None)])
    return record.id


async def test_carrier_change_writes_one_audit_entry(store: Store, relay: str) -> None:
    disabled = await carriers.change(store, ADA, relay, CarrierChange(enabled=False))
    assert (disabled.enabled, disabled.priority) == (False, 10)
    for _ in range(2):  # the second changes nothing
        await carriers.change(store, COMMAND_LINE, relay, CarrierChange(enabled=False, priority=5))
    assert await list_entries(store) == [
        ("command line", "carrier.change", "relay", "enabled=False, priority=5"),
        ("usr_ada", "carrier.change", "relay", "enabled=False, priority=10"),
    ]


async def test_carrier_test_message_is_counted(store: Store, relay: str) -> None:
    carrier = carriers.get_carrier(store.setup.current, relay)
    failover = CarrierFailover(store, Carriers(lambda _: EmailSimulator(0)), store.clock)
    assert isinstance(await carriers.send_test(store, ADA, failover, carrier, "me@example.com"), Accepted)
    assert await list_entries(store) == [("usr_ada", "carrier.test", "relay", "me@example.com")]
    with pytest.raises(InvalidRequest, match="Enter an email address"):
        await carriers.send_test(store, ADA, failover, carrier, "me")
    with pytest.raises(InvalidRequest, match="Enter an email address") as refused:
        await carriers.send_test(store, ADA, failover, carrier, "me@example.com", sender="me")
    assert refused.value.param == "sender"
    assert len(await list_entries(store)) == 1
    # Not counted
    assert (await store.carrier_stats.read_recent(store.clock.now()))[relay] == RecentCarrierCounts(has_accepted=True)


async def test_refused_carrier_change_writes_no_audit_entry(store: Store, relay: str) -> None:
    with pytest.raises(InvalidRequest, match="A whole number"):
        await carriers.change(store, ADA, relay, CarrierChange(priority=PRIORITY_MAX + 1))
    with pytest.raises(NotFound, match="There is no carrier other"):
        await carriers.change(store, ADA, "other", CarrierChange(enabled=False))
    assert await list_entries(store) == []


def seal(plain: bytes, context: str) -> str:
    return f"{context}:{len(plain)}"


LIVE = Carriers(lambda _: EmailSimulator(0))
RELAY = {"host": "relay.example.com", "port": "2525", "username": "ada", "password": "open sesame"}


async def create(
    store: Store, kind: CarrierKind, id_: str, form: dict[str, str], live: Carriers = LIVE
) -> CarrierRecord:
    return await carriers.create(store, ADA, carriers.draft_carrier(store.setup.current, seal, live, kind, id_, form))


async def test_carrier_created_by_hand_writes_audit_entries(store: Store) -> None:
    created = await create(store, ("email", "smtp"), "relay-1", RELAY)
    assert (created.channel, created.kind, created.enabled, created.priority, created.by_hand) == (
        "email",
        "smtp",
        True,
        10,
        True,
    )
    assert created.options == {
        "host": "relay.example.com",
        "port": 2525,
        "username": "ada",
        "password": {"sealed": "carrier/relay-1/password:13"},
    }
    second = await create(store, ("email", "mx"), "mx", {})
    assert second.priority == 20
    with pytest.raises(InvalidRequest, match="relay-1 already"):
        await create(store, ("email", "smtp"), "relay-1", RELAY)
    for id_ in ("", "Relay", "new", "a b", "x" * 65):
        with pytest.raises(InvalidRequest, match="Use lowercase letters"):
            await create(store, ("email", "smtp"), id_, RELAY)
    assert [entry[1:] for entry in await list_entries(store)] == [
        ("carrier.create", "mx", "email mx"),
        ("carrier.create", "relay-1", "email smtp"),
    ]


@pytest.mark.parametrize(
    ("pool", "error"),
    [
        ('source_ips = ["192.0.2.1"], overflow = "relya"', "pools.bulk.overflow: 'relya' is not the id of another"),
        ('source_ips = ["192.0.2.1"], overflow = "mx"', "pools.bulk.overflow: 'mx' is not the id of another"),
        ('source_ips = ["192.0.2.9"]', r"pools.bulk.source_ips\[0\]: 192.0.2.9 is not in source_ips"),
    ],
)
async def test_pool_with_an_unknown_address_or_overflow_is_refused(
    store: Store, relay: str, pool: str, error: str
) -> None:
    form = {"source_ips": "192.0.2.1", "pools": f"bulk = {{ {pool} }}"}
    with pytest.raises(InvalidRequest, match=error) as refused:
        await create(store, ("email", "mx"), "mx", form)
    assert refused.value.param == "pools"
    valid = form | {"pools": 'bulk = { source_ips = ["192.0.2.1"], overflow = "relay" }'}
    await create(store, ("email", "mx"), "mx", valid)
    with pytest.raises(InvalidRequest, match=error):
        await carriers.edit(store, ADA, seal, LIVE, "mx", form)


async def test_editing_keeps_secrets_that_are_left_empty(store: Store) -> None:
    await create(store, ("email", "smtp"), "relay-1", RELAY)
    form = RELAY | {"username": "grace", "password": ""}
    edited = await carriers.edit(store, ADA, seal, LIVE, "relay-1", form)
    assert edited.options["username"] == "grace"
    assert edited.options["password"] == {"sealed": "carrier/relay-1/password:13"}
    await carriers.edit(store, ADA, seal, LIVE, "relay-1", form)  # changes nothing
    with pytest.raises(InvalidRequest, match="server address has changed"):
        await carriers.edit(store, ADA, seal, LIVE, "relay-1", form | {"host": "other.example.com"})
    second_result = await carriers.edit(store, ADA, seal, LIVE, "relay-1", form | {"forget-password": "yes"})
    assert "password" not in second_result.options
    assert [entry[1:] for entry in await list_entries(store)][:2] == [
        ("carrier.edit", "relay-1", "password"),
        ("carrier.edit", "relay-1", "username"),
    ]


async def test_carrier_that_cannot_be_built_is_not_saved(store: Store) -> None:
    def refuse(record: CarrierRecord) -> EmailSimulator:
        raise ValueError("{{who}} is not a placeholder")

    with pytest.raises(InvalidRequest, match="not a placeholder"):
        await create(store, ("sms", "http"), "x", {"url": "https://a.example"}, Carriers(refuse))
    assert store.setup.current.carriers == ()


async def test_carrier_order_is_changed_by_swapping_neighbours(store: Store) -> None:
    for id_ in ("a", "b", "c"):
        await create(store, ("sms", "simulator"), id_, {})
    await create(store, ("email", "simulator"), "mail", {})
    await carriers.move(store, ADA, "c", -1)
    await carriers.move(store, ADA, "a", -1)  # the carrier is the first
    order = [(item.id, item.priority) for item in carriers.carriers_of_channel(store.setup.current, "sms")]
    assert order == [("a", 10), ("c", 20), ("b", 30)]
    await carriers.move(store, ADA, "a", 1)
    assert [item.id for item in carriers.carriers_of_channel(store.setup.current, "sms")] == ["c", "a", "b"]
    assert [entry[1:] for entry in await list_entries(store)][:2] == [
        ("carrier.order", "a", "c, a, b"),
        ("carrier.order", "c", "a, c, b"),
    ]


async def test_carrier_removal_writes_one_audit_entry(store: Store, relay: str) -> None:
    await carriers.remove(store, ADA, relay)
    assert store.setup.current.carriers == ()
    with pytest.raises(NotFound):
        await carriers.remove(store, ADA, relay)
    assert [entry[1:] for entry in await list_entries(store)] == [("carrier.remove", "relay", "email simulator")]


async def test_overflow_carrier_in_use_is_not_removed(store: Store, relay: str) -> None:
    pools = {"bulk": {"source_ips": ["192.0.2.1"], "overflow": relay}}
    options = {"source_ips": ["192.0.2.1"], "pools": pools}
    await set_up(
        store,
        [to_row("carrier", "direct", CarrierRecord(id="direct", channel="email", kind="mx", options=options), None)],
    )
    with pytest.raises(InvalidRequest, match="relay is the overflow of a pool of direct"):
        await carriers.remove(store, ADA, relay)
    await carriers.remove(store, ADA, "direct")
    await carriers.remove(store, ADA, relay)
    assert store.setup.current.carriers == ()
