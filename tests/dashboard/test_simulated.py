"""A team whose messages are simulated sees this on its pages, on each message and when it goes live."""

from typing import Any

import msgspec
import pytest

from heliograph.domain.setup.records import CarrierRecord, Domain, TeamRecord
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.samples import message
from tests.storage.test_idempotency import make_context

HERE = "/dashboard/teams/team_acme"
RECORD = b'{"id":"eml_1","to":"ada@example.com"}'
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme")
    domain = Domain(id="dom_acme", team=record.id, name="acme.test", brand="Acme", verified=True, approved=True)
    await write_records(store, ("team", record.id, record, record.id), ("domain", domain.id, domain, record.id))
    return Pages(make_context(store, clock))


async def add_real_carriers(store: Store, *channels: Any) -> None:
    records = [CarrierRecord(id=channel, channel=channel, kind="test") for channel in channels]
    await write_records(store, *(("carrier", record.id, record, None) for record in records))


async def test_team_pages_name_simulated_channels(pages: Pages, store: Store) -> None:
    for path in ("", "/messages", "/templates", "/settings"):
        assert "Email, SMS and WhatsApp are simulated" in (await pages.get(HERE + path, "viewer")).text, path
    await add_real_carriers(store, "email")
    assert "SMS and WhatsApp are simulated:" in (await pages.get(HERE)).text
    await add_real_carriers(store, "sms", "whatsapp")
    assert "simulated:" not in (await pages.get(HERE)).text


@pytest.mark.parametrize(
    ("channels", "told"),
    [
        ((), "Email, SMS and WhatsApp are still simulated"),
        (("email", "sms"), "WhatsApp is still simulated"),
        (("email", "sms", "whatsapp"), "Messages are now sent to real recipients"),
    ],
)
async def test_going_live_warns_about_simulated_channels(
    pages: Pages, store: Store, channels: tuple[str, ...], told: str
) -> None:
    await add_real_carriers(store, *channels)
    is_real = len(channels) == 3
    assert ("sent to real recipients" in (await pages.get(f"{HERE}/settings")).html) is is_real
    response = await pages.post(f"{HERE}/settings/live")
    assert told in response.notice
    assert ("real recipients" in response.notice) is is_real
    page = (await pages.get(f"{HERE}/settings")).text
    assert ("Live Messages are sent to real recipients and count" in page) is is_real
    assert (told.replace("still simulated", "simulated and not really sent") in page) is not is_real


@pytest.mark.parametrize("who", [OPERATOR, "owner"])
async def test_go_live_checklist_links_operators_and_informs_others(pages: Pages, store: Store, who: str) -> None:
    record = msgspec.structs.replace(store.setup.current.teams["team_acme"].record, catch=True, mode="sandbox")
    await write_records(store, ("team", record.id, record, record.id))
    page = await pages.get(f"{HERE}/settings", who)
    assert "go to the test inbox only. " in page.text
    assert ('?tab=plan">Turn off inbox capture</a>' in page.html) is (who == OPERATOR)
    assert ("inbox only. Ask an operator." in page.text) is (who != OPERATOR)


@pytest.mark.parametrize(("detail", "shown"), [({"simulated": True}, True), ({"text": "simulated"}, False)])
async def test_simulated_message_says_so(
    pages: Pages, store: Store, clock: Any, detail: dict[str, Any], shown: bool
) -> None:
    item = message(clock)
    await store.messages.accept(
        msgspec.structs.replace(item, content=b'{"from_name":"","from_address":"","to":[],"subject":""}')
    )
    (claim,) = await store.outbox.claim("email", 1)
    change = RecipientUpdate(at=clock.now(), message=claim.message, position=0, claim=claim.token, target_status="sent")
    assert await store.outbox.record(msgspec.structs.replace(change, detail=detail))
    page = await pages.get(f"{HERE}/messages/{item.id}")
    assert ("(simulated)" in page.text) is shown
    assert ("Nothing was actually sent" in page.text, "The relay accepted the email." in page.text) == (
        shown,
        not shown,
    )
