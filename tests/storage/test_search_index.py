"""The trigram index: exact before and after it is built, with every filter; erased and deleted messages leave it."""

from collections import Counter
from functools import partial
from typing import Any

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.limits import DAY_MS
from heliograph.domain.operations.erasure import address_variants
from heliograph.domain.search.trigrams import BLOCK_SIZE, parse_query, text_terms
from heliograph.storage.erase import ErasureTarget
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.search import index
from heliograph.storage.search import query as finding
from heliograph.storage.search.message_search import Search
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import send_email

pytestmark = pytest.mark.anyio

FILLER = (
    "INSERT INTO message (key, id, team, channel, status, sandbox, key_id, price, charge, sequence, created_at,"
    " has_body, record) VALUES ({key}, 'eml_{key}', 9, 'email', 'delivered', 0, 'k', 0, 'none', 0, 0, 0, '{{}}')"
)


async def close_block(store: Store, clock: TestClock, sql: Sql) -> None:
    """Advance the keys, so that no further message can appear in the block of those sent."""
    ((newest,),) = await sql("SELECT max(key) FROM message")
    key = (newest // BLOCK_SIZE + 1) * BLOCK_SIZE
    await sql(FILLER.format(key=key))
    if "postgres" in type(store.database).__module__:
        await sql(f"SELECT setval('message_key_seq', {key})")
    clock.forward(index.SETTLED_MS + 1)


async def build(store: Store) -> None:
    for _ in range(20):
        await store.search_index.build_next()


async def found(store: Store, typed: str = "", team: int = 1, **more: Any) -> list[str]:
    page = await store.messages.search(team, Search(**{"limit": 100, "needle": parse_query(typed)} | more))
    assert not page.is_incomplete
    return [line.id for line in page.rows]


@pytest.fixture
async def sent(store: Store, clock: TestClock, sql: Sql) -> list[str]:
    """Send messages in three blocks: two in each of the first two, one in the last."""
    created = [
        await send_email(store, clock, "Your parcel 4711", "ada@example.com", key_id="k1", template_id="tpl_a"),
        await send_email(store, clock, "Receipt %_'", "bob@example.com", "cleo@shop.test", sender="a@other.test"),
    ]
    await send_email(store, clock, "Your parcel", "ada@example.com", team=2)
    await close_block(store, clock, sql)
    created.append(await send_email(store, clock, "Über 订单", "ada.lovelace@example.com", key_id="k1"))
    created.append(await send_email(store, clock, "your PARCEL 4712", "dan@example.org"))
    await close_block(store, clock, sql)
    created.append(await send_email(store, clock, "The newest parcel", "ada@example.com", template_id="tpl_a"))
    return created


async def test_search_with_an_unusual_newest_block_uses_the_most_selective_term(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 17):
        await send_email(store, clock, f"Order {number}", "ada@example.com")
    await close_block(store, clock, sql)
    await send_email(store, clock, "Hello", "bob@shop.test")
    await close_block(store, clock, sql)
    await build(store)
    monkeypatch.setattr(finding, "TERMS_MAX", 1)
    rarest = partial(finding._most_selective, terms=["ada", " 17"], built={0, 1})
    assert await store.database.read(rarest) == [" 17"]


FILTERS: list[tuple[str, dict[str, Any], list[int]]] = [
    ("parcel", {}, [4, 3, 0]),
    ("471", {}, [3, 0]),
    ("4711", {}, [0]),
    ("ada", {}, [4, 2, 0]),
    ("ada@example.com", {}, [4, 0]),
    ("shop.test", {}, [1]),
    ("a", {}, [4, 3, 2, 1, 0]),
    ("%_'", {}, [1]),
    ("%", {}, [1]),
    ("ü", {}, [2]),
    ("订单", {}, [2]),
    ("x" * 5000, {}, []),
    ("parcel", {"oldest_first": True}, [0, 3, 4]),
    ("", {"oldest_first": True}, [0, 1, 2, 3, 4]),
    ("", {"key_id": "k1"}, [2, 0]),
    ("ada", {"key_id": "k1", "template_id": "tpl_a"}, [0]),
    ("", {"domain": "other.test"}, [1]),
    ("", {"domain": "acme.test", "channel": "sms"}, []),
    ("parcel", {"status": "delivered"}, []),
    ("parcel", {"status": "sending", "channel": "email"}, [4, 3, 0]),
    ("hello@acme", {}, []),
]


@pytest.mark.parametrize("built", [False, True], ids=["before", "after"])
async def test_search_matches_parts_of_words_and_fields(store: Store, sql: Sql, sent: list[str], built: bool) -> None:
    if built:
        await build(store)
        assert await sql("SELECT span, gone FROM gram_span ORDER BY span") == [(0, 0), (1, 0)]
    for typed, more, expected in FILTERS:
        assert await found(store, typed, **more) == [sent[i] for i in expected], (typed, more)
    assert len(await found(store, "parcel", team=2)) == 1
    assert await found(store, "parcel", team=3) == []
    for id_ in sent:
        assert await found(store, id_[-6:].lower()) == [id_]
        assert id_ in await found(store, id_start=id_[:12])
        assert await found(store, id_start=id_[:-1]) == [id_]


@pytest.mark.parametrize("built", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("oldest_first", [False, True], ids=["newest", "oldest"])
async def test_indexed_search_pages_list_every_message_once(
    store: Store, sent: list[str], built: bool, oldest_first: bool
) -> None:
    if built:
        await build(store)
    seen: list[str] = []
    after = None
    for _ in range(3):
        expected = Search(limit=2, needle=parse_query("a"), before=after, oldest_first=oldest_first)
        page = await store.messages.search(1, expected)
        seen += [line.id for line in page.rows]
        after = page.after
    assert seen == (sent if oldest_first else sent[::-1])
    assert after is None


@pytest.mark.parametrize("built", [False, True], ids=["before", "after"])
async def test_indexed_search_scan_is_bounded_and_continues_from_a_cursor(
    store: Store, sent: list[str], monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    monkeypatch.setattr(finding, "READ_MAX", 1)
    monkeypatch.setattr(finding, "FIRST_BATCH", 1)
    if built:
        await build(store)
    seen: list[str] = []
    after, steps = None, 0
    while steps < 10:
        expected = Search(limit=1, needle=parse_query("4"), status="sending", before=after)
        page = await store.messages.search(1, expected)
        seen += [line.id for line in page.rows]
        after, steps = page.after, steps + 1
        if after is None:
            break
    assert seen == [sent[3], sent[0]]
    assert 2 < steps < 10


async def test_indexed_search_respects_time_bounds(store: Store, sent: list[str]) -> None:
    await build(store)
    lines = (await store.messages.search(1, Search(limit=9))).rows
    at = {line.id: line.created_at for line in lines}
    for typed in ("a", "ada"):
        inside = await found(store, typed, created_after=at[sent[0]], created_before=at[sent[4]])
        assert inside == [id_ for id_ in await found(store, typed) if id_ in sent[1:4]]


async def test_indexed_search_counts_up_to_a_limit(
    store: Store, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await build(store)
    cases: list[tuple[dict[str, Any], int]] = [({}, 5), ({"status": "sending"}, 5), ({"template_id": "tpl_a"}, 2)]
    for more, expected in cases:
        assert await store.messages.count(1, Search(limit=1, **more)) == (expected, False)
        assert await store.messages.count(1, Search(limit=1, **more), limit=1) == (1, True)
    assert await store.messages.count(1, Search(limit=1, needle=parse_query("parcel"))) == (3, False)
    assert await store.messages.count(3, Search(limit=1, needle=parse_query("parcel"))) == (0, False)
    monkeypatch.setattr(finding, "COUNT_BLOCKS_MAX", 1)
    assert await store.messages.count(1, Search(limit=1, needle=parse_query("parcel"))) == (1, True)


@pytest.mark.parametrize("oldest_first", [False, True], ids=["newest", "oldest"])
async def test_indexed_search_matches_the_state_of_any_recipient(
    store: Store, clock: TestClock, sent: list[str], oldest_first: bool
) -> None:
    for claim in await store.outbox.claim("email", 100):
        ends = "bounced" if claim.position else "delivered"
        change = RecipientUpdate(
            message=claim.message, position=claim.position, claim=claim.token, at=clock.now(), target_status=ends
        )
        await store.outbox.record(change)
    assert await found(store, failure="bounced", oldest_first=oldest_first) == [sent[1]]
    assert await found(store, "receipt", failure="bounced", oldest_first=oldest_first) == [sent[1]]
    assert await found(store, "parcel", failure="bounced", oldest_first=oldest_first) == []
    assert await found(store, failure="failed", oldest_first=oldest_first) == []
    assert await found(store, failure="bounced", team=2, oldest_first=oldest_first) == []
    assert await found(store, status="bounced") == []  # the status of the message is delivered
    ((key,),) = [(line.key,) for line in (await store.messages.search(1, Search(limit=9, failure="bounced"))).rows]
    assert await store.messages.count_recipients_by_state([key]) == {key: {"delivered": 1, "bounced": 1}}


# -- what leaves it ----------------------------------------------------------------------------------------------------


def erasing(address: str) -> ErasureTarget:
    return ErasureTarget(
        ref=1, team="team_a", variants=address_variants(address, address), address_hash="hash", webhooks=(), keys=()
    )


async def deliver(store: Store, clock: TestClock) -> None:
    for claim in await store.outbox.claim("email", 100):
        change = RecipientUpdate(
            message=claim.message, position=claim.position, claim=claim.token, at=clock.now(), target_status="delivered"
        )
        await store.outbox.record(change)


async def test_erased_address_is_removed_from_the_index_at_once(
    store: Store, clock: TestClock, sql: Sql, sent: list[str]
) -> None:
    await deliver(store, clock)
    await build(store)
    ada = text_terms('{"to":"ada.lovelace@example.com"}')
    others = text_terms('{"to":"dan@example.org","subject":"your PARCEL 4712"}')
    alone = sorted(ada - others - text_terms('{"to":"erased@erased.invalid","subject":"[erased]"}'))
    marks = ", ".join(f"'{mark}'" for mark in alone)
    assert await sql(f"SELECT count(*) FROM gram WHERE span = 1 AND mark IN ({marks})") == [(len(alone),)]
    expected = erasing("ada.lovelace@example.com")
    await store.erasures.begin(expected, COMMAND_LINE.audit_entry(clock.now(), "test", ""))
    assert await store.erasures.erase(expected, clock.now(), lambda what, done: None) == 1
    assert await sql(f"SELECT count(*) FROM gram WHERE span = 1 AND mark IN ({marks})") == [(0,)]
    assert await found(store, "lovelace") == []
    assert await found(store, "订单") == []  # the subject was erased too
    assert await found(store, "4712") == [sent[3]]
    assert await found(store, key_id="k1") == [sent[2], sent[0]]


async def test_address_erased_during_indexing_stays_removed(
    store: Store, clock: TestClock, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await deliver(store, clock)
    expected = erasing("ada.lovelace@example.com")
    packed, erased = index._index_rows, list[int]()

    async def slowly(span: int, marks: Any) -> Any:
        lists = await packed(span, marks)
        if not erased:
            erased.append(span)
            await store.erasures.begin(expected, COMMAND_LINE.audit_entry(clock.now(), "test", ""))
            await store.erasures.erase(expected, clock.now(), lambda what, done: None)
        return lists

    monkeypatch.setattr(index, "_index_rows", slowly)
    await build(store)
    assert erased
    assert await found(store, "lovelace") == []
    assert await found(store, "4711") == [sent[0]]


async def test_deleted_messages_are_removed_from_the_index(
    store: Store, clock: TestClock, sql: Sql, sent: list[str]
) -> None:
    await deliver(store, clock)
    await build(store)
    clock.forward(91 * DAY_MS)
    newest = await send_email(store, clock, "Your parcel 4713", "ada@example.com")
    await sql("UPDATE message SET ended_at = NULL WHERE team = 9")
    await sql("UPDATE message SET ended_at = NULL WHERE key = 1")
    await store.maintenance.purge()
    assert await sql("SELECT span, gone FROM gram_span ORDER BY span") == [(0, 2), (1, 2)]
    assert await found(store, "parcel") == [newest, sent[0]]
    clock.forward(index.STALE_MS + 1)
    await build(store)
    assert await sql("SELECT span, gone FROM gram_span ORDER BY span") == [(0, 0), (1, 0)]
    assert await sql("SELECT count(*) FROM gram WHERE mark IN ('471', 'rec', 'lov')") == [(1,)]
    assert await found(store, "parcel") == [newest, sent[0]]


async def test_index_blocks_before_the_first_message_are_deleted(
    store: Store, clock: TestClock, sql: Sql, sent: list[str]
) -> None:
    await deliver(store, clock)
    await build(store)
    clock.forward(91 * DAY_MS)
    await sql(f"DELETE FROM message WHERE team = 9 AND key < {2 * BLOCK_SIZE}")
    await store.maintenance.purge()
    assert await sql("SELECT count(*) FROM gram_span") == [(0,)]
    assert await sql("SELECT count(*) FROM gram") == [(0,)]


async def test_index_block_is_built_once_by_two_processes(
    store: Store, other: Store, sql: Sql, sent: list[str]
) -> None:
    for _ in range(10):
        await store.search_index.build_next()
        await other.search_index.build_next()
    assert not await store.search_index.build_next()
    assert await found(other, "4711") == [sent[0]]


async def test_index_block_waits_for_uncommitted_messages(store: Store, clock: TestClock, sql: Sql) -> None:
    await send_email(store, clock, "Your parcel", "ada@example.com")
    await sql(FILLER.format(key=BLOCK_SIZE))
    assert not await store.search_index.build_next()
    clock.forward(index.SETTLED_MS + 1)
    assert await store.search_index.build_next()
    assert await sql("SELECT span FROM gram_span") == [(0,)]


@pytest.mark.parametrize("oldest_first", [False, True], ids=["newest", "oldest"])
async def test_search_across_a_gap_between_keys_reads_only_existing_rows(
    store: Store, clock: TestClock, sql: Sql, monkeypatch: pytest.MonkeyPatch, oldest_first: bool
) -> None:
    """As after a move between nodes, whose sequences are far apart."""
    addresses = [f"{name}@example.com" for name in ("ada", "bob", "cleo")]
    sent = [await send_email(store, clock, "Your parcel", addresses[0])]
    for place, address in ((2**48, addresses[1]), (2**48 + 5 * BLOCK_SIZE, addresses[2])):
        await sql(FILLER.format(key=place))
        if "postgres" in type(store.database).__module__:
            await sql(f"SELECT setval('message_key_seq', {place})")
        sent.append(await send_email(store, clock, "Your parcel", address))
    for claim in await store.outbox.claim("email", 100):
        held = {"message": claim.message, "position": claim.position, "claim": claim.token}
        assert await store.outbox.record(RecipientUpdate(at=clock.now(), target_status="sent", accepted=True, **held))  # type: ignore[arg-type]
    await close_block(store, clock, sql)
    counts = Counter[str]()
    kind: Any = type(await store.database.read(_own))
    run = kind.run

    async def counted(tx: Any, query: str, **params: Any) -> Any:
        counts[query] += 1
        return await run(tx, query, **params)

    monkeypatch.setattr(kind, "run", counted)
    expected = sent if oldest_first else sent[::-1]
    for _ in ("before it is built", "after"):
        assert await found(store, "parcel", oldest_first=oldest_first) == expected
        assert [await found(store, address=address) for address in addresses] == [[id_] for id_ in sent]
        await build(store)
    assert max(counts.values()) < 100
    assert [span for (span,) in await sql("SELECT span FROM gram_span ORDER BY span")] == [
        *(key // BLOCK_SIZE for key in (0, 2**48, 2**48 + 5 * BLOCK_SIZE))
    ]


async def _own(tx: Any) -> Any:
    return tx
