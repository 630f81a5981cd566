"""Events newest first, of some types, page by page."""

import pytest

from heliograph.storage import events
from heliograph.storage.events import NEWEST, Event, Publisher
from heliograph.storage.store import Store

pytestmark = pytest.mark.anyio


async def publish(store: Store, *types: str, team: int = 1) -> None:
    made = [
        Event(
            id=f"evt_{n:02}", team=team, subject="s", type=type_, created_at=n, sequence=None if type_ == "noted" else 1
        )
        for n, type_ in enumerate(types)
    ]
    await store.database.write(lambda tx: Publisher(lambda p: p).publish(tx, made))


async def pages(store: Store, types: list[str], limit: int) -> list[list[int]]:
    """When the events of each page were made."""
    seen, before = [], NEWEST
    while True:
        found = await store.events.newest(1, types, before, limit)
        seen.append([event.created_at for event in found.events])
        if found.before is None:
            return seen
        before = found.before


@pytest.mark.parametrize(
    ("types", "limit", "expected"),
    [
        (["a", "b"], 3, [[6, 5, 4], [2, 1, 0]]),
        (["a", "b"], 9, [[6, 5, 4, 2, 1, 0]]),
        (["b"], 1, [[1]]),
        (["c"], 3, [[]]),
    ],
)
async def test_pages(store: Store, types: list[str], limit: int, expected: list[list[int]]) -> None:
    await publish(store, "a", "b", "a", "noted", "a", "a", "a")
    await publish(store, "a", team=2)
    assert await pages(store, types, limit) == expected


async def test_a_rare_type_is_looked_for_span_by_span(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SPAN", 2)
    await publish(store, "b", "a", "a", "a", "a")
    assert await pages(store, ["b"], 5) == [[], [], [0]]


async def test_one_event_of_the_team(store: Store) -> None:
    await publish(store, "a")
    found = [await store.events.find(ref, "evt_00") for ref in (1, 2)]
    assert [one and one.type for one in found] == ["a", None]
