"""API keys: one audit entry per change, in its transaction, and what is refused."""

import msgspec
import pytest

from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InsufficientScope, InvalidApiKey, InvalidRequest, NotFound
from heliograph.domain.setup.key_restrictions import restrictions_revision
from heliograph.domain.setup.records import PERMITS_NOTHING, Key, KeyRestrictions
from heliograph.domain.setup.snapshot import Row
from heliograph.manage import keys
from heliograph.manage.keys import NewKey
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store
from tests.clocks import TestClock
from tests.setup_helpers import SET_UP

pytestmark = pytest.mark.anyio

ADA = Actor(kind="person", id="usr_ada", address="192.0.2.7")


async def test_key_change_writes_one_audit_entry(store: Store, teams: None) -> None:
    created = await keys.create(store, ADA, NewKey(team="team_1", name="server"))
    rotated = await keys.rotate(store, ADA, created.key.id, "team_1")
    await keys.revoke(store, COMMAND_LINE, created.key.id)
    await keys.revoke(store, COMMAND_LINE, created.key.id)  # changes nothing
    assert [(line.actor, line.action, line.subject, line.detail) for line in await store.audit.list_rows("team_1")] == [
        ("command line", "key.revoke", "server", created.key.id),
        ("usr_ada", "key.rotate", "server 2", rotated.key.id),
        ("usr_ada", "key.create", "server", created.key.id),
    ]


async def test_key_with_several_errors_reports_all_of_them(store: Store, clock: TestClock, teams: None) -> None:
    parameters = NewKey(
        team="team_1",
        name="a\nb",
        scopes=(),
        domain="other.test",
        expires_at=clock.now(),
        networks=("x",),
        passthrough="tpl_x",
    )
    with pytest.raises(InvalidRequest) as error:
        await keys.create(store, ADA, parameters)
    assert error.value.details
    assert set(error.value.details["fields"]) == {"name", "scopes", "domain", "expires_at", "networks", "passthrough"}
    assert await store.audit.list_rows(None) == []


async def test_key_name_must_be_unique(store: Store, teams: None) -> None:
    await keys.create(store, ADA, NewKey(team="team_1", name="server"))
    with pytest.raises(InvalidRequest, match="has this name"):
        await keys.create(store, ADA, NewKey(team="team_1", name="server"))
    await keys.create(store, ADA, NewKey(team="team_2", name="server"))


@pytest.mark.parametrize("team", [None, "team_1"])
async def test_unknown_key_cannot_be_revoked(store: Store, teams: None, team: str | None) -> None:
    other = await keys.create(store, ADA, NewKey(team="team_2"))
    with pytest.raises(NotFound):
        await keys.revoke(store, ADA, other.key.id if team else "none", team)


def of(key: Key) -> Actor:
    return Actor(kind="key", id=key.id)


async def test_revoked_key_cannot_create_rotate_or_revoke_keys(store: Store, teams: None) -> None:
    giver = (await keys.create(store, ADA, NewKey(team="team_1", scopes=("send", "manage")))).key
    await keys.revoke(store, ADA, giver.id)
    for ask in (
        lambda: keys.create(store, of(giver), NewKey(team="team_1")),
        lambda: keys.rotate(store, of(giver), giver.id),
        lambda: keys.revoke(store, of(giver), giver.id),
    ):
        with pytest.raises(InvalidApiKey):
            await ask()


async def test_key_revokes_itself_and_keys_that_it_could_have_created(store: Store, teams: None) -> None:
    wide = (await keys.create(store, ADA, NewKey(team="team_1", name="wide"))).key
    narrow = (await keys.create(store, ADA, NewKey(team="team_1", name="narrow", scopes=("manage",)))).key
    with pytest.raises(InsufficientScope):
        await keys.revoke(store, of(narrow), wide.id)
    await keys.revoke(store, of(narrow), narrow.id)
    assert [key.name for key in keys.keys_of(store.setup.current, "team_1") if key.revoked] == ["narrow"]


async def test_key_rotated_by_an_expiring_key_expires_with_it(store: Store, clock: TestClock, teams: None) -> None:
    end = clock.now() + DAY_MS
    giver = (await keys.create(store, ADA, NewKey(team="team_1", scopes=("manage",), expires_at=end))).key
    assert (await keys.rotate(store, of(giver), giver.id)).key.expires_at == end
    assert (await keys.rotate(store, ADA, giver.id)).key.expires_at is None


@pytest.mark.parametrize("name", ["", "  "])
async def test_key_name_given_must_not_be_empty(store: Store, teams: None, name: str) -> None:
    with pytest.raises(InvalidRequest, match="Enter a name"):
        await keys.create(store, ADA, NewKey(team="team_1", name=name))
    assert (await keys.create(store, ADA, NewKey(team="team_1"))).key.name.startswith("key ")


async def test_unreadable_key_is_revoked_but_neither_rotated_nor_changed(store: Store, teams: None) -> None:
    key = (await keys.create(store, ADA, NewKey(team="team_1", restrictions=KeyRestrictions(per_day=5)))).key
    newer = msgspec.to_builtins(key) | {"restrictions": {"per_day": 5, "per_minute": 1}}
    row = Row("key", key.id, "team_1", msgspec.json.encode(newer).decode())
    await store.setup.change(lambda current, _: SetupChange(rows=[row], audit=SET_UP))
    with pytest.raises(InvalidRequest, match="cannot read this key"):
        await keys.rotate(store, ADA, key.id, "team_1")
    with pytest.raises(InvalidRequest, match="cannot read this key"):
        await keys.set_restrictions(store, ADA, key.id, "team_1", None, restrictions_revision(PERMITS_NOTHING))
    assert [key.state for key in await keys.list_keys(store, "team_1", {})] == ["works"]
    await keys.revoke(store, ADA, key.id, "team_1")
    assert [key.state for key in await keys.list_keys(store, "team_1", {})] == ["revoked"]
