"""Scheduled WhatsApp messages are checked again when due: the template's status at Meta, and marketing opt-outs."""

from functools import partial
from typing import Any

import msgspec
import pytest

from heliograph.carrier_failover import CarrierFailover
from heliograph.carriers.contract import Carriers
from heliograph.deliver.dispatch import Dispatch
from heliograph.domain.delivery.content import WhatsappContent
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.sending.send_options import Timing
from heliograph.domain.setup.records import TeamRecord, Template, UpstreamState, UpstreamTemplate
from heliograph.domain.setup.snapshot import to_row
from heliograph.inbound.store.opt_outs import add_opt_outs
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.samples import PHONE, message

pytestmark = pytest.mark.anyio
CONTENT = msgspec.json.encode(WhatsappContent(template="parcel", language="en", body="Hi"))


async def end_of(store: Store, carriers: Carriers, clock: TestClock, **extra: Any) -> tuple[str, str | None]:
    """Return the final state of a message from the template, and its reason."""
    item = message(clock, PHONE, channel="whatsapp", content=CONTENT, **extra)
    await store.messages.accept(item)
    clock.forward(2 * HOUR_MS)
    (claim,) = await store.outbox.claim("phone", 10)
    assert await Dispatch(store, CarrierFailover(store, carriers, clock), clock).deliver(claim)
    stored = await store.messages.get(1, item.id)
    assert stored
    detail = msgspec.json.decode(stored.recipients[0].detail or "{}")
    return stored.status, detail.get("reason")


async def world(store: Store, category: Any, status: UpstreamState = "approved") -> None:
    team = TeamRecord(ref=1, id="team_a", name="A")
    template = Template(
        id="tpl_1", team="team_a", channel="whatsapp", name="Parcel", upstream_name="parcel", category=category
    )
    known = UpstreamTemplate(team="team_a", name="parcel", language="en", status=status, reason="FIRST_PAUSE")
    rows = [
        to_row("team", team.id, team, team.id),
        to_row("template", template.id, template, team.id),
        to_row("upstream_template", known.id, known, team.id),
    ]
    await set_up(store, rows=rows)


@pytest.mark.parametrize("status", ["rejected", "paused", "disabled"])
async def test_scheduled_message_with_a_template_revoked_by_meta_fails(
    store: Store, carriers: Carriers, clock: TestClock, status: UpstreamState
) -> None:
    await world(store, "UTILITY", status)
    due = clock.now() + HOUR_MS
    assert await end_of(store, carriers, clock, timing=Timing(due_at=due)) == ("failed", "template_unavailable")
    assert (await end_of(store, carriers, clock))[0] == "sent"  # accepted earlier: Meta decides


@pytest.mark.parametrize(
    ("category", "reason", "status"),
    [
        ("MARKETING", "marketing", "failed"),
        ("UTILITY", "marketing", "sent"),
        ("UTILITY", "text", "failed"),
        ("MARKETING", None, "sent"),
    ],
)
async def test_scheduled_message_after_a_marketing_opt_out_is_not_sent(
    store: Store, carriers: Carriers, clock: TestClock, category: str, reason: str | None, status: str
) -> None:
    await world(store, category)
    rows = [(1, PHONE, "whatsapp", reason, clock.now())] if reason else []
    await store.database.write(partial(add_opt_outs, rows=rows, publisher=store.setup.publisher))
    why = "opted_out" if status == "failed" else None
    assert await end_of(store, carriers, clock, timing=Timing(due_at=clock.now() + HOUR_MS)) == (status, why)
