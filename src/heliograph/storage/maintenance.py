"""Database maintenance: clock check, retention, health probe, and detection of restored or copied databases."""

from collections.abc import Collection, Mapping

from heliograph.runtime.clock import Clock
from heliograph.storage import retention, rollback_detection
from heliograph.storage.engine.database import Database
from heliograph.storage.engine.health_probe import Probe
from heliograph.storage.leases import Leases
from heliograph.storage.rollback_detection import Comparison
from heliograph.storage.setup import SetupStore


class Maintenance:
    def __init__(self, database: Database, clock: Clock, leases: Leases, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._leases = leases
        self._setup = setup
        self.can_commit = Probe(database.probe)

    async def pause_if_restored(self, recorded_numbers: Mapping[int, int], copied: Collection[int] = ()) -> Comparison:
        """Pause delivery if the database was restored from an older backup, or if its file is a copy."""
        now, publisher, new_identity = self._clock.now(), self._setup.publisher, self._new_identity()
        comparison = await self._database.write(
            lambda tx: rollback_detection.pause_if_restored(
                tx, recorded_numbers, copied, new_identity, now, publisher, self._setup.current
            )
        )
        if comparison.is_restored:
            await self._setup.refresh()
        return comparison

    async def change_identity(self) -> None:
        """Give the database a new id, so that counters recorded in data folders do not apply to it."""
        identity = self._new_identity()
        await self._database.write(lambda tx: tx.run("change_identity", identity=identity))

    def _new_identity(self) -> int:
        return int.from_bytes(self._clock.random_bytes(8)) >> 1

    async def check_clock(self) -> None:
        """Compare the wall clock with the clock that all processes share; while they differ, no work is claimed."""
        await self._leases.check(self._database.read, self._database.write)

    async def purge(self) -> None:
        """Delete data whose retention period has ended."""
        teams = [team.record for team in self._setup.current.teams.values()]
        await retention.purge(self._database, self._clock.now(), teams, self._clock.offsets)
