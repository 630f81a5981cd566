"""Exports are streamed in batches, so that a long list neither fills the memory nor blocks other requests."""

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.dashboard.app import content_disposition
from heliograph.dashboard.page_request import Stream
from heliograph.dashboard.views import suppressions
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from tests.storage.samples import ENTRY

pytestmark = pytest.mark.anyio


async def test_suppression_export_is_streamed_in_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suppressions, "EXPORT_BATCH", 2)
    expected = {f"a{number}@example.com" for number in range(5)}
    for address in expected:
        await store.suppressions.add(NewSuppression(1, address, address, "manual"), ENTRY)
    request: Any = SimpleNamespace(team=SimpleNamespace(record=SimpleNamespace(ref=1)), store=store)
    response = await suppressions.export(request)
    assert isinstance(response, Stream)
    portions = [portion.decode().splitlines() async for portion in response.chunks]
    assert [len(portion) for portion in portions] == [1, 2, 2, 1]
    assert {line.partition(",")[0].strip('"') for portion in portions[1:] for line in portion} == expected


@pytest.mark.parametrize(
    ("filename", "said"),
    [
        ("audit-team_a.csv", b"attachment; filename=audit-team_a.csv"),
        ("Ünvoice 1.pdf", b"attachment; filename*=UTF-8''%C3%9Cnvoice%201.pdf"),
        ('../a";\r\nb', b"attachment; filename*=UTF-8''..%2Fa%22%3B%0D%0Ab"),
    ],
)
async def test_content_disposition_keeps_filename(filename: str, said: bytes) -> None:
    assert content_disposition(filename) == [(b"content-disposition", said)]
