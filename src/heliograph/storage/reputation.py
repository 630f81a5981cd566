"""Stores the bounces and complaints of each team, and the decisions of the reputation guard."""

from collections.abc import Mapping, Sequence

import msgspec

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.mail.reputation import (
    ACTIONS,
    WINDOW_MS,
    WINDOW_SENDS,
    Counts,
    Reputation,
    changed,
    is_paused,
    rates,
)
from heliograph.runtime.clock import Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx, write_serialized
from heliograph.storage.setup import SetupStore


class Reputations:
    def __init__(self, database: Database, clock: Clock, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._setup = setup
        self.version = 0
        self.current: Mapping[str, Reputation] = {}  # by team id, as last read by this process

    async def refresh(self) -> None:
        rows = await self._database.read(lambda tx: tx.run("judgements_since", since=self.version))
        if rows and rows[-1][0] > self.version:  # keep the result of a concurrent, newer refresh
            found = [msgspec.json.decode(body, type=Reputation) for _, body in rows]
            self.current = {**self.current, **{record.team: record for record in found}}
            self.version = rows[-1][0]

    async def counts(self) -> dict[int, Counts]:
        """Return the counters that the guard decides by, for each team that has sent within the window."""
        after = self._clock.now() - WINDOW_MS
        rows = await self._database.read(lambda tx: tx.run("newest_reputation", after=after, enough=WINDOW_SENDS))
        return {row[0]: Counts(*row[1:]) for row in rows}

    async def judge(self) -> Sequence[Reputation]:
        """Warn teams, pause their direct sends, or clear them; return the changed records."""
        seen, now = self.current, self._clock.now()
        records = changed(self._setup.current.teams.values(), seen, await self.counts(), now)
        if not records:
            return []

        async def story(tx: Tx) -> list[Reputation]:
            ((version,),) = await tx.run("next_judgement_version")  # also takes the lock
            found = dict(await tx.run("judgements_of", teams=[(record.team,) for record in records]))
            # Skip teams judged or resumed meanwhile until the next round: these counters are older.
            fresh = [record for record in records if found.get(record.team) == _body(seen.get(record.team))]
            await _save(tx, version, fresh)
            entries = [SERVICE.did(now, ACTIONS[one.state], one.team, rates(one), team=one.team) for one in fresh]
            await audit.write(tx, *entries)
            return fresh

        written = await write_serialized(self._database, story, None)
        await self.refresh()
        return written

    async def resume(self, team: str, entry: AuditEntry) -> bool:
        """End the pause of a team's direct sends and reset its counters. False if not paused."""
        ref, now = self._setup.current.teams[team].record.ref, self._clock.now()

        async def story(tx: Tx) -> bool:
            ((version,),) = await tx.run("next_judgement_version")
            found = dict(await tx.run("judgements_of", teams=[(team,)]))
            if not is_paused(msgspec.json.decode(found[team], type=Reputation) if found else None):
                return False
            await tx.run("forget_reputation", team=ref)
            await _save(tx, version, [Reputation(team=team, state="ok", since=now, resumed_at=now)])
            await audit.write(tx, entry)
            return True

        done = await write_serialized(self._database, story, team)
        await self.refresh()
        return done


async def _save(tx: Tx, version: int, records: Sequence[Reputation]) -> None:
    if records:
        await tx.run("save_judgements", judgements=[(record.team, version, _body(record)) for record in records])


def _body(record: Reputation | None) -> str | None:
    return msgspec.json.encode(record).decode() if record else None
