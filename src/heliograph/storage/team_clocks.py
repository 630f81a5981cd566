"""Advances test clocks of teams; each stops where work is due, so that the work happens at its own time (ADR 0041)."""

from msgspec.structs import replace

from heliograph.domain.delivery.lanes import PRIORITIES, SLOTS, queue_of
from heliograph.domain.operations.team_clock import clock_of, next_stop
from heliograph.domain.setup.records import Team
from heliograph.domain.setup.snapshot import Setup, to_row
from heliograph.runtime.clock import Clock
from heliograph.storage import retention, setup
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.events import OWN
from heliograph.storage.setup import SetupStore

LANES = [(queue_of(lane, priority),) for lane in SLOTS for priority in PRIORITIES]


class TeamClocks:
    def __init__(self, database: Database, clock: Clock, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._setup = setup

    async def step(self, team: Team) -> bool:
        """Advance a team's clock to its next stop; return False if work due now is not finished yet."""
        seen = self._setup.current
        stop = await self._database.read(lambda tx: self._next_stop(tx, seen, team.record.id))
        if stop is None:
            return False
        if stop == clock_of(team).target:
            teams, moved = [one.record for one in seen.teams.values()], {**self._clock.moved, team.record.ref: stop}
            await retention.purge(self._database, self._clock.now(), teams, moved)
        await self._setup.write(team.record.id, lambda tx: self._move(tx, seen, team))
        return True

    async def _next_stop(self, tx: Tx, current: Setup, id_: str) -> int | None:
        team = current.teams[id_]
        ref = team.record.ref
        hooks = [(line,) for hook in current.webhooks.get(ref, ()) for line in (hook.id, hook.id + OWN)]
        ((due,),) = await tx.run("next_due", team=ref, lanes=LANES, webhooks=hooks)
        return next_stop(clock_of(team), due, self._clock.now())

    async def _move(self, tx: Tx, seen: Setup, team: Team) -> None:
        """Advance the clock under the setup lock.

        A concurrent second caller finds the clock already advanced, or work due, and does nothing.
        """
        current = await setup.locked(tx, seen)
        now = current.teams[team.record.id]
        if now.clock == team.clock and now.simulated:
            stop = await self._next_stop(tx, current, team.record.id)
            if stop is not None:
                moved = replace(clock_of(now), ahead=stop)
                await setup.save(tx, [to_row("test_clock", moved.team, moved, moved.team)], current.version)
