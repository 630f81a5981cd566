"""A store on both databases with two teams."""

import pytest

from heliograph.domain.audit.actor import Actor
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.setup.snapshot import to_row
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store
from tests.setup_helpers import set_up

CREDIT = 1_000_000
TEAMS = ("team_1", "team_2")
ADA = Actor(kind="person", id="usr_ada", address="192.0.2.7")


async def list_entries(store: Store, team: str | None = None) -> list[tuple[str, str, str, str]]:
    """Return the audit entries, newest first."""
    return [(line.actor, line.action, line.subject, line.detail) for line in await store.audit.list_rows(team)]


@pytest.fixture
async def teams(store: Store) -> None:
    records = [TeamRecord(ref=ref, id=id_, name=id_, currency="USD") for ref, id_ in enumerate(TEAMS, 1)]
    rows = [to_row("team", record.id, record, record.id) for record in records]
    new = [NewTeam(record.ref, CREDIT) for record in records]
    await set_up(store, rows=rows, new_teams=new)
