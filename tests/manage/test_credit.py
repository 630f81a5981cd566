"""Credit: the booking and its entry in one transaction, or neither."""

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.manage import credit
from heliograph.manage.credit import Booking
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, CREDIT, entries

pytestmark = pytest.mark.anyio


async def test_each_booking_has_one_entry(store: Store, teams: None) -> None:
    await credit.book(store, ADA, Booking(team="team_1", amount="25.00", note="invoice 1042"))
    account = await credit.book(store, COMMAND_LINE, Booking(team="team_1", amount="-5.00"))
    assert account.available == CREDIT + 20_000_000
    assert await entries(store, "team_1") == [
        ("command line", "credit.book", "-5.0000", ""),
        ("usr_ada", "credit.book", "25.0000", "invoice 1042"),
    ]


@pytest.mark.parametrize(
    ("amount", "note"), [("much", ""), ("0", ""), ("-1000", ""), ("1000000000000", ""), ("1", "a\nb")]
)
async def test_what_cannot_be_booked_leaves_no_entry(store: Store, teams: None, amount: str, note: str) -> None:
    with pytest.raises(InvalidRequest):
        await credit.book(store, ADA, Booking(team="team_1", amount=amount, note=note))
    assert await entries(store) == []
    assert (await store.ledger.account(1)).available == CREDIT


async def test_of_a_team_that_is_there(store: Store, teams: None) -> None:
    with pytest.raises(NotFound, match="There is no team team_x"):
        await credit.book(store, ADA, Booking(team="team_x", amount="1"))
