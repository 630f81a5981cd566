"""What a team keeps when its test clock is turned off."""

import pytest

from heliograph.domain.setup.records import Key, Team, TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.purge import delete_team_data
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.setup_helpers import set_up
from tests.storage.conftest import CREDIT, Sql
from tests.storage.samples import KEY, message, retry_key
from tests.storage.test_outbox import sent

pytestmark = pytest.mark.anyio


async def test_unsent_live_message_survives_the_end_of_a_test_clock_and_settles_its_hold(
    store: Store, clock: TestClock, sql: Sql
) -> None:
    await set_up(store, rows=[to_row("key", KEY, Key(id=KEY, name="server", hash="", team="team_a"), "team_a")])
    ended = message(clock, price=10)
    await store.messages.accept(ended)
    (claim,) = await store.outbox.claim("email", 1)
    assert await store.outbox.record(sent(claim, clock, "failed"))
    waiting = message(clock, price=30, idempotency_key=retry_key("key"))
    await store.messages.accept(waiting)
    await store.messages.accept(message(clock, sandbox=True))
    team = Team(record=TeamRecord(ref=1, id="team_a", name="A", test_clock=True))
    await store.database.write(lambda tx: delete_team_data(tx, team))
    assert await sql("SELECT id FROM message") == [(waiting.id,)]
    again = await store.messages.accept(message(clock, price=30, idempotency_key=retry_key("key")))
    assert again.replayed
    (claim,) = await store.outbox.claim("email", 10)
    assert claim.message_id == waiting.id
    assert await store.outbox.record(sent(claim, clock))
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (CREDIT - 30, 0)
