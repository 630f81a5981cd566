"""Memory budget for the large bodies of all requests. Responses that read much data have a second budget.

Memory is reserved as bytes arrive, because Content-Length may announce more than is sent. A team can use a limited
share, part of the budget is reserved for small bodies, and the oldest reservation may always grow, so that at least one
request makes progress. Other requests wait, and are refused after a timeout.
"""

import asyncio
from collections import defaultdict

import msgspec

from heliograph.domain.limits import EMAIL_BODY_MAX, MIB
from heliograph.domain.refusals import ServiceUnavailable

TOTAL_BYTES = 96 * MIB  # a body may be in memory three times at once: as read, decoded, and encoded for storage
SMALL_BODY_MAX = MIB  # maximum size of a small body
SMALL_BODY_RESERVE = 8 * MIB  # part of the budget reserved for small bodies
WAIT_S = 30.0  # a request that has waited this long is refused
WAITING_MAX = 64  # maximum waiting requests per team, because they keep the bytes received so far in memory


class Reservation(msgspec.Struct, eq=False):
    """Memory reservation of one request body."""

    team: str
    expected_size: int
    reserved: int = 0
    waited_s: float = 0.0  # total waiting time, for all parts of the body


class Usage:
    """Bytes reserved by one team, or by all teams together."""

    def __init__(self) -> None:
        self.reserved = 0
        self.reservations: dict[Reservation, None] = {}  # reservations by age, oldest first

    def is_oldest(self, reservation: Reservation) -> bool:
        return next(iter(self.reservations), reservation) is reservation

    def usage_after(self, reservation: Reservation, size: int) -> int:
        """Return the bytes in use after `reservation` grows by `size`.

        The oldest reservation counts as its expected size, so that it can always be completed.
        """
        oldest_reservation = next(iter(self.reservations), reservation)
        return (
            self.reserved
            + size
            + (
                0
                if oldest_reservation is reservation
                else max(0, oldest_reservation.expected_size - oldest_reservation.reserved)
            )
        )

    def add(self, reservation: Reservation, size: int) -> None:
        self.reserved += size
        self.reservations[reservation] = None

    def release(self, reservation: Reservation) -> None:
        self.reserved -= reservation.reserved
        del self.reservations[reservation]


class ByteBudget:
    def __init__(self, total: int = TOTAL_BYTES, wait_s: float = WAIT_S) -> None:
        self._total = total
        # maximum bytes reserved by one team, and so also the maximum size of a body
        self.share = max(total // 2, min(total, EMAIL_BODY_MAX))
        self._wait_s = wait_s
        self._total_usage = Usage()
        self._team_usage: defaultdict[str, Usage] = defaultdict(Usage)
        self._waiting: dict[asyncio.Future[None], tuple[Reservation, int]] = {}

    async def reserve(self, reservation: Reservation, size: int) -> None:
        """Reserve `size` more bytes, waiting until they are available. Raises ServiceUnavailable after a timeout."""
        if self._has_capacity(reservation, size):
            self.reserve_now(reservation, size)
            return
        if sum(waiter.team == reservation.team for waiter, _ in self._waiting.values()) >= WAITING_MAX:
            raise _overloaded()
        loop = asyncio.get_running_loop()
        future, waiting_since = loop.create_future(), loop.time()
        self._waiting[future] = reservation, size
        try:
            async with asyncio.timeout(self._wait_s - reservation.waited_s):
                await future
        except TimeoutError:
            raise _overloaded() from None
        finally:
            reservation.waited_s += loop.time() - waiting_since
            del self._waiting[future]

    def release(self, reservation: Reservation) -> None:
        if reservation.reserved:
            team = self._team_usage[reservation.team]
            team.release(reservation)
            self._total_usage.release(reservation)
            if not team.reservations:
                del self._team_usage[reservation.team]
        self._wake_waiters()

    def shrink(self, reservation: Reservation, size: int) -> None:
        """Reduce the reservation to at most `size` bytes."""
        released = max(0, reservation.reserved - size)
        for usage in (self._team_usage[reservation.team], self._total_usage):
            usage.reserved -= released
        reservation.reserved -= released
        reservation.expected_size = reservation.reserved
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        # small bodies first, then the team with the fewest reserved bytes; equal ones in order of arrival
        for future, (waiter, size) in sorted(self._waiting.items(), key=lambda entry: self._rank(*entry[1])):
            if not future.done() and self._has_capacity(waiter, size):
                self.reserve_now(waiter, size)
                future.set_result(None)

    def _has_capacity(self, reservation: Reservation, size: int) -> bool:
        may_use_reserve = self._total_usage.is_oldest(reservation) or _is_small(reservation, size)
        limit = self._total if may_use_reserve else self._total - SMALL_BODY_RESERVE
        return (
            self._team_usage[reservation.team].usage_after(reservation, size) <= self.share
            and self._total_usage.usage_after(reservation, size) <= limit
        )

    def reserve_now(self, reservation: Reservation, size: int) -> None:
        """Reserve `size` bytes without waiting."""
        self._total_usage.add(reservation, size)
        self._team_usage[reservation.team].add(reservation, size)
        reservation.reserved += size

    def _rank(self, reservation: Reservation, size: int) -> tuple[bool, int]:
        return not _is_small(reservation, size), self._team_usage[reservation.team].reserved


def _overloaded() -> ServiceUnavailable:
    return ServiceUnavailable(
        "Too many large requests at once. Try again after the seconds in Retry-After.", retry_after=5
    )


def _is_small(reservation: Reservation, size: int) -> bool:
    return reservation.reserved + size <= SMALL_BODY_MAX
