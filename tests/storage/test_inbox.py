"""The inbox and the searched suppression list, on both databases."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.records import TeamRecord
from heliograph.manage.inbox import clear
from heliograph.storage import inbox, suppressions
from heliograph.storage.inbox import InboxSearch
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from heliograph.storage.suppressions import FIRST_PAGE, PageCursor
from tests.clocks import TestClock
from tests.fake_budget import room
from tests.storage.samples import ENTRY, finish, message, start

pytestmark = pytest.mark.anyio
SIMULATOR, REAL = "simulator-email", "mx"


async def send(store: Store, clock: TestClock, *to: str, carrier: str = SIMULATOR, status: str = "sent") -> str:
    item = message(clock, *to, content=f'{{"body":"Hello {to[0]}"}}'.encode())
    await store.messages.accept(item)
    for claim in await store.outbox.claim("email", 10):
        change = RecipientUpdate(
            at=clock.now(),
            message=claim.message,
            position=claim.position,
            claim=claim.token,
            target_status=status,
            accepted=status == "sent",
            carrier=carrier,
        )
        assert await store.outbox.record(change)
    clock.forward(1000)
    return item.id


async def found(store: Store, team: int = 1, **more: Any) -> tuple[list[str], str | None]:
    page = await store.inbox.list_messages(team, ["email"], [SIMULATOR], InboxSearch(**more))
    return [line.id for line in page.rows], page.before


async def test_inbox_lists_only_simulated_deliveries_newest_first(store: Store, clock: TestClock) -> None:
    ids = [await send(store, clock, f"{name}@example.com") for name in "abc"]
    await send(store, clock, "d@example.com", carrier=REAL)
    await send(store, clock, "e@example.com", status="bounced")
    first, before = await found(store, limit=2)
    assert (first, before) == (ids[:0:-1], ids[1])
    assert await found(store, before=before) == ([ids[0]], None)
    assert await found(store, team=2) == ([], None)


@pytest.mark.parametrize(
    ("text", "expected"), [("", [1, 0]), ("b@ex", [1]), ("hello a", [0]), ("example", [1, 0]), ("%", [])]
)
async def test_inbox_search_returns_matching_messages(
    store: Store, clock: TestClock, text: str, expected: list[int]
) -> None:
    ids = [await send(store, clock, "a@example.com", "c@example.com"), await send(store, clock, "b@example.com")]
    assert await found(store, text=text) == ([ids[i] for i in expected], None)


async def test_inbox_search_page_scans_a_bounded_number_and_returns_a_cursor(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "SCAN_MAX", 2)
    ids = [await send(store, clock, f"{name}@example.com") for name in "abcd"]
    assert await found(store, text="a@") == ([], ids[2])
    assert (await found(store, text="a@", before=ids[2]))[0] == [ids[0]]


async def test_inbox_item_is_returned_by_id(store: Store, clock: TestClock) -> None:
    id_ = await send(store, clock, "a@example.com", "b@example.com")
    real = await send(store, clock, "c@example.com", carrier=REAL)
    item = await store.inbox.get_message(1, id_, [SIMULATOR], room)
    assert item and [element.given_address for element in item.recipients] == ["a@example.com", "b@example.com"]
    for team, other in ((2, id_), (1, real), (1, "eml_never")):
        assert await store.inbox.get_message(team, other, [SIMULATOR], room) is None


async def test_inbox_filters_by_exact_address_newer_and_unread(store: Store, clock: TestClock) -> None:
    ids = [await send(store, clock, "ann@example.com")]
    first_sent = clock.now() - 1  # a second later
    ids += [await send(store, clock, f"{name}@example.com") for name in ("joann", "ann")]
    assert await found(store, address="ann@example.com") == ([ids[2], ids[0]], None)
    assert await found(store, after=ids[0]) == ([ids[2], ids[1]], None)
    assert await found(store, after=ids[0].replace("eml_", "sms_"), address="ann@example.com") == ([ids[2]], None)
    assert await found(store, since=clock.now()) == ([], None)
    assert await found(store, since=first_sent) == ([ids[2], ids[1]], None)
    await store.inbox.set_opened(1, ids[1], opened=True)
    await store.inbox.set_opened(2, ids[2], opened=True)  # another team's
    assert await found(store, unread=True) == ([ids[2], ids[0]], None)
    await store.inbox.set_opened(1, ids[1], opened=False)
    assert await found(store, unread=True) == (ids[::-1], None)


async def test_deleted_inbox_item_stays_deleted(store: Store, clock: TestClock) -> None:
    ids = [await send(store, clock, f"{name}@example.com") for name in "ab"]
    entry = replace(ENTRY, action="inbox.delete", team="team_1")
    assert not await store.inbox.hide_message(2, ids[0], entry)
    assert await store.inbox.hide_message(1, ids[0], entry)
    assert not await store.inbox.hide_message(1, ids[0], entry)
    await store.inbox.set_opened(1, ids[0], opened=False)
    assert await found(store) == ([ids[1]], None)
    assert await store.inbox.get_message(1, ids[0], [SIMULATOR], room) is None
    assert [line.action for line in await store.audit.list_rows("team_1")] == ["inbox.delete"]


async def test_inbox_rows_include_the_delivered_content(store: Store, clock: TestClock) -> None:
    await send(store, clock, "a@example.com", "b@example.com")
    page = await store.inbox.list_messages(1, ["email", "sms"], [SIMULATOR], InboxSearch())
    (captured,) = await store.inbox.get_contents(page.rows, [SIMULATOR], room)
    assert captured.recipients == ["a@example.com", "b@example.com"] and captured.content
    assert (await store.inbox.get_sizes(page.rows))[page.rows[0].id] == len(captured.content)


async def test_inbox_lists_simulated_and_magic_number_codes_until_cleared(store: Store, clock: TestClock) -> None:
    inboxed, magic, real, failed = (start(clock, is_magic=n in (1, 3), sandbox=True) for n in range(4))
    live = start(clock, sandbox=False)
    for item in (inboxed, magic, real, failed, live):
        await store.verifications.start(item)
        done = finish(item, clock, "failed" if item is failed else "pending")
        await store.verifications.finish(replace(done, is_simulated=item is not real))
    codes = await store.inbox.list_codes(1, InboxSearch())
    assert {(line.id, line.magic) for line in codes.rows} == {(inboxed.id, 0), (magic.id, 1)}
    await clear(store, COMMAND_LINE, TeamRecord(ref=1, id="team_1", name=""))
    cleared = await store.inbox.list_codes(1, InboxSearch())
    assert cleared.rows == []
    assert (await store.inbox.list_codes(2, InboxSearch())).cleared_at is None
    (line,) = await store.audit.list_rows("team_1")
    assert (line.actor, line.action, line.at) == ("command line", "inbox.clear", cleared.cleared_at)


async def test_suppression_search_returns_newest_first(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for names in ("ab", "cd"):
        for name in names:
            await store.suppressions.add(
                NewSuppression(1, f"{name}@example.com", f"{name}@example.com", "manual"), ENTRY
            )
        await store.suppressions.add(NewSuppression(2, "z@example.com", "z@example.com", "bounce"), ENTRY)
        clock.forward(1000)

    async def listed(text: str = "", before: PageCursor = FIRST_PAGE, limit: int = 50) -> tuple[str, PageCursor | None]:
        page = await store.suppressions.search(1, text, before, limit)
        return "".join(line.address[0] for line in page.rows), page.next_cursor

    a, b, c, d = (PageCursor(item.created_at, item.address) for item in (await store.suppressions.search(1)).rows[::-1])
    assert await listed() == ("dcba", None)
    assert await listed(limit=3) == ("dcb", b)
    assert await listed(before=d) == ("cba", None)
    assert await listed("b@") == ("b", None)
    assert await listed("_") == ("", None)
    monkeypatch.setattr(suppressions, "SCAN_MAX", 2)
    assert await listed("b@") == ("", c)
    assert await listed("b@", c) == ("b", a)
