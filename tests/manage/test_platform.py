"""What holds for every team: one audit entry with a change, none without one, and what is refused."""

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage import platform
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, entries

pytestmark = pytest.mark.anyio


async def test_a_change_has_one_entry(store: Store) -> None:
    for _ in range(2):
        await platform.change(store, ADA, {"sandbox_per_day": 7, "prices": {"sms": {"USD": {"*": "0.05"}}}})
    await platform.change(store, COMMAND_LINE, {"sandbox_per_day": 8})
    assert await entries(store) == [
        ("command line", "platform.change", "platform", "sandbox_per_day=8"),
        ("usr_ada", "platform.change", "platform", "sandbox_per_day=7, prices"),
    ]
    assert store.setup.current.platform.prices == {"sms": {"USD": {"*": 50_000}}}


async def test_what_cannot_be(store: Store) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await platform.change(store, ADA, {"sandbox_per_day": -1})
    assert refused.value.param == "sandbox_per_day"
    assert await entries(store) == []
