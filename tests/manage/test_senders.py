"""Display names, sender ids and recipients: one audit entry per change, none without a change, and refusals."""

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.sender_approvals import pending_senders
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage import recipients, senders
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, list_entries
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

SHOP = Domain(id="dom_shop", team="team_1", name="shop.test", brand="Shop", verified=True, approved=True)
GB = ("sender_id", "team_1/GB")


@pytest.fixture
async def shop(store: Store, teams: None) -> None:
    await set_up(store, rows=[to_row("domain", SHOP.id, SHOP, SHOP.team)])


async def test_sender_id_is_requested_approved_and_removed(store: Store, teams: None) -> None:
    await senders.submit_sender_id(store, ADA, "team_1", "GB", "SHOP")
    for _ in range(2):
        await senders.decide(store, COMMAND_LINE, "team_1", GB, approve=False, reason="Papers?")
    for _ in range(2):
        await senders.resubmit(store, ADA, "team_1", GB)
    (requested,) = pending_senders(store.setup.current)
    assert await senders.decide_pending(store, COMMAND_LINE, requested, approve=True)
    assert not await senders.decide_pending(store, COMMAND_LINE, requested, approve=True)
    await senders.submit_sender_id(store, ADA, "team_1", "GB", "OTHER")
    assert store.setup.current.teams["team_1"].sender_ids["GB"].value == "SHOP"  # until it is approved, too
    await senders.remove(store, ADA, "team_1", GB)
    assert await list_entries(store, "team_1") == [
        ("usr_ada", "sender_id.remove", "GB", ""),
        ("usr_ada", "sender_id.submit", "OTHER for GB", ""),
        ("command line", "sender_id.approve", "Send SMS as SHOP to GB", ""),
        ("usr_ada", "sender_id.submit", "GB", ""),
        ("command line", "sender_id.refuse", "Send SMS as SHOP to GB", "Papers?"),
        ("usr_ada", "sender_id.submit", "SHOP for GB", ""),
    ]


@pytest.mark.parametrize(
    ("domain", "name", "wrong"),
    [("dom_shop", "a\nb", {"name"}), ("dom_other", "Shop", {"of"}), ("dom_other", "", {"name", "of"})],
)
async def test_invalid_display_name_is_refused(
    store: Store, shop: None, domain: str, name: str, wrong: set[str]
) -> None:
    with pytest.raises(InvalidRequest) as error:
        await senders.submit_name(store, ADA, "team_1", domain, name)
    fields = (error.value.details or {}).get("fields", {error.value.param})
    assert set(fields) == wrong
    assert await list_entries(store) == []


async def test_display_name_is_requested_once(store: Store, shop: None) -> None:
    await senders.submit_name(store, ADA, "team_1", SHOP.id, "Billing")
    with pytest.raises(InvalidRequest, match="already has this name"):
        await senders.submit_name(store, ADA, "team_1", SHOP.id, "Billing")


@pytest.mark.parametrize(("country", "value", "param"), [("XX", "SHOP", "country"), ("GB", "far too long", "value")])
async def test_invalid_sender_id_is_refused(store: Store, teams: None, country: str, value: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        await senders.submit_sender_id(store, ADA, "team_1", country, value)
    assert error.value.param == param


async def test_sender_record_of_another_team_is_not_found(store: Store, teams: None) -> None:
    await senders.submit_sender_id(store, ADA, "team_1", "GB", "SHOP")
    before = await list_entries(store)
    for change in (senders.remove, senders.resubmit):
        with pytest.raises(NotFound):
            await change(store, ADA, "team_2", GB)
    with pytest.raises(NotFound):
        await senders.decide(store, ADA, "team_2", GB, approve=True)
    assert await list_entries(store) == before


async def test_sender_refusal_needs_a_reason(store: Store, shop: None) -> None:
    with pytest.raises(InvalidRequest, match="Enter a one-line reason"):
        await senders.decide(store, ADA, "team_1", ("domain", SHOP.id), approve=False)


async def test_sandbox_recipient_change_writes_one_audit_entry(store: Store, teams: None) -> None:
    address = recipients.read_new_recipient(ADA, store.setup.current.teams["team_1"], " Ada@Example.com ")
    await recipients.log_code_sent(store, ADA, "team_1", address)
    for _ in range(2):
        await recipients.add(store, ADA, "team_1", address)
    with pytest.raises(InvalidRequest, match="can already send to ada@example.com"):
        recipients.read_new_recipient(ADA, store.setup.current.teams["team_1"], "ada@example.com")
    await recipients.remove(store, COMMAND_LINE, "team_1", address)
    with pytest.raises(NotFound):
        await recipients.remove(store, COMMAND_LINE, "team_1", address)
    assert await list_entries(store, "team_1") == [
        ("command line", "recipient.remove", "ada@example.com", ""),
        ("usr_ada", "recipient.add", "ada@example.com", ""),
        ("usr_ada", "recipient.ask", "ada@example.com", ""),
    ]
