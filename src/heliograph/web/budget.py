"""Memory budget for large request bodies of all requests; large reads use a separate budget of the same kind.

Bytes are reserved as they arrive, not as Content-Length announces them. Each team has a maximum share, part of the
budget is reserved for bodies up to 1 MiB, and the oldest reservation can always finish. Other requests wait, and are
refused after a timeout.
"""

import asyncio
from collections import defaultdict

import msgspec

from heliograph.domain.limits import EMAIL_BODY_MAX, MIB
from heliograph.domain.refusals import ServiceUnavailable

TOTAL = 96 * MIB  # a body is in memory up to three times while it is read, decoded and stored
SMALL = MIB  # bodies up to this size …
RESERVE = 8 * MIB  # … have this much of the budget to themselves
WAIT_S = 30.0
WAITING_MAX = 64  # waiting requests per team; the bytes they have already received are in memory too


class HeldBody(msgspec.Struct, eq=False):
    """Memory reservation of one request body."""

    team: str
    length: int
    held: int = 0
    waited_s: float = 0.0  # total over all parts of the body


class Holdings:
    """Bytes reserved by one team, or by all teams together."""

    def __init__(self) -> None:
        self.held = 0
        self.holders: dict[HeldBody, None] = {}  # oldest first

    def is_first(self, holder: HeldBody) -> bool:
        return next(iter(self.holders), holder) is holder

    def after(self, holder: HeldBody, size: int) -> int:
        """Return the bytes in use if `holder` takes `size` more and the oldest reservation takes its full length."""
        first = next(iter(self.holders), holder)
        return self.held + size + (0 if first is holder else max(0, first.length - first.held))

    def give(self, holder: HeldBody, size: int) -> None:
        self.held += size
        self.holders[holder] = None

    def take_back(self, holder: HeldBody) -> None:
        self.held -= holder.held
        del self.holders[holder]


class ByteBudget:
    def __init__(self, total: int = TOTAL, wait_s: float = WAIT_S) -> None:
        self._total = total
        self.share = max(total // 2, min(total, EMAIL_BODY_MAX))  # per team; so no body can be larger
        self._wait_s = wait_s
        self._all = Holdings()
        self._teams: defaultdict[str, Holdings] = defaultdict(Holdings)
        self._waiting: dict[asyncio.Future[None], tuple[HeldBody, int]] = {}

    async def take(self, holder: HeldBody, size: int) -> None:
        """Reserve `size` more bytes, waiting until they are available. Raises ServiceUnavailable after a timeout."""
        if self._has_room(holder, size):
            self.give(holder, size)
            return
        if sum(waiter.team == holder.team for waiter, _ in self._waiting.values()) >= WAITING_MAX:
            raise _too_many()
        loop = asyncio.get_running_loop()
        turn, since = loop.create_future(), loop.time()
        self._waiting[turn] = holder, size
        try:
            await asyncio.wait_for(turn, self._wait_s - holder.waited_s)
        except TimeoutError:
            raise _too_many() from None
        finally:
            holder.waited_s += loop.time() - since
            del self._waiting[turn]

    def give_back(self, holder: HeldBody) -> None:
        if holder.held:
            team = self._teams[holder.team]
            team.take_back(holder)
            self._all.take_back(holder)
            if not team.holders:
                del self._teams[holder.team]
        self._wake()

    def keep(self, holder: HeldBody, size: int) -> None:
        """Shrink the reservation to at most `size` bytes."""
        spare = max(0, holder.held - size)
        for pot in (self._teams[holder.team], self._all):
            pot.held -= spare
        holder.held -= spare
        holder.length = holder.held
        self._wake()

    def _wake(self) -> None:
        # Order: small bodies first, then the team with the fewest reserved bytes, then the longest wait.
        for turn, (waiter, size) in sorted(self._waiting.items(), key=lambda one: self._rank(*one[1])):
            if not turn.done() and self._has_room(waiter, size):
                self.give(waiter, size)
                turn.set_result(None)

    def _has_room(self, holder: HeldBody, size: int) -> bool:
        passes = self._all.is_first(holder) or _is_small(holder, size)
        total = self._total if passes else self._total - RESERVE
        return self._teams[holder.team].after(holder, size) <= self.share and self._all.after(holder, size) <= total

    def give(self, holder: HeldBody, size: int) -> None:
        """Reserve `size` bytes without waiting."""
        self._all.give(holder, size)
        self._teams[holder.team].give(holder, size)
        holder.held += size

    def _rank(self, holder: HeldBody, size: int) -> tuple[bool, int]:
        return not _is_small(holder, size), self._teams[holder.team].held


def _too_many() -> ServiceUnavailable:
    return ServiceUnavailable(
        "Too many large requests at once. Try again after the seconds in Retry-After.", retry_after=5
    )


def _is_small(holder: HeldBody, size: int) -> bool:
    return holder.held + size <= SMALL
