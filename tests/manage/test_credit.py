"""Credit: the booking and its audit entry are in one transaction."""

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest, TeamNotFound
from heliograph.manage import credit
from heliograph.manage.credit import CreditAdjustment
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, CREDIT, list_entries

pytestmark = pytest.mark.anyio


async def test_credit_adjustment_writes_one_audit_entry(store: Store, teams: None) -> None:
    await credit.adjust_credit(store, ADA, CreditAdjustment(team="team_1", amount="25.00", note="invoice 1042"))
    account = await credit.adjust_credit(store, COMMAND_LINE, CreditAdjustment(team="team_1", amount="-5.00"))
    assert account.available == CREDIT + 20_000_000
    assert await list_entries(store, "team_1") == [
        ("command line", "credit.book", "-5.0000", ""),
        ("usr_ada", "credit.book", "25.0000", "invoice 1042"),
    ]


@pytest.mark.parametrize(
    ("amount", "note"), [("much", ""), ("0", ""), ("-1000", ""), ("1000000000000", ""), ("1", "a\nb")]
)
async def test_refused_credit_adjustment_writes_no_audit_entry(
    store: Store, teams: None, amount: str, note: str
) -> None:
    with pytest.raises(InvalidRequest):
        await credit.adjust_credit(store, ADA, CreditAdjustment(team="team_1", amount=amount, note=note))
    assert await list_entries(store) == []
    assert (await store.ledger.get_account(1)).available == CREDIT


async def test_credit_adjustment_of_an_unknown_team_is_refused(store: Store, teams: None) -> None:
    with pytest.raises(TeamNotFound, match="There is no team team_x"):
        await credit.adjust_credit(store, ADA, CreditAdjustment(team="team_x", amount="1"))
