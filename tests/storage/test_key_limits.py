"""Limits of restricted keys in the accept transaction: no race and no failure exceeds them."""

import asyncio
from typing import Any

import msgspec
import pytest

from heliograph.domain.refusals import KeyLimitReached
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import Acceptance, AcceptedRecipient, AcceptState, Decision
from heliograph.domain.sending.key_limits import count_use, limit_states
from heliograph.domain.setup.records import Key, KeyRestrictions
from heliograph.storage.store import Store
from heliograph.storage.verifications import Resend
from tests.clocks import TestClock
from tests.storage.conftest import Sql
from tests.storage.samples import KEY, RIGHT, digest, finish, message, start

pytestmark = pytest.mark.anyio
AT_ONCE = 64


def limited_key(**restrictions: Any) -> Key:
    return Key(id=KEY, team="team_a", name="agent", hash="", restrictions=KeyRestrictions(**restrictions))


def limited(clock: TestClock, key: Key, *, recipients: int = 1, price: int = 0) -> Acceptance:
    """Return a message of a restricted key."""
    to = [f"ada{number}@example.com" for number in range(recipients)]

    def decide(state: AcceptState) -> Decision:
        count_use(state.account, key, recipients, price, item.created_at)
        pricing.hold(state.account, price)
        response = msgspec.json.encode({"id": item.id})
        return Decision(response, [AcceptedRecipient(address, address, "to") for address in to], price=price)

    item = message(clock, *to, decide=decide)
    return item


async def test_concurrent_sends_of_two_processes_stop_at_the_limit(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    key = limited_key(per_day=25)
    sends = [limited(clock, key, recipients=number % 3 + 1) for number in range(AT_ONCE)]
    results = await asyncio.gather(
        *((store, other)[number % 2].messages.accept(send) for number, send in enumerate(sends)),
        return_exceptions=True,
    )
    assert {type(result) for result in results if isinstance(result, BaseException)} == {KeyLimitReached}
    ((written,),) = await sql("SELECT count(*) FROM recipient")
    assert written in (24, 25)
    account = await store.ledger.get_account(1)
    assert limit_states(account, key, clock.now())["per_day"].left == 25 - written


async def test_concurrent_spend_of_two_processes_stops_at_the_limit(
    store: Store, other: Store, clock: TestClock, sql: Sql
) -> None:
    key = limited_key(spend_per_day=1000)
    sends = [limited(clock, key, price=45) for _ in range(AT_ONCE)]
    await asyncio.gather(
        *((store, other)[number % 2].messages.accept(send) for number, send in enumerate(sends)),
        return_exceptions=True,
    )
    assert await sql("SELECT sum(amount) FROM ledger WHERE kind = 'hold'") == [(22 * 45,)]


async def test_limit_of_a_key_notifies_the_team_once_a_day(store: Store, clock: TestClock, sql: Sql) -> None:
    key = limited_key(per_day=1)
    for _ in range(3):
        await asyncio.gather(*(store.messages.accept(limited(clock, key)) for _ in range(3)), return_exceptions=True)
    notices = await sql("SELECT team, kind, facts FROM happening WHERE kind = 'key_limit'")
    assert notices == [("#1", "key_limit", '{"key":"key"}')]


async def test_verifications_count_starts_and_resends(store: Store, clock: TestClock) -> None:
    key = limited_key(per_day=2, spend_per_day=1_000_000)
    first = start(clock, price=500, restricted_key=key)
    await store.verifications.start(first)
    account = await store.ledger.get_account(1)
    states = limit_states(account, key, clock.now())
    assert (states["per_day"].left, states["spend_per_day"].left) == (1, 999_500)
    await store.verifications.start(start(clock, phone="+14155550101", price=0, restricted_key=key))
    with pytest.raises(KeyLimitReached):
        await store.verifications.start(start(clock, phone="+14155550102", restricted_key=key))


async def test_failed_verification_gives_its_spend_back_and_not_its_count(store: Store, clock: TestClock) -> None:
    key = limited_key(per_day=1, spend_per_day=500)
    started = start(clock, price=500, restricted_key=key)
    await store.verifications.start(started)
    await store.verifications.finish(finish(started, clock, "failed"))
    states = limit_states(await store.ledger.get_account(1), key, clock.now())
    assert (states["per_day"].left, states["spend_per_day"].left) == (0, 500)


async def test_resends_count_and_notify(store: Store, clock: TestClock, sql: Sql) -> None:
    key = limited_key(per_day=2)
    started = start(clock, restricted_key=key)
    await store.verifications.start(started)
    await store.verifications.finish(finish(started, clock))
    again = Resend(start=started, digest=digest(RIGHT))
    await store.verifications.resend(again)
    await store.verifications.finish(finish(started, clock))
    with pytest.raises(KeyLimitReached):
        await store.verifications.resend(again)
    assert await sql("SELECT count(*) FROM happening WHERE kind = 'key_limit'") == [(1,)]
