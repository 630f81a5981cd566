"""The clock by which leases expire, shared by all processes of a database, whose wall clocks may differ (ADR 0019).

PostgreSQL provides the shared clock. The processes of an SQLite file run on one machine: they share its monotonic time
since boot, and a row with the offset from that time to the time of day.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from heliograph.domain.limits import CONTACT_PAUSE_MAX_MS, LEASE_MS, MINUTE_MS, SECOND_MS
from heliograph.runtime.clock import CLOCK_ERROR_MAX_MS, Clock
from heliograph.storage.engine.database import Tx

CONFIRM_MS = 20 * SECOND_MS  # how often a process whose clock is right confirms the shared clock's row
STALE_MS = MINUTE_MS  # a row not confirmed for this long is replaced: the wall clock was changed

ClockRow = tuple[str | None, int, int]  # boot id, offset from monotonic to shared time, last confirmed shared time


class Leases:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: int | None = None  # offset from our monotonic time to the shared clock at the last read
        self._grace_until = 0  # monotonic time from which leases of other processes may expire again
        # Recent commits of this process: (ms during which this process had contact with the database, summed up to the
        # commit; time of the commit on the shared clock)
        self._commits: deque[tuple[int, int]] = deque()
        self._committed_at = 0  # monotonic time of the last commit

    async def now(self, tx: Tx) -> int:
        """Return the time of the shared clock in ms.

        Also updates `clock_error`, the difference between this process's wall clock and the shared clock.
        """
        clock = self._clock
        before = clock.monotonic_ms()
        row = await _read_row(tx)
        shared = self._shared_time(row)
        after = clock.monotonic_ms()
        clock.compare(shared, after - before)
        offset = shared - after
        if self._offset is not None and abs(offset - self._offset) > CLOCK_ERROR_MAX_MS + after - before:
            # The shared clock was changed: give running processes the time to renew their leases by the new time.
            self._grace_until = after + LEASE_MS
            self._commits.clear()
        self._offset = offset
        return shared

    async def deadline(self, tx: Tx, length: int = LEASE_MS) -> int:
        """Return the end of a lease of `length` ms that begins now."""
        return await self.now(tx) + length

    async def expired_before(self, tx: Tx) -> int:
        """Return the cutoff before which leases are expired; 0 (none expires) while clocks disagree."""
        now = await self.now(tx)
        return now if self._clock.monotonic_ms() >= self._grace_until and not self._clock.clock_error() else 0

    async def confirm_contact(self, tx: Tx) -> None:
        """Write a row: its commit proves contact with the database since the previous commit of this process."""
        shared_now, monotonic_ms = await self.now(tx), self._clock.monotonic_ms()
        await tx.run("probe")
        tx.after_commit.append(partial(self._add_commit, shared_now, monotonic_ms))

    def abandoned_before(self, length: int = LEASE_MS) -> int:
        """Return the expiry time before which leases of this length are abandoned; 0 if no lease is.

        A lease is abandoned if it was not renewed while this process was in contact with the database for `length`.
        An outage does not count as contact: the owner could neither renew its lease nor record its sent messages.
        """
        if not self._commits or self._clock.clock_error():
            return 0
        latest_contact = self._commits[-1][0] - length
        return next((shared + length for contact, shared in reversed(self._commits) if contact <= latest_contact), 0)

    def _add_commit(self, shared_now: int, monotonic_ms: int) -> None:
        contact = 0
        if self._commits:
            contact = self._commits[-1][0] + min(monotonic_ms - self._committed_at, CONTACT_PAUSE_MAX_MS)
        self._commits.append((contact, shared_now))
        self._committed_at = monotonic_ms
        while len(self._commits) > 1 and self._commits[1][0] <= contact - LEASE_MS:
            self._commits.popleft()

    def clock_error(self) -> int:
        """Return by how many ms the wall clock is wrong; 0 if it is right. While it is wrong, no work is claimed."""
        return self._clock.clock_error()

    async def check(self, read: Callable[..., Awaitable[bool]], write: Callable[..., Awaitable[bool]]) -> None:
        """Compare the wall clock with the shared clock; on SQLite, renew the row that all processes use."""
        if await read(self._is_stale):
            await write(self._renew)

    async def _is_stale(self, tx: Tx) -> bool:
        await self.now(tx)
        return self._new_row(await _read_row(tx)) is not None

    async def _renew(self, tx: Tx) -> bool:
        if row := self._new_row(await _read_row(tx)):
            await tx.run("set_machine_clock", boot=row[0], ahead=row[1], seen=row[2])
        await self.now(tx)
        return row is not None

    def _shared_time(self, row: ClockRow | None) -> int:
        if row is not None and row[0] is None:
            return row[1]  # the clock of PostgreSQL
        if row is None or not self._is_from_this_boot(row):
            return self._clock.wall_ms()  # this is the first process since the boot
        return self._clock.monotonic_ms() + row[1]

    def _is_from_this_boot(self, row: ClockRow) -> bool:
        """Return whether the row was written since the last boot.

        A row without that boot's id, or confirmed at a later time than now, is from an earlier boot.
        """
        boot, offset, seen_at = row
        return boot == self._clock.boot and self._clock.monotonic_ms() + offset >= seen_at - CLOCK_ERROR_MAX_MS

    def _new_row(self, row: ClockRow | None) -> ClockRow | None:
        """Return the new content of the shared clock's row; None if the stored row need not change."""
        if row is not None and row[0] is None:
            return None
        clock, shared_now = self._clock, self._shared_time(row)
        monotonic_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
        if row is None or not self._is_from_this_boot(row):
            return clock.boot, shared_now - monotonic_ms, shared_now
        if shared_now - row[2] > CONFIRM_MS and abs(wall_ms - shared_now) <= CLOCK_ERROR_MAX_MS:
            return clock.boot, row[1], shared_now
        if shared_now - row[2] > STALE_MS:
            return clock.boot, wall_ms - monotonic_ms, wall_ms
        return None


async def _read_row(tx: Tx) -> ClockRow | None:
    rows = await tx.run("shared_clock")
    return tuple(rows[0]) if rows else None
