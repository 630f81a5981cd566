"""Advances test clocks of teams.

A clock stops at every time at which work is due, so that the work happens at its due time (ADR 0041).
"""

from msgspec.structs import replace

from heliograph.domain.operations.team_clock import next_offset, require_test_clock
from heliograph.domain.setup.records import Team
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.runtime.clock import Clock
from heliograph.storage import retention, setup
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import CALLBACK_SUFFIX
from heliograph.storage.queues import QUEUES_AND_HELD
from heliograph.storage.setup import SetupStore


class TeamClocks:
    def __init__(self, database: Database, clock: Clock, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._setup = setup

    async def advance(self, team: Team) -> bool:
        """Advance a team's clock to its next stop; return False if work due now is not finished yet."""
        last_setup = self._setup.current
        next_time = await self._database.read(lambda tx: self._next_stop(tx, last_setup, team.record.id))
        if next_time is None:
            return False
        if next_time == require_test_clock(team).target:
            teams = [other_team.record for other_team in last_setup.teams.values()]
            clock_offsets = {**self._clock.offsets, team.record.ref: next_time}
            await retention.purge(self._database, self._clock.now(), teams, clock_offsets)
        await self._setup.write_and_refresh(team.record.id, lambda tx: self._advance_locked(tx, last_setup, team))
        return True

    async def _next_stop(self, tx: Tx, current: Setup, id_: str) -> int | None:
        team = current.teams[id_]
        team_ref = team.record.ref
        webhooks = [
            (webhook_id,)
            for webhook in current.webhooks.get(team_ref, ())
            for webhook_id in (webhook.id, webhook.id + CALLBACK_SUFFIX)
        ]
        ((due,),) = await tx.run("next_due", team=team_ref, lanes=QUEUES_AND_HELD, webhooks=webhooks)
        return next_offset(require_test_clock(team), due, self._clock.now())

    async def _advance_locked(self, tx: Tx, last_setup: Setup, team: Team) -> None:
        """Advance the team's clock under the setup lock, unless another caller has advanced it, or work is due."""
        current = await setup.lock_and_read(tx, last_setup)
        current_team = current.teams[team.record.id]
        if current_team.clock == team.clock and current_team.simulated:
            next_time = await self._next_stop(tx, current, team.record.id)
            if next_time is not None:
                new_clock = replace(require_test_clock(current_team), ahead=next_time)
                row = to_row("test_clock", new_clock.team, new_clock, new_clock.team)
                await setup.save_rows(tx, [row], current.version)
