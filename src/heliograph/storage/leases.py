"""By which clock leases run: one that all processes of the database share, never the wall clocks of two (ADR 0019).

PostgreSQL has such a clock. The processes of an SQLite file are on one machine: they share its count since the boot,
and a row that says what time of day that is.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from heliograph.domain.limits import CONTACT_MS, LEASE_MS, MINUTE_MS, SECOND_MS
from heliograph.runtime.clock import OFF_MS, Clock
from heliograph.storage.engine.database import Tx

CONFIRM_MS = 20 * SECOND_MS  # how often a process whose clock agrees with the row confirms it
FORGOTTEN_MS = MINUTE_MS  # after which no process still uses the row's time: the clock was set

Row = tuple[str | None, int, int]  # boot, ahead, seen


class Leases:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._apart: int | None = None  # from our count to the shared clock, when it was read last
        self._calm_at = 0  # by our count: from then on leases of others may be over
        # Commits of this process: for how many ms it had been in contact with the database, and the shared time.
        self._commits: deque[tuple[int, int]] = deque()
        self._committed_at = 0  # by our count

    async def now(self, tx: Tx) -> int:
        """Return the shared clock's time; the wall clock is compared with it."""
        clock = self._clock
        before = clock.count()
        row = await _read(tx)
        shared = self._shared(row)
        after = clock.count()
        clock.compare(shared, after - before)
        apart = shared - after
        if self._apart is not None and abs(apart - self._apart) > OFF_MS + after - before:
            # It was set. Live processes get a full new lease, because heartbeats use the new time.
            self._calm_at = after + LEASE_MS
            self._commits.clear()
        self._apart = apart
        return shared

    async def until(self, tx: Tx, length: int = LEASE_MS) -> int:
        """Return the end of a lease that begins now."""
        return await self.now(tx) + length

    async def over(self, tx: Tx) -> int:
        """Return the time by which leases must have ended to be over; 0 while the clocks disagree: then none is."""
        now = await self.now(tx)
        return now if self._clock.count() >= self._calm_at and not self._clock.off() else 0

    async def confirm_contact(self, tx: Tx) -> None:
        """Write a row; once it is durable, the time since the commit before counts as contact with the database."""
        shared, count = await self.now(tx), self._clock.count()
        await tx.run("probe")
        tx.afterwards.append(partial(self._add_commit, shared, count))

    def abandoned(self, length: int = LEASE_MS) -> int:
        """Return the cutoff before which leases of this length are abandoned; 0 if none is.

        A lease is abandoned if it was not renewed while this process was in contact with the database for `length`.
        An outage is no contact: it also kept the lease's owner from renewing it, and from recording what it has sent.
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
        """Return how far the wall clock is ahead, in ms, when it is wrong: then nothing is claimed."""
        return self._clock.off()

    async def check(self, read: Callable[..., Awaitable[bool]], write: Callable[..., Awaitable[bool]]) -> None:
        """Compare the wall clock with the shared one; on SQLite, keep the row that all processes use."""
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
            return row[1]  # PostgreSQL's own
        if row is None or not self._is_of_this_boot(row):
            return self._clock.wall()  # the first process since the boot
        return self._clock.count() + row[1]

    def _is_of_this_boot(self, row: Row) -> bool:
        """Tell whether it is: no process can have seen a time that the count since this boot has not reached."""
        boot, ahead, seen = row
        return boot == self._clock.boot and self._clock.count() + ahead >= seen - OFF_MS

    def _renewed(self, row: Row | None) -> Row | None:
        """Return what the row should be; None when it stays as it is."""
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
