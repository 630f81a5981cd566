"""Events newest first, of some types, page by page."""

import pytest

from heliograph.storage import events
from heliograph.storage.events import NEWEST, Event, Publisher
from heliograph.storage.store import Store

pytestmark = pytest.mark.anyio


async def publish(store: Store, *types: str, team: int = 1) -> None:
    created = [
        Event(
            id=f"evt_{n:02}", team=team, subject="s", type=type_, created_at=n, sequence=None if type_ == "noted" else 1
        )
        for n, type_ in enumerate(types)
    ]
    await store.database.write(lambda tx: Publisher(lambda p: p).publish(tx, created))


async def pages(store: Store, types: list[str], limit: int) -> list[list[int]]:
    """Return the creation times of the events of each page."""
    seen, before = [], NEWEST
    while True:
        result = await store.events.newest(1, types, before, limit)
        seen.append([event.created_at for event in result.events])
        if result.before is None:
            return seen
        before = result.before


@pytest.mark.parametrize(
    ("types", "limit", "expected"),
    [
        (["a", "b"], 3, [[6, 5, 4], [2, 1, 0]]),
        (["a", "b"], 9, [[6, 5, 4, 2, 1, 0]]),
        (["b"], 1, [[1]]),
        (["c"], 3, [[]]),
    ],
)
async def test_newest_events_are_listed_page_by_page(
    store: Store, types: list[str], limit: int, expected: list[list[int]]
) -> None:
    await publish(store, "a", "b", "a", "noted", "a", "a", "a")
    await publish(store, "a", team=2)
    assert await pages(store, types, limit) == expected


async def test_rare_event_type_is_searched_block_by_block(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SCAN_MAX", 2)
    await publish(store, "b", "a", "a", "a", "a")
    assert await pages(store, ["b"], 5) == [[], [], [0]]


async def test_event_is_returned_to_its_own_team_only(store: Store) -> None:
    await publish(store, "a")
    result = [await store.events.find(ref, "evt_00") for ref in (1, 2)]
    assert [item and item.type for item in result] == ["a", None]
