"""The inbox and the searched suppression list, on both databases."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.records import TeamRecord
from heliograph.manage.inbox import clear
from heliograph.storage import inbox, suppressions
from heliograph.storage.inbox import InboxSearch
from heliograph.storage.outcomes import Change
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from heliograph.storage.suppressions import START, End
from tests.clocks import TestClock
from tests.fake_budget import room
from tests.storage.samples import ENTRY, finish, message, start

pytestmark = pytest.mark.anyio
SIMULATOR, REAL = "simulator-email", "mx"


async def send(store: Store, clock: TestClock, *to: str, carrier: str = SIMULATOR, status: str = "sent") -> str:
    item = message(clock, *to, content=f'{{"body":"Hello {to[0]}"}}'.encode())
    await store.messages.accept(item)
    for claim in await store.outbox.claim("email", 10):
        change = Change(
            at=clock.now(),
            message=claim.message,
            position=claim.position,
            claim=claim.held,
            wanted=status,
            accepted=status == "sent",
            carrier=carrier,
        )
        assert await store.outbox.record(change)
    clock.forward(1000)
    return item.id


async def found(store: Store, team: int = 1, **more: Any) -> tuple[list[str], str | None]:
    page = await store.inbox.messages(team, ["email"], [SIMULATOR], InboxSearch(**more))
    return [line.id for line in page.lines], page.before


async def test_only_what_a_simulator_delivered_newest_first(store: Store, clock: TestClock) -> None:
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
async def test_search(store: Store, clock: TestClock, text: str, expected: list[int]) -> None:
    ids = [await send(store, clock, "a@example.com", "c@example.com"), await send(store, clock, "b@example.com")]
    assert await found(store, text=text) == ([ids[i] for i in expected], None)


async def test_a_page_looks_at_so_many_and_says_where_to_go_on(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "SCAN", 2)
    ids = [await send(store, clock, f"{name}@example.com") for name in "abcd"]
    assert await found(store, text="a@") == ([], ids[2])
    assert (await found(store, text="a@", before=ids[2]))[0] == [ids[0]]


async def test_one_item(store: Store, clock: TestClock) -> None:
    id_ = await send(store, clock, "a@example.com", "b@example.com")
    real = await send(store, clock, "c@example.com", carrier=REAL)
    item = await store.inbox.item(1, id_, [SIMULATOR], room)
    assert item and [one.given for one in item.recipients] == ["a@example.com", "b@example.com"]
    for team, other in ((2, id_), (1, real), (1, "eml_never")):
        assert await store.inbox.item(team, other, [SIMULATOR], room) is None


async def test_exact_addresses_newer_and_unread(store: Store, clock: TestClock) -> None:
    ids = [await send(store, clock, "ann@example.com")]
    first_sent = clock.now() - 1  # a second later
    ids += [await send(store, clock, f"{name}@example.com") for name in ("joann", "ann")]
    assert await found(store, address="ann@example.com") == ([ids[2], ids[0]], None)
    assert await found(store, after=ids[0]) == ([ids[2], ids[1]], None)
    assert await found(store, after=ids[0].replace("eml_", "sms_"), address="ann@example.com") == ([ids[2]], None)
    assert await found(store, since=clock.now()) == ([], None)
    assert await found(store, since=first_sent) == ([ids[2], ids[1]], None)
    await store.inbox.mark(1, ids[1], opened=True)
    await store.inbox.mark(2, ids[2], opened=True)  # another team's
    assert await found(store, unread=True) == ([ids[2], ids[0]], None)
    await store.inbox.mark(1, ids[1], opened=False)
    assert await found(store, unread=True) == (ids[::-1], None)


async def test_one_is_deleted_and_stays_so(store: Store, clock: TestClock) -> None:
    ids = [await send(store, clock, f"{name}@example.com") for name in "ab"]
    entry = replace(ENTRY, action="inbox.delete", team="team_1")
    assert not await store.inbox.delete(2, ids[0], entry)
    assert await store.inbox.delete(1, ids[0], entry)
    assert not await store.inbox.delete(1, ids[0], entry)
    await store.inbox.mark(1, ids[0], opened=False)
    assert await found(store) == ([ids[1]], None)
    assert await store.inbox.item(1, ids[0], [SIMULATOR], room) is None
    assert [line.action for line in await store.audit.lines("team_1")] == ["inbox.delete"]


async def test_lines_with_all_that_was_delivered(store: Store, clock: TestClock) -> None:
    await send(store, clock, "a@example.com", "b@example.com")
    page = await store.inbox.messages(1, ["email", "sms"], [SIMULATOR], InboxSearch())
    (captured,) = await store.inbox.whole(page.lines, [SIMULATOR], room)
    assert captured.to == ["a@example.com", "b@example.com"] and captured.content
    assert (await store.inbox.sizes(page.lines))[page.lines[0].id] == len(captured.content)


async def test_codes_of_simulators_and_of_magic_numbers_until_cleared(store: Store, clock: TestClock) -> None:
    inboxed, magic, real, failed = (start(clock, magic=n in (1, 3), sandbox=True) for n in range(4))
    live = start(clock, sandbox=False)
    for item in (inboxed, magic, real, failed, live):
        await store.verifications.start(item)
        done = finish(item, clock, "failed" if item is failed else "pending")
        await store.verifications.finish(replace(done, simulated=item is not real))
    codes = await store.inbox.codes(1, InboxSearch())
    assert {(line.id, line.magic) for line in codes.lines} == {(inboxed.id, 0), (magic.id, 1)}
    await clear(store, COMMAND_LINE, TeamRecord(ref=1, id="team_1", name=""))
    cleared = await store.inbox.codes(1, InboxSearch())
    assert cleared.lines == []
    assert (await store.inbox.codes(2, InboxSearch())).cleared_at is None
    (line,) = await store.audit.lines("team_1")
    assert (line.actor, line.action, line.at) == ("command line", "inbox.clear", cleared.cleared_at)


async def test_suppressions_are_searched_newest_first(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for names in ("ab", "cd"):
        for name in names:
            await store.suppressions.add(
                NewSuppression(1, f"{name}@example.com", f"{name}@example.com", "manual"), ENTRY
            )
        await store.suppressions.add(NewSuppression(2, "z@example.com", "z@example.com", "bounce"), ENTRY)
        clock.forward(1000)

    async def listed(text: str = "", before: End = START, limit: int = 50) -> tuple[str, End | None]:
        page = await store.suppressions.search(1, text, before, limit)
        return "".join(line.address[0] for line in page.lines), page.end

    a, b, c, d = (End(one.created_at, one.address) for one in (await store.suppressions.search(1)).lines[::-1])
    assert await listed() == ("dcba", None)
    assert await listed(limit=3) == ("dcb", b)
    assert await listed(before=d) == ("cba", None)
    assert await listed("b@") == ("b", None)
    assert await listed("_") == ("", None)
    monkeypatch.setattr(suppressions, "SCAN", 2)
    assert await listed("b@") == ("", c)
    assert await listed("b@", c) == ("b", a)
