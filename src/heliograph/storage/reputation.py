"""Stores the bounces and complaints of each team, and the decisions of the reputation guard."""

from collections.abc import Mapping, Sequence

import msgspec

from heliograph.domain.audit.actor import SERVICE, AuditEntry
from heliograph.domain.mail.reputation import (
    AUDIT_ACTION_BY_STATE,
    WINDOW_MS,
    WINDOW_SENDS,
    Counts,
    Reputation,
    changed_reputations,
    describe_rates,
    is_paused,
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
        rows = await self._database.read(lambda tx: tx.run("reputations_since", since=self.version))
        if rows and rows[-1][0] > self.version:  # keep the result of a concurrent, newer refresh
            reputations = [msgspec.json.decode(body, type=Reputation) for _, body in rows]
            self.current = {**self.current, **{record.team: record for record in reputations}}
            self.version = rows[-1][0]

    async def read_counts(self) -> dict[int, Counts]:
        """Return the counters for the reputation check, for each team that has sent within the window."""
        after = self._clock.now() - WINDOW_MS
        rows = await self._database.read(lambda tx: tx.run("newest_reputation", after=after, enough=WINDOW_SENDS))
        return {row[0]: Counts(*row[1:]) for row in rows}

    async def update_all(self) -> Sequence[Reputation]:
        """Judge all teams: warn, pause emails without a template, or end a warning; return the changed records."""
        previous, now = self.current, self._clock.now()
        changes = changed_reputations(self._setup.current.teams.values(), previous, await self.read_counts(), now)
        if not changes:
            return []

        async def save_changed(tx: Tx) -> list[Reputation]:
            ((version,),) = await tx.run("next_reputation_version")  # also takes the lock
            stored = dict(await tx.run("reputations_of", teams=[(record.team,) for record in changes]))
            # Skip teams whose record was changed meanwhile, because the counters were read before that change.
            records = [record for record in changes if stored.get(record.team) == _encode(previous.get(record.team))]
            await _save(tx, version, records)
            entries = [
                SERVICE.audit_entry(
                    now, AUDIT_ACTION_BY_STATE[record.state], record.team, describe_rates(record), team=record.team
                )
                for record in records
            ]
            await audit.write(tx, *entries)
            return records

        saved = await write_serialized(self._database, save_changed, None)
        await self.refresh()
        return saved

    async def resume(self, team: str, entry: AuditEntry) -> bool:
        """Allow a team's emails without a template again, and reset its counters; return False if not paused."""
        ref, now = self._setup.current.teams[team].record.ref, self._clock.now()

        async def reset(tx: Tx) -> bool:
            ((version,),) = await tx.run("next_reputation_version")
            stored = dict(await tx.run("reputations_of", teams=[(team,)]))
            if not is_paused(msgspec.json.decode(stored[team], type=Reputation) if stored else None):
                return False
            await tx.run("delete_reputation", team=ref)
            await _save(tx, version, [Reputation(team=team, state="ok", since=now, resumed_at=now)])
            await audit.write(tx, entry)
            return True

        is_resumed = await write_serialized(self._database, reset, team)
        await self.refresh()
        return is_resumed


async def _save(tx: Tx, version: int, records: Sequence[Reputation]) -> None:
    if records:
        await tx.run("save_reputations", judgements=[(record.team, version, _encode(record)) for record in records])


def _encode(record: Reputation | None) -> str | None:
    return msgspec.json.encode(record).decode() if record else None
