"""The suppression list: one audit entry per change, in its transaction, and none without a change."""

import pytest

from heliograph.domain.audit.actor import COMMAND_LINE, Actor
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, SuppressionNotFound
from heliograph.domain.setup.records import TeamRecord
from heliograph.manage import imports, suppressions
from heliograph.storage.store import Store

pytestmark = pytest.mark.anyio

KEY = Actor(kind="key", id="4fTzQ8kW1b", address="192.0.2.7")


def team(store: Store) -> TeamRecord:
    return store.setup.current.teams["team_1"].record


async def entries(store: Store) -> list[tuple[str, str, str, str]]:
    return [(line.actor, line.action, line.subject, line.detail) for line in await store.audit.list_rows("team_1")]


async def test_suppression_change_writes_one_audit_entry(store: Store, teams: None) -> None:
    assert await suppressions.add(store, KEY, team(store), "Ada@Example.com", "bounce")
    assert not await suppressions.add(store, KEY, team(store), "ada@example.com", "manual")
    assert (await suppressions.find(store, team(store), "ada@example.com")).reason == "bounce"
    await suppressions.remove(store, COMMAND_LINE, team(store), "ADA@example.com")
    with pytest.raises(SuppressionNotFound):
        await suppressions.remove(store, COMMAND_LINE, team(store), "ada@example.com")
    assert await entries(store) == [
        ("command line", "suppression.remove", "ADA@example.com", ""),
        ("key 4fTzQ8kW1b", "suppression.add", "Ada@Example.com", "bounce"),
    ]


@pytest.mark.parametrize(
    ("email", "reason", "refusal", "param"),
    [("ada", "manual", InvalidEmail, "email"), ("ada@example.com", "bored", InvalidRequest, "reason")],
)
async def test_suppression_invalid_is_refused(
    store: Store, teams: None, email: str, reason: str, refusal: type[InvalidRequest], param: str
) -> None:
    with pytest.raises(refusal) as error:
        await suppressions.add(store, KEY, team(store), email, reason)
    assert error.value.param == param
    assert await entries(store) == []


async def test_suppression_import_has_its_audit_entry_from_the_start(store: Store, teams: None) -> None:
    id_ = await imports.begin_suppression_import(store, KEY, team(store), b"a@example.com\nb@example.com")
    assert await entries(store) == [("key 4fTzQ8kW1b", "suppression.import", id_, "2 lines")]
    assert await store.imports.list_open() == [id_]
    with pytest.raises(InvalidRequest, match="no addresses"):
        await imports.begin_suppression_import(store, KEY, team(store), b"email")
    assert len(await entries(store)) == 1
