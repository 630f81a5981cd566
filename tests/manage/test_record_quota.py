"""The records that a team can create are limited, because every process holds them in memory; the shell is exempt."""

from collections.abc import Awaitable, Callable

import pytest

from heliograph.changes import fields
from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.snapshot import to_row
from heliograph.manage import keys, recipients, senders
from heliograph.manage.keys import NewKey
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.manage.conftest import ADA
from tests.setup_helpers import set_up

pytestmark = pytest.mark.anyio

SHOP = Domain(id="dom_shop", team="team_1", name="shop.test", brand="Shop", verified=True, approved=True)


async def add_name(store: Store, actor: Actor, number: int) -> None:
    await senders.submit_name(store, actor, "team_1", SHOP.id, f"Shop {number}")


async def add_recipient(store: Store, actor: Actor, number: int) -> None:
    await recipients.add(store, actor, "team_1", f"ada{number}@example.com")


async def add_key(store: Store, actor: Actor, number: int) -> None:
    await keys.create(store, actor, NewKey(team="team_1", name=f"key {number}"))


@pytest.mark.parametrize(
    ("add", "what"),
    [(add_name, "display names"), (add_recipient, "recipients"), (add_key, "keys that work")],
)
async def test_team_has_a_record_limit(
    store: Store,
    teams: None,
    monkeypatch: pytest.MonkeyPatch,
    add: Callable[[Store, Actor, int], Awaitable[None]],
    what: str,
) -> None:
    monkeypatch.setattr(fields, "RECORDS_MAX", 2)
    await set_up(store, rows=[to_row("domain", SHOP.id, SHOP, SHOP.team)])
    for number in range(2):
        await add(store, ADA, number)
    with pytest.raises(InvalidRequest, match=f"at most 2 {what}. Remove one"):
        await add(store, ADA, 2)
    await add(store, COMMAND_LINE, 3)


async def test_key_creation_limit_includes_revoked_and_expired_keys(
    store: Store, teams: None, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "CREATED_MAX", 3)
    for _ in range(2):
        created = await keys.create(store, ADA, NewKey(team="team_1"))
        await keys.revoke(store, ADA, created.key.id)
    created = await keys.create(store, ADA, NewKey(team="team_1"))
    with pytest.raises(
        InvalidRequest,
        match="at most 3 keys made within 30 days, with those that were revoked. Use existing keys, or",
    ):
        await keys.rotate(store, ADA, created.key.id, "team_1")
    await keys.create(store, ADA, NewKey(team="team_2"))
    clock.forward(keys.CREATED_WINDOW_MS)
    await keys.rotate(store, ADA, created.key.id, "team_1")  # however many were revoked before


async def test_team_at_its_key_limit_may_rotate_a_key(
    store: Store, teams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "RECORDS_MAX", 1)
    created = await keys.create(store, ADA, NewKey(team="team_1"))
    await keys.rotate(store, ADA, created.key.id, "team_1")
    with pytest.raises(InvalidRequest, match="at most 1 keys that work"):
        await keys.create(store, ADA, NewKey(team="team_1"))
