"""Reputation: the bounces and complaints of each team, and what they lead to."""

from heliograph.clock import Clock
from heliograph.rules.audit import AuditEntry
from heliograph.rules.reputation import WINDOW_MS, WINDOW_SENDS, Counts, changed, is_paused
from heliograph.rules.setup.records import Reputation
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage.engine.database import Database
from heliograph.storage.setup import SetupChange, SetupStore


class Reputations:
    def __init__(self, database: Database, clock: Clock, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._setup = setup

    async def counts(self) -> dict[int, Counts]:
        """What the guard judges by, for each team that has sent in the last days."""
        after = self._clock.now() - WINDOW_MS
        rows = await self._database.read(lambda tx: tx.run("newest_reputation", after=after, enough=WINDOW_SENDS))
        return {row[0]: Counts(*row[1:]) for row in rows}

    async def judge(self) -> list[Reputation]:
        """Warn teams, pause their direct sends, or find them well again; answers what changed."""
        seen = self._setup.current
        records = changed(seen.teams.values(), await self.counts(), self._clock.now())
        if not records:
            return []

        def decide(current: Setup, _: int) -> SetupChange:
            rows = []
            for record in records:
                place = ("reputation", record.team)
                # Whoever was judged or resumed meanwhile waits for the next round: these counts are older.
                if current.records.get(place) == seen.records.get(place):
                    rows.append(to_row(*place, record, record.team))
            return SetupChange(rows=rows)

        written = {row.id for row in (await self._setup.change(decide)).rows}
        return [record for record in records if record.team in written]

    async def resume(self, team: str, entry: AuditEntry) -> bool:
        """End the pause of a team's direct sends: counting begins anew. False when they are not paused."""
        now = self._clock.now()
        resumed = Reputation(team=team, state="ok", since=now, resumed_at=now)

        def decide(current: Setup, _: int) -> SetupChange:
            found = current.teams[team]
            if not is_paused(found):
                return SetupChange()
            row = to_row("reputation", team, resumed, team)
            return SetupChange(rows=[row], recounted=[found.record.ref], audit=[entry])

        return bool((await self._setup.change(decide)).rows)
