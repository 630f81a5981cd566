"""Platform settings: one audit entry per change, none without a change, and what is refused."""

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage import platform
from heliograph.storage.store import Store
from tests.manage.conftest import ADA, list_entries

pytestmark = pytest.mark.anyio


async def test_platform_change_writes_one_audit_entry(store: Store) -> None:
    for _ in range(2):
        await platform.change_platform(store, ADA, {"sandbox_per_day": 7, "prices": {"sms": {"USD": {"*": "0.05"}}}})
    await platform.change_platform(store, COMMAND_LINE, {"sandbox_per_day": 8})
    assert await list_entries(store) == [
        ("command line", "platform.change", "platform", "sandbox_per_day=8"),
        ("usr_ada", "platform.change", "platform", "sandbox_per_day=7, prices"),
    ]
    assert store.setup.current.platform.prices == {"sms": {"USD": {"*": 50_000}}}


async def test_invalid_platform_field_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest) as error:
        await platform.change_platform(store, ADA, {"sandbox_per_day": -1})
    assert error.value.param == "sandbox_per_day"
    assert await list_entries(store) == []
