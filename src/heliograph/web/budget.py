"""Bytes of large bodies in memory at once, over all requests; what large reads hold has a budget of the same kind.

They are taken as they arrive, not as they are announced. Each team has a share, bodies up to 1 MiB have room that
larger ones leave, and the first to come can always finish: the others wait, and are refused when they wait long.
"""

import asyncio
from collections import defaultdict

import msgspec

from heliograph.domain.limits import EMAIL_BODY_MAX, MIB
from heliograph.domain.refusals import ServiceUnavailable

TOTAL = 96 * MIB  # a body is in memory up to three times while it is read, decoded and kept
SMALL = MIB  # bodies up to this …
RESERVE = 8 * MIB  # … have this much that larger ones leave
WAIT_S = 30.0
WAITING_MAX = 64  # of a team: what has arrived of those that wait is in memory too


class HeldBody(msgspec.Struct, eq=False):
    """One body: whose it is, how long it will be at most, what it holds, and how long it has waited."""

    team: str
    length: int
    held: int = 0
    waited_s: float = 0.0  # over all its parts


class Holdings:
    """What a team holds, or all of them together."""

    def __init__(self) -> None:
        self.held = 0
        self.holders: dict[HeldBody, None] = {}  # first come, first

    def is_first(self, holder: HeldBody) -> bool:
        return next(iter(self.holders), holder) is holder

    def after(self, holder: HeldBody, size: int) -> int:
        """Return what is held once this one took this much and the first one has all that it needs."""
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
        self.share = max(total // 2, min(total, EMAIL_BODY_MAX))  # of a team, and so the largest body that can come
        self._wait_s = wait_s
        self._all = Holdings()
        self._teams: defaultdict[str, Holdings] = defaultdict(Holdings)
        self._waiting: dict[asyncio.Future[None], tuple[HeldBody, int]] = {}

    async def take(self, holder: HeldBody, size: int) -> None:
        """Wait until this many more bytes may be held."""
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
        """Give back all but this much."""
        spare = max(0, holder.held - size)
        for pot in (self._teams[holder.team], self._all):
            pot.held -= spare
        holder.held -= spare
        holder.length = holder.held
        self._wake()

    def _wake(self) -> None:
        # Small ones go before large ones, then the team that holds least, then the one that waits longest.
        for turn, (waiter, size) in sorted(self._waiting.items(), key=lambda one: self._rank(*one[1])):
            if not turn.done() and self._has_room(waiter, size):
                self.give(waiter, size)
                turn.set_result(None)

    def _has_room(self, holder: HeldBody, size: int) -> bool:
        passes = self._all.is_first(holder) or _is_small(holder, size)
        total = self._total if passes else self._total - RESERVE
        return self._teams[holder.team].after(holder, size) <= self.share and self._all.after(holder, size) <= total

    def give(self, holder: HeldBody, size: int) -> None:
        """Give this many bytes without waiting."""
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
