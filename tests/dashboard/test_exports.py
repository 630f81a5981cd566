"""Exports come in portions: a long list neither fills the memory nor holds up the others."""

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.dashboard.views import suppressions
from heliograph.dashboard.visit import Stream
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from tests.storage.samples import ENTRY

pytestmark = pytest.mark.anyio


async def test_suppressions_are_exported_in_portions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suppressions, "EXPORT_PORTION", 2)
    wanted = {f"a{number}@example.com" for number in range(5)}
    for address in wanted:
        await store.suppressions.add(NewSuppression(1, address, address, "manual"), ENTRY)
    visit: Any = SimpleNamespace(team=SimpleNamespace(record=SimpleNamespace(ref=1)), store=store)
    answer = await suppressions.export(visit)
    assert isinstance(answer, Stream)
    portions = [portion.decode().splitlines() async for portion in answer.chunks]
    assert [len(portion) for portion in portions] == [1, 2, 2, 1]
    assert {line.partition(",")[0] for portion in portions[1:] for line in portion} == wanted
