"""Reads of the API: filters, pages, and isolation between teams."""

from typing import Any

import pytest

from heliograph.storage.search.message_search import MessageListRow, Search, SearchPage
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY, check, finish, message, start

pytestmark = pytest.mark.anyio

PHONE_2 = "+14155550101"


async def find(store: Store, team: int = 1, **more: Any) -> SearchPage[MessageListRow]:
    values: dict[str, Any] = {"channel": "email", "limit": 100} | more
    return await store.messages.search(team, Search(**values))


def records(result: SearchPage[MessageListRow]) -> list[str]:
    return [line.record for line in result.rows]


@pytest.fixture
async def sent(store: Store, clock: TestClock) -> list[str]:
    """Send four messages, oldest first, a second apart; the last belongs to team 2."""
    created = []
    for team, address, template in [
        (1, "a@example.com", "tpl_x"),
        (1, "b@example.com", None),
        (1, "a@example.com", None),
        (2, "a@example.com", "tpl_x"),
    ]:
        item = message(clock, address, team=team, template_id=template)
        created.append((await store.messages.accept(item)).body.decode())
        clock.forward(1000)
    return created


async def test_message_list_has_only_the_own_team_newest_first(store: Store, sent: list[str]) -> None:
    assert records(await find(store)) == sent[2::-1]
    assert records(await find(store, 2)) == [sent[3]]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"address": "a@example.com"}, [2, 0]),
        ({"address": "nobody@example.com"}, []),
        ({"template_id": "tpl_x"}, [0]),
        ({"status": "sending"}, [2, 1, 0]),
        ({"status": "delivered"}, []),
        ({"address": "a@example.com", "template_id": "tpl_x"}, [0]),
        ({"channel": "sms"}, []),
    ],
)
async def test_message_list_filters_select_matching_messages(
    store: Store, sent: list[str], more: dict[str, Any], expected: list[int]
) -> None:
    assert records(await find(store, **more)) == [sent[i] for i in expected]


@pytest.mark.parametrize("more", [{}, {"status": "sending"}, {"address": "a@example.com"}])
async def test_message_list_bounds_and_cursors_are_exclusive(
    store: Store, clock: TestClock, sql: Sql, more: dict[str, Any]
) -> None:
    sent = []
    for _ in range(3):
        sent.append((await store.messages.accept(message(clock, "a@example.com"))).body.decode())
        clock.forward(1000)
    rows = await sql("SELECT id, created_at FROM message WHERE team = 1 ORDER BY id")
    (first, first_at), (second, _), (_, third_at) = rows
    assert records(await find(store, created_after=first_at, created_before=third_at, **more)) == [sent[1]]
    assert records(await find(store, created_after=first_at, **more)) == sent[:0:-1]
    assert records(await find(store, before=second, **more)) == [sent[0]]
    assert records(await find(store, before=second[:-1], **more)) == [sent[0]]  # deleted, or never there
    assert records(await find(store, before=first, **more)) == []


async def test_message_list_page_shows_that_more_exist(store: Store, sent: list[str]) -> None:
    assert (await find(store, limit=2)).after
    assert not (await find(store, limit=3)).after


async def test_message_list_by_state_covers_all_templates(store: Store, clock: TestClock) -> None:
    created = []
    for template in ("tpl_b", None, "tpl_a", "tpl_b", None, "tpl_c"):
        created.append((await store.messages.accept(message(clock, template_id=template))).body.decode())
        clock.forward(1000)
    assert records(await find(store, status="sending", limit=5)) == created[:0:-1]
    assert records(await find(store, template_id="tpl_b")) == [created[3], created[0]]
    assert records(await find(store, template_id="tpl_b", status="sending", limit=1)) == [created[3]]
    assert records(await find(store, template_id="tpl_b", status="sent")) == []


async def test_message_of_another_team_is_not_found(store: Store, clock: TestClock) -> None:
    item = message(clock)
    await store.messages.accept(item)
    assert await store.messages.get(2, item.id) is None
    assert await store.messages.get(1, "eml_never") is None


async def test_verifications_are_listed_for_their_team(store: Store, clock: TestClock) -> None:
    started = [start(clock), start(clock, phone=PHONE_2), start(clock), start(clock, team=2)]
    for item in started:
        await store.verifications.start(item)
        await store.verifications.finish(finish(item, clock))
    await store.verifications.check(check(started[0], "right", clock.now()))

    async def ids(**more: Any) -> list[int]:
        result = await store.verifications.search(1, Search(limit=100, **more))
        return [[item.id for item in started].index(line.id) for line in result.rows]

    assert await ids() == [2, 1, 0]
    assert await ids(address=PHONE_2) == [1]
    assert await ids(status="verified") == [0]
    assert await ids(status="pending") == [2, 1]
    assert await store.verifications.get(2, started[0].id) is None
    clock.forward(10 * 60_000)  # no status change has been written yet
    assert await ids(status="expired") == [2, 1]
    assert await ids(status="pending") == []


async def test_suppressions_are_listed_for_their_team(store: Store, clock: TestClock, sql: Sql) -> None:
    for name in ("a", "b", "c"):
        assert await store.suppressions.add(
            NewSuppression(1, f"{name}@example.com", f"{name.upper()}@example.com", "manual"), ENTRY
        )
        clock.forward(1000)
    assert not await store.suppressions.add(NewSuppression(1, "a@example.com", "again@example.com", "bounce"), ENTRY)
    rows = await store.suppressions.list_page(1, None, 2)
    assert [row.email for row in rows] == ["C@example.com", "B@example.com", "A@example.com"]  # one more than asked
    assert [row.email for row in await store.suppressions.list_page(1, "b@example.com", 2)] == ["A@example.com"]
    assert await store.suppressions.list_page(2, None, 2) == []
    assert not await store.suppressions.remove(2, "a@example.com", ENTRY)
    assert await store.suppressions.remove(1, "a@example.com", ENTRY)
    assert not await store.suppressions.remove(1, "a@example.com", ENTRY)
    assert await store.suppressions.get(1, "a@example.com") is None
    assert await sql("SELECT type, count(*) FROM event GROUP BY type ORDER BY type") == [
        ("suppression.created", 3),
        ("suppression.deleted", 1),
    ]


async def test_suppressions_of_the_same_millisecond_are_all_listed(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    for name in "abcdefg":
        await store.suppressions.add(NewSuppression(1, f"{name}@example.com", f"{name}@example.com", "manual"), ENTRY)
    seen: list[str] = []
    after = None
    while page := (await store.suppressions.list_page(1, after, 2))[:2]:
        seen += [row.email[0] for row in page]
        after = page[-1].email
    assert seen == list("gfedcba")
