"""API keys: one audit entry with each change, in its transaction, and what is refused."""

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InsufficientScope, InvalidApiKey, InvalidRequest, NotFound
from heliograph.domain.setup.records import Key
from heliograph.manage import keys
from heliograph.manage.keys import WantedKey
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
    wanted = WantedKey(
        team="team_1",
        name="a\nb",
        scopes=(),
        domain="other.test",
        expires_at=clock.now(),
        networks=("x",),
        passthrough="tpl_x",
    )
    with pytest.raises(InvalidRequest) as refused:
        await keys.create(store, ADA, wanted)
    assert refused.value.details
    assert set(refused.value.details["fields"]) == {"name", "scopes", "domain", "expires_at", "networks", "passthrough"}
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


def of(key: Key) -> Actor:
    return Actor(kind="key", id=key.id)


async def test_a_key_that_was_revoked_meanwhile_gives_nothing(store: Store, teams: None) -> None:
    giver = (await keys.create(store, ADA, WantedKey(team="team_1", scopes=("send", "manage")))).key
    await keys.revoke(store, ADA, giver.id)
    for ask in (
        lambda: keys.create(store, of(giver), WantedKey(team="team_1")),
        lambda: keys.rotate(store, of(giver), giver.id),
        lambda: keys.revoke(store, of(giver), giver.id),
    ):
        with pytest.raises(InvalidApiKey):
            await ask()


async def test_a_key_revokes_itself_and_what_it_could_have_given(store: Store, teams: None) -> None:
    wide = (await keys.create(store, ADA, WantedKey(team="team_1", name="wide"))).key
    narrow = (await keys.create(store, ADA, WantedKey(team="team_1", name="narrow", scopes=("manage",)))).key
    with pytest.raises(InsufficientScope):
        await keys.revoke(store, of(narrow), wide.id)
    await keys.revoke(store, of(narrow), narrow.id)
    assert [key.name for key in keys.keys_of(store.setup.current, "team_1") if key.revoked] == ["narrow"]


async def test_what_an_expiring_key_rotates_ends_with_it(store: Store, clock: TestClock, teams: None) -> None:
    end = clock.now() + DAY_MS
    giver = (await keys.create(store, ADA, WantedKey(team="team_1", scopes=("manage",), expires_at=end))).key
    assert (await keys.rotate(store, of(giver), giver.id)).key.expires_at == end
    assert (await keys.rotate(store, ADA, giver.id)).key.expires_at is None


@pytest.mark.parametrize("name", ["", "  "])
async def test_a_name_that_is_given_is_one(store: Store, teams: None, name: str) -> None:
    with pytest.raises(InvalidRequest, match="a name of one line"):
        await keys.create(store, ADA, WantedKey(team="team_1", name=name))
    assert (await keys.create(store, ADA, WantedKey(team="team_1"))).key.name.startswith("key ")
