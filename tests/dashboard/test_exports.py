"""Exports come in portions: a long list neither fills the memory nor holds up the others."""

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.dashboard.app import saved_as
from heliograph.dashboard.page_request import Stream
from heliograph.dashboard.views import suppressions
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
    assert {line.partition(",")[0].strip('"') for portion in portions[1:] for line in portion} == wanted


@pytest.mark.parametrize(
    ("filename", "said"),
    [
        ("audit-team_a.csv", b"attachment; filename=audit-team_a.csv"),
        ("Ünvoice 1.pdf", b"attachment; filename*=UTF-8''%C3%9Cnvoice%201.pdf"),
        ('../a";\r\nb', b"attachment; filename*=UTF-8''..%2Fa%22%3B%0D%0Ab"),
    ],
)
async def test_a_file_is_saved_under_its_name(filename: str, said: bytes) -> None:
    assert saved_as(filename) == [(b"content-disposition", said)]
