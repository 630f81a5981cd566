"""A webhook that signs with a pair of keys: its page shows what verifies, and the page of a delivery no signature."""

import pytest

from heliograph.domain.setup.records import TeamRecord, Webhook
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, set_up
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

HOOK = Webhook(id="whk_1", team="team_a", url="http://a.test/", secret="s", format="postal", public_key="MIIBpublic")


async def test_its_key_is_shown_and_its_signatures_are_not(store: Store, clock: TestClock) -> None:
    await set_up(
        store,
        ("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        ("webhook", "whk_1", HOOK, "team_a"),
    )
    pages = Pages(make_context(store, clock))
    assert "MIIBpublic" in (await pages.get("/dashboard/teams/team_a/webhooks/whk_1")).text
    tested = await pages.post("/dashboard/teams/team_a/webhooks/whk_1/test")
    event = tested.headers["location"].rpartition("=")[2]
    told = await pages.get(f"/dashboard/teams/team_a/webhooks/whk_1/deliveries/{event}")
    assert "X-Postal-Signature-256: …" in told.text
    assert '"event": "webhook.test"' in told.text
