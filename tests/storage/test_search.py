"""Search over all channels: filters, pages, recipients. test_search_index.py tests parts of texts."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.ids import ulid_ms
from heliograph.domain.limits import DAY_MS
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.search.message_search import MessageListRow, Search, SearchPage
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.fake_budget import room
from tests.storage.conftest import Sql
from tests.storage.samples import PHONE, finish, message, start

pytestmark = pytest.mark.anyio

CHANNEL = {"eml_": "email", "sms_": "sms", "wam_": "whatsapp"}


async def send(store: Store, clock: TestClock, prefix: str, address: str, team: int = 1, **more: Any) -> str:
    """Send a message, a second after the previous one."""
    clock.forward(1000)
    item = message(clock, address, team=team, channel=CHANNEL[prefix], **more)
    item = replace(item, id=prefix + item.id[4:])
    await store.messages.accept(item)
    return item.id


async def accept_recipient(store: Store, clock: TestClock, status: str | None = "delivered") -> None:
    for lane in ("email", "phone"):
        for claim in await store.outbox.claim(lane, 100):
            change = RecipientUpdate(
                message=claim.message,
                position=claim.position,
                claim=claim.token,
                at=clock.now(),
                target_status=status,
                carrier="sim",
            )
            await store.outbox.record(change)


@pytest.fixture
async def sent(store: Store, clock: TestClock) -> list[str]:
    """Send messages, oldest first: the first two are delivered, the third waits; the last belongs to team 2."""
    created = [
        await send(store, clock, "eml_", "ada@example.com", template_id="tpl_x", decide=None),
        await send(store, clock, "sms_", PHONE),
    ]
    await accept_recipient(store, clock)
    created.append(await send(store, clock, "wam_", PHONE))
    await send(store, clock, "eml_", "ada@example.com", team=2)
    return created


async def find(store: Store, team: int = 1, **more: Any) -> SearchPage[MessageListRow]:
    return await store.messages.search(team, Search(**{"limit": 100} | more))


def ids(result: SearchPage[Any]) -> list[str]:
    return [line.id for line in result.rows]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [2, 1, 0]),
        ({"channel": "sms"}, [1]),
        ({"status": "delivered"}, [1, 0]),
        ({"status": "failed"}, []),
        ({"template_id": "tpl_x"}, [0]),
        ({"address": PHONE}, [2, 1]),  # the third was not attempted yet
        ({"address": PHONE, "status": "sending"}, [2]),
        ({"address": "ada@example.com"}, [0]),
        ({"address": "ada@example.com", "channel": "sms"}, []),
        ({"address": "ada@example.com", "status": "delivered", "template_id": "tpl_x"}, [0]),
        ({"address": "nobody@example.com"}, []),
    ],
)
async def test_message_search_filters_select_matching_messages(
    store: Store, sent: list[str], more: dict[str, Any], expected: list[int]
) -> None:
    result = await find(store, **more)
    assert ids(result) == [sent[i] for i in expected]
    assert result.after is None


@pytest.mark.parametrize("more", [{}, {"address": "ada@example.com"}])
async def test_message_search_times_exclude_their_bounds(store: Store, clock: TestClock, more: dict[str, Any]) -> None:
    created = [await send(store, clock, "eml_", "ada@example.com") for _ in range(3)]
    await accept_recipient(store, clock)
    first = (await find(store)).rows[-1].created_at
    last = ulid_ms(created[2].removeprefix("eml_"))  # an id is generated before its message
    assert ids(await find(store, created_after=first, created_before=last, **more)) == [created[1]]


@pytest.mark.parametrize("more", [{}, {"address": "ada@example.com"}, {"status": "delivered"}])
async def test_message_search_pages_list_every_message_once(
    store: Store, clock: TestClock, more: dict[str, Any]
) -> None:
    created = [await send(store, clock, prefix, "ada@example.com") for prefix in [*CHANNEL] * 3]
    await accept_recipient(store, clock)
    seen: list[str] = []
    after = None
    for _ in range(5):
        result = await find(store, limit=2, before=after, **more)
        seen += ids(result)
        after = result.after
    assert seen == created[::-1]
    assert after is None


async def test_message_detail_includes_its_recipients_and_timeline(
    store: Store, clock: TestClock, sent: list[str]
) -> None:
    stored = await store.messages.get(1, sent[0])
    assert stored
    event = stored.events[0].id
    events = [("whk_x", 1, event, sent[0], clock.now())]
    await store.database.write(lambda tx: tx.run("insert_deliveries", deliveries=events))
    result = await store.messages.get_details(1, sent[0], ["whk_x"], room)
    assert result is not None
    assert result.row.content == '{"text":"hello"}'
    assert [event.status for event in result.events] == ["sent", "delivered"]
    assert result.recipients[0].carrier == "sim"
    (delivery,) = result.deliveries[event]
    assert (delivery.webhook, delivery.state, delivery.attempts) == ("whk_x", "waiting", [])
    assert await store.messages.get_details(2, sent[0], [], room) is None


async def test_message_page_version_changes_with_its_timeline(store: Store, clock: TestClock) -> None:
    id_ = await send(store, clock, "eml_", "ada@example.com")

    before = await store.page_versions.message(1, id_)
    await accept_recipient(store, clock)
    after = await store.page_versions.message(1, id_)
    assert before and after and before.version != after.version
    assert (before.has_ended, after.has_ended) == (False, True)


async def test_seen_recipients_are_deleted_with_their_message(
    store: Store, clock: TestClock, sent: list[str], sql: Sql
) -> None:
    assert await sql("SELECT count(*) FROM seen_recipient") == [(2,)]
    clock.forward(91 * DAY_MS)
    await store.maintenance.purge()
    assert await sql("SELECT count(*) FROM seen_recipient") == [(0,)]


async def test_verification_search_returns_matching_verifications(store: Store, clock: TestClock) -> None:
    started = [start(clock), start(clock, phone="+14155550101"), start(clock, team=2)]
    for item in started:
        await store.verifications.start(item)
        await store.verifications.finish(finish(item, clock))
        clock.forward(1000)

    async def listed(**more: Any) -> list[str]:
        return ids(await store.verifications.search(1, Search(limit=10, **more)))

    assert await listed() == [started[1].id, started[0].id]
    assert await listed(address=PHONE) == [started[0].id]
    assert await listed(status="verified") == []
    assert await listed(status="pending", before=started[1].id) == [started[0].id]
    clock.forward(DAY_MS)
    assert await listed(status="expired", address=PHONE) == [started[0].id]
    assert await store.verifications.get(2, started[0].id) is None
