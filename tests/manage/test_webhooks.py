"""Webhooks in the store: what the API does not show."""

import asyncio

import pytest
from msgspec.structs import replace

from heliograph.app import make_webhooks
from heliograph.manage.webhooks import WebhookRequest, Webhooks
from heliograph.rules.refusals import InvalidRequest, WebhookNotFound
from heliograph.rules.setup.records import TeamRecord
from heliograph.rules.setup.snapshot import to_row
from heliograph.rules.setup.webhook import WEBHOOKS_MAX
from heliograph.settings import Settings
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store
from tests.clocks import TestClock

pytestmark = pytest.mark.anyio

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WANTED = WebhookRequest(url="http://127.0.0.1:9/", events=["*"], secret=SECRET)


@pytest.fixture
async def webhooks(settings: Settings, store: Store, clock: TestClock) -> Webhooks:
    teams = [TeamRecord(ref=ref, id=f"team_{ref}", name="T") for ref in (1, 2)]
    await store.setup.change(lambda _, __: SetupChange(rows=[to_row("team", t.id, t, t.id) for t in teams]))
    return make_webhooks(replace(settings, webhook_allow_private=("127.0.0.0/8",)), store, clock)


async def test_secrets_are_sealed_at_rest(webhooks: Webhooks, store: Store) -> None:
    hook, first = await webhooks.create("team_1", WANTED)
    _, second = await webhooks.rotate("team_1", hook.id)
    rows = await store.database.read(lambda tx: tx.run("load_settings", since=0))
    assert hook.id in str(rows)
    for secret in (first, second):
        assert secret not in str(rows)
        assert secret.removeprefix("whsec_") not in str(rows)


async def test_a_removed_webhook_leaves_nothing_to_be_told(webhooks: Webhooks, store: Store) -> None:
    (hook, _), (other, _) = [await webhooks.create("team_1", WANTED) for _ in range(2)]
    await webhooks.test("team_1", hook.id)
    await webhooks.test("team_1", other.id)
    await webhooks.remove("team_1", hook.id)
    assert await store.deliveries.page(hook.id, None, 10) == []
    assert len(await store.deliveries.page(other.id, None, 10)) == 1
    assert store.setup.current.webhooks == {1: (other,)}


async def test_another_team_changes_nothing(webhooks: Webhooks, store: Store) -> None:
    hook, _ = await webhooks.create("team_1", WANTED)
    for attempt in (webhooks.remove, webhooks.rotate, webhooks.test):
        with pytest.raises(WebhookNotFound):
            await attempt("team_2", hook.id)
    assert store.setup.current.webhooks == {1: (hook,)}


async def test_the_limit_holds_for_requests_at_once(webhooks: Webhooks, store: Store) -> None:
    hook, _ = await webhooks.create("team_1", WANTED)
    more = [replace(hook, id=f"{hook.id}{number}") for number in range(WEBHOOKS_MAX - 2)]
    rows = [to_row("webhook", one.id, one, "team_1") for one in more]
    await store.setup.change(lambda _, __: SetupChange(rows=rows))
    made = await asyncio.gather(*(webhooks.create("team_1", WANTED) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in made].count(InvalidRequest) == 2
    assert len(store.setup.current.teams["team_1"].webhooks) == WEBHOOKS_MAX
    await webhooks.create("team_2", WANTED)
