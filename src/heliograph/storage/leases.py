"""The clock of leases, shared by all processes of a database instead of comparing wall clocks (ADR 0019).

PostgreSQL provides the shared clock. The processes of an SQLite file run on one machine: they share its monotonic time
since boot, and a row with the offset from that time to the time of day.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from heliograph.domain.limits import CONTACT_MS, LEASE_MS, MINUTE_MS, SECOND_MS
from heliograph.runtime.clock import OFF_MS, Clock
from heliograph.storage.engine.database import Tx

CONFIRM_MS = 20 * SECOND_MS  # interval at which a process whose clock agrees with the row renews it
FORGOTTEN_MS = MINUTE_MS  # a row not confirmed for this long is replaced: the wall clock was changed

Row = tuple[str | None, int, int]  # boot id, offset from monotonic to shared time, last confirmed shared time


class Leases:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._apart: int | None = None  # offset from our monotonic time to the shared clock at the last read
        self._calm_at = 0  # monotonic time from which leases of other processes may expire again
        # Commits of this process: total ms of contact with the database, and the shared time.
        self._commits: deque[tuple[int, int]] = deque()
        self._committed_at = 0  # monotonic time of the last commit

    async def now(self, tx: Tx) -> int:
        """Return the time of the shared clock, and compare the wall clock with the shared clock."""
        clock = self._clock
        before = clock.count()
        row = await _read(tx)
        shared = self._shared(row)
        after = clock.count()
        clock.compare(shared, after - before)
        apart = shared - after
        if self._apart is not None and abs(apart - self._apart) > OFF_MS + after - before:
            # The shared clock was changed. Running processes get a full new lease, because heartbeats use the new time.
            self._calm_at = after + LEASE_MS
            self._commits.clear()
        self._apart = apart
        return shared

    async def until(self, tx: Tx, length: int = LEASE_MS) -> int:
        """Return the end of a lease of `length` ms that begins now."""
        return await self.now(tx) + length

    async def over(self, tx: Tx) -> int:
        """Return the cutoff before which leases are expired; 0 (none expires) while clocks disagree."""
        now = await self.now(tx)
        return now if self._clock.count() >= self._calm_at and not self._clock.off() else 0

    async def confirm_contact(self, tx: Tx) -> None:
        """Write a row; after the commit, the time since the previous commit counts as contact with the database."""
        shared, count = await self.now(tx), self._clock.count()
        await tx.run("probe")
        tx.afterwards.append(partial(self._add_commit, shared, count))

    def abandoned(self, length: int = LEASE_MS) -> int:
        """Return the cutoff before which leases of this length are abandoned; 0 if no lease is.

        A lease is abandoned if it was not renewed while this process was in contact with the database for `length`.
        An outage does not count as contact: the owner could neither renew its lease nor record its sent messages.
        """
        if not self._commits or self._clock.off():
            return 0
        latest = self._commits[-1][0] - length
        return next((shared + length for contact, shared in reversed(self._commits) if contact <= latest), 0)

    def _add_commit(self, shared: int, count: int) -> None:
        contact = self._commits[-1][0] + min(count - self._committed_at, CONTACT_MS) if self._commits else 0
        self._commits.append((contact, shared))
        self._committed_at = count
        while len(self._commits) > 1 and self._commits[1][0] <= contact - LEASE_MS:
            self._commits.popleft()

    def off(self) -> int:
        """Return by how many ms the wall clock is ahead, 0 if correct. No work is claimed while nonzero."""
        return self._clock.off()

    async def check(self, read: Callable[..., Awaitable[bool]], write: Callable[..., Awaitable[bool]]) -> None:
        """Compare the wall clock with the shared clock; on SQLite, renew the row that all processes use."""
        if await read(self._stale):
            await write(self._renew)

    async def _stale(self, tx: Tx) -> bool:
        await self.now(tx)
        return self._renewed(await _read(tx)) is not None

    async def _renew(self, tx: Tx) -> bool:
        if row := self._renewed(await _read(tx)):
            await tx.run("set_machine_clock", boot=row[0], ahead=row[1], seen=row[2])
        await self.now(tx)
        return row is not None

    def _shared(self, row: Row | None) -> int:
        if row is not None and row[0] is None:
            return row[1]  # the clock of PostgreSQL
        if row is None or not self._is_of_this_boot(row):
            return self._clock.wall()  # this is the first process since the boot
        return self._clock.count() + row[1]

    def _is_of_this_boot(self, row: Row) -> bool:
        """Return whether the row was written since the last boot.

        A row whose `seen` time is later than the shared time of this boot must be from an earlier boot.
        """
        boot, ahead, seen = row
        return boot == self._clock.boot and self._clock.count() + ahead >= seen - OFF_MS

    def _renewed(self, row: Row | None) -> Row | None:
        """Return the new row; None if the row need not change."""
        if row is not None and row[0] is None:
            return None
        clock, shared = self._clock, self._shared(row)
        count, wall = clock.count(), clock.wall()
        if row is None or not self._is_of_this_boot(row):
            return clock.boot, shared - count, shared
        if shared - row[2] > CONFIRM_MS and abs(wall - shared) <= OFF_MS:
            return clock.boot, row[1], shared
        if shared - row[2] > FORGOTTEN_MS:
            return clock.boot, wall - count, wall
        return None


async def _read(tx: Tx) -> Row | None:
    rows = await tx.run("shared_clock")
    return tuple(rows[0]) if rows else None
