"""A webhook that signs with a key pair: its page shows the public key, and delivery pages show no signature."""

import pytest

from heliograph.domain.setup.records import TeamRecord, Webhook
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.dashboard.inside import Pages, write_records
from tests.storage.test_idempotency import make_context

pytestmark = pytest.mark.anyio

HOOK = Webhook(id="whk_1", team="team_a", url="http://a.test/", secret="s", format="postal", public_key="MIIBpublic")


async def test_webhook_delivery_shows_key_but_no_signatures(store: Store, clock: TestClock) -> None:
    await write_records(
        store,
        ("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        ("webhook", "whk_1", HOOK, "team_a"),
    )
    pages = Pages(make_context(store, clock))
    assert "MIIBpublic" in (await pages.get("/dashboard/teams/team_a/webhooks/whk_1")).text
    tested = await pages.post("/dashboard/teams/team_a/webhooks/whk_1/test")
    event = tested.headers["location"].rpartition("=")[2]
    response = await pages.get(f"/dashboard/teams/team_a/webhooks/whk_1/deliveries/{event}")
    assert "X-Postal-Signature-256: …" in response.text
    assert '"event": "webhook.test"' in response.text
