"""API keys: one audit entry with each change, in its transaction, and what is refused."""

import pytest

from heliograph.manage import keys
from heliograph.manage.keys import WantedKey
from heliograph.rules.audit import COMMAND_LINE, Actor
from heliograph.rules.refusals import InvalidRequest, NotFound
from heliograph.storage.store import Store
from tests.clocks import TestClock

pytestmark = pytest.mark.anyio

ADA = Actor(kind="person", id="usr_ada", address="192.0.2.7")


async def test_each_change_has_one_entry(store: Store, teams: None) -> None:
    made = await keys.create(store, ADA, WantedKey(team="team_1", name="server"))
    rotated = await keys.rotate(store, ADA, made.key.id, "team_1")
    await keys.revoke(store, COMMAND_LINE, made.key.id)
    await keys.revoke(store, COMMAND_LINE, made.key.id)  # changes nothing
    assert [(line.actor, line.action, line.subject, line.detail) for line in await store.audit.lines("team_1")] == [
        ("command line", "key.revoke", "server", made.key.id),
        ("usr_ada", "key.rotate", "server 2", rotated.key.id),
        ("usr_ada", "key.create", "server", made.key.id),
    ]


async def test_all_that_is_wrong_is_said_at_once(store: Store, clock: TestClock, teams: None) -> None:
    wanted = WantedKey(team="team_1", name="a\nb", scopes=(), domain="other.test", expires_at=clock.now())
    with pytest.raises(InvalidRequest) as refused:
        await keys.create(store, ADA, wanted)
    assert refused.value.details
    assert set(refused.value.details["fields"]) == {"name", "scopes", "domain", "expires_at"}
    assert await store.audit.lines(None) == []


async def test_a_name_is_taken_once(store: Store, teams: None) -> None:
    await keys.create(store, ADA, WantedKey(team="team_1", name="server"))
    with pytest.raises(InvalidRequest, match="has this name"):
        await keys.create(store, ADA, WantedKey(team="team_1", name="server"))
    await keys.create(store, ADA, WantedKey(team="team_2", name="server"))


@pytest.mark.parametrize("team", [None, "team_1"])
async def test_what_is_not_there_is_not_revoked(store: Store, teams: None, team: str | None) -> None:
    other = await keys.create(store, ADA, WantedKey(team="team_2"))
    with pytest.raises(NotFound):
        await keys.revoke(store, ADA, other.key.id if team else "none", team)
