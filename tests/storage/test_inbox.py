"""The inbox and the searched suppression list, on both databases."""

from functools import partial

import pytest
from msgspec.structs import replace

from heliograph.rules.audit import COMMAND_LINE
from heliograph.storage import inbox, suppressions
from heliograph.storage.inbox import Span
from heliograph.storage.outcomes import Change
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from heliograph.storage.suppressions import START, End
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import ENTRY, finish, message, start

pytestmark = pytest.mark.anyio
SIMULATOR, REAL = "simulator-email", "mx"
MAIL = Span(team=1, low="eml_", high="eml_~", limit=2)


async def send(store: Store, clock: TestClock, *to: str, carrier: str = SIMULATOR, status: str = "sent") -> str:
    item = message(clock, *to, content=f'{{"body":"Hello {to[0]}"}}'.encode())
    await store.messages.accept(item)
    for claim in await store.outbox.claim("email", 10):
        change = Change(
            at=clock.now(),
            message=claim.message,
            position=claim.position,
            claim=(claim.key, claim.epoch),
            wanted=status,
            accepted=status == "sent",
            carrier=carrier,
        )
        assert await store.outbox.record(change)
    clock.forward(1000)
    return item.id


async def found(store: Store, span: Span = MAIL) -> tuple[list[str], str | None]:
    lines, before = await store.database.read(partial(inbox.messages, span=span, carriers=[SIMULATOR]))
    return [line.id for line in lines], before


def span(**more: object) -> Span:
    return Span(**{"team": 1, "low": "eml_", "high": "eml_~", "limit": 50} | more)  # type: ignore[arg-type]


async def test_only_what_a_simulator_delivered_newest_first(store: Store, clock: TestClock) -> None:
    ids = [await send(store, clock, f"{name}@example.com") for name in "abc"]
    await send(store, clock, "d@example.com", carrier=REAL)
    await send(store, clock, "e@example.com", status="bounced")
    first, before = await found(store)
    assert (first, before) == (ids[:0:-1], ids[1])
    assert await found(store, span(high=before)) == ([ids[0]], None)
    assert await found(store, span(team=2)) == ([], None)


@pytest.mark.parametrize(
    ("text", "expected"), [("", [1, 0]), ("b@ex", [1]), ("hello a", [0]), ("example", [1, 0]), ("%", [])]
)
async def test_search(store: Store, clock: TestClock, text: str, expected: list[int]) -> None:
    ids = [await send(store, clock, "a@example.com", "c@example.com"), await send(store, clock, "b@example.com")]
    assert await found(store, span(text=text)) == ([ids[i] for i in expected], None)


async def test_a_page_looks_at_so_many_and_says_where_to_go_on(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "SCAN", 2)
    ids = [await send(store, clock, f"{name}@example.com") for name in "abcd"]
    assert await found(store, span(text="a@")) == ([], ids[2])
    assert (await found(store, span(text="a@", high=ids[2])))[0] == [ids[0]]


async def test_one_item(store: Store, clock: TestClock) -> None:
    id_ = await send(store, clock, "a@example.com", "b@example.com")
    real = await send(store, clock, "c@example.com", carrier=REAL)
    item = await store.database.read(partial(inbox.item, team=1, id_=id_, carriers=[SIMULATOR]))
    assert item and [one.given for one in item.recipients] == ["a@example.com", "b@example.com"]
    for team, other in ((2, id_), (1, real), (1, "eml_never")):
        assert await store.database.read(partial(inbox.item, team=team, id_=other, carriers=[SIMULATOR])) is None


async def test_codes_of_simulators_and_of_magic_numbers_until_cleared(store: Store, clock: TestClock, sql: Sql) -> None:
    inboxed, magic, real, failed = (start(clock, magic=n in (1, 3), sandbox=True) for n in range(4))
    live = start(clock, sandbox=False)
    for item in (inboxed, magic, real, failed, live):
        await store.verifications.start(item)
        done = finish(item, clock, "failed" if item is failed else "pending")
        await store.verifications.finish(replace(done, simulated=item is not real))
    codes = span(low="vrf_", high="vrf_~")
    lines, _ = await store.database.read(partial(inbox.codes, span=codes, now=clock.now()))
    assert {(line.id, line.magic) for line in lines} == {(inboxed.id, 0), (magic.id, 1)}
    entry = COMMAND_LINE.did(at=clock.now(), team="team_1", action="inbox.clear", subject="team_1")
    await store.database.write(partial(inbox.clear, team=1, entry=entry))
    assert await store.database.read(partial(inbox.cleared_at, team=1)) == entry.at
    assert await store.database.read(partial(inbox.cleared_at, team=2)) == 0
    assert await sql("SELECT action FROM audit") == [("inbox.clear",)]


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
