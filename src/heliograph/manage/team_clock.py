"""Advances a team's test clock, for tests of integrations."""

from heliograph.domain.audit.actor import Actor
from heliograph.domain.operations.team_clock import advance_clock, require_test_clock
from heliograph.domain.setup.records import Team
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.storage.setup import SetupChange
from heliograph.storage.store import Store


async def advance(store: Store, actor: Actor, team: Team, seconds: int) -> None:
    """Set the target time of the team's test clock; workers process all due work in order until it is reached."""
    id_ = team.record.id

    def build_change(current: Setup, _: int) -> SetupChange:
        clock = advance_clock(require_test_clock(current.teams[id_]), seconds)
        entry = actor.audit_entry(store.clock.now(), "team.advance", id_, f"{seconds} s", team=id_)
        return SetupChange(rows=[to_row("test_clock", id_, clock, id_)], audit=entry)

    await store.setup.change(build_change, id_)
