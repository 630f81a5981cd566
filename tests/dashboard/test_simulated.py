"""A team whose messages end in a simulator is told so: on its pages, on the message, at going live."""

from typing import Any

import msgspec
import pytest

from heliograph.domain.setup.records import CarrierRecord, Domain, TeamRecord
from heliograph.storage.outcomes import Change
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.samples import message
from tests.storage.test_idempotency import make_context

HERE = "/dashboard/teams/team_acme"
RECORD = b'{"id":"eml_1","to":"ada@example.com"}'
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme")
    domain = Domain(id="dom_acme", team=record.id, name="acme.test", brand="Acme", verified=True, approved=True)
    await set_up(store, ("team", record.id, record, record.id), ("domain", domain.id, domain, record.id))
    return Pages(make_context(store, clock))


async def connect(store: Store, *channels: Any) -> None:
    records = [CarrierRecord(id=channel, channel=channel, kind="test") for channel in channels]
    await set_up(store, *(("carrier", record.id, record, None) for record in records))


async def test_every_page_of_the_team_names_the_channels(pages: Pages, store: Store) -> None:
    for path in ("", "/messages", "/templates", "/settings"):
        assert "Email, SMS and WhatsApp are simulated" in (await pages.get(HERE + path, "viewer")).text, path
    await connect(store, "email")
    assert "SMS and WhatsApp are simulated:" in (await pages.get(HERE)).text
    await connect(store, "sms", "whatsapp")
    assert "simulated:" not in (await pages.get(HERE)).text


@pytest.mark.parametrize(
    ("channels", "told"),
    [
        ((), "Email, SMS and WhatsApp are still simulated"),
        (("email", "sms"), "WhatsApp is still simulated"),
        (("email", "sms", "whatsapp"), "What it sends now reaches people"),
    ],
)
async def test_going_live(pages: Pages, store: Store, channels: tuple[str, ...], told: str) -> None:
    await connect(store, *channels)
    is_real = len(channels) == 3
    assert ("messages reach people" in (await pages.get(f"{HERE}/settings")).html) is is_real
    shown = await pages.post(f"{HERE}/settings/live")
    assert told in shown.notice
    assert ("reaches people" in shown.notice) is is_real
    page = (await pages.get(f"{HERE}/settings")).text
    assert ("Live Messages reach people, and count" in page) is is_real
    assert (told.replace("still simulated", "simulated: such messages") in page) is not is_real


@pytest.mark.parametrize("who", [OPERATOR, "owner"])
async def test_what_going_live_takes_is_said_to_who_can_do_it(pages: Pages, store: Store, who: str) -> None:
    record = msgspec.structs.replace(store.setup.current.teams["team_acme"].record, catch=True, mode="sandbox")
    await set_up(store, ("team", record.id, record, record.id))
    page = await pages.get(f"{HERE}/settings", who)
    assert "goes to the test inbox only. That must be off. " in page.text
    assert ('?tab=plan">Turn catching off</a>' in page.html) is (who == OPERATOR)
    assert ("be off. Ask an operator." in page.text) is (who != OPERATOR)


@pytest.mark.parametrize(("detail", "shown"), [({"simulated": True}, True), ({"text": "simulated"}, False)])
async def test_the_message_has_a_badge(
    pages: Pages, store: Store, clock: Any, detail: dict[str, Any], shown: bool
) -> None:
    item = message(clock)
    await store.messages.accept(
        msgspec.structs.replace(item, content=b'{"from_name":"","from_address":"","to":[],"subject":""}')
    )
    (claim,) = await store.outbox.claim("email", 1)
    change = Change(at=clock.now(), message=claim.message, position=0, claim=claim.held, wanted="sent")
    assert await store.outbox.record(msgspec.structs.replace(change, detail=detail))
    page = await pages.get(f"{HERE}/messages/{item.id}")
    assert ('class="badge wait simulated"' in page.html.partition("<main")[2]) is shown
    assert ("The simulator reports it as sent." in page.text, "The relay took it." in page.text) == (shown, not shown)
