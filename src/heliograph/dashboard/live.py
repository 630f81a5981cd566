"""Pages that refresh themselves while they are open: when to tell one that what it shows has changed.

Pages that show the same share one look at the database, and with no page open there is none. Told that something
changed, a page fetches itself anew: that is what costs, so pages are told in turns, and less often when changes never
stop.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from heliograph.storage.store import StoreUnavailable

MOST = 200  # streams of a process …
TEAM_MOST = 50  # … of a team in it …
PERSON_MOST = 10  # … and of a person: pages that are hidden have none
OPEN_S = 600.0  # a stream's longest life; the page opens the next one
CHECK_S = 5.0  # between two looks at whether somebody may still listen
EVERY_S = 2.0  # between two looks at what a page shows
GAP_MAX_S = 5.0  # between two tellings when changes never stop
TURN_S = 0.25  # between the tellings of any two pages
SETTLE_S = 1.5  # webhooks hear of the end a moment later
STEP_S = 1.0  # a stop of the service is noticed this often

BEGIN = b"retry: 5000\n\n"
CHANGED = b"event: changed\ndata: .\n\n"
AGAIN = b"event: done\ndata: again\n\n"  # come back in a moment
OVER = b"event: done\ndata: over\n\n"
FULL = b"event: done\ndata: full\n\n"  # come back much later; until then the page is as without a script

Key = tuple[str, ...]


class Pulse(msgspec.Struct, frozen=True):
    """Words that change with what is shown."""

    words: dict[str, str]
    over: bool = False  # nothing will change any more


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What a page follows: those of one key share a look."""

    key: Key
    read: Callable[[], Awaitable[Pulse | None]]  # None: it is gone
    parts: tuple[str, ...]  # the words that the page shows
    every_s: float = EVERY_S

    def word(self, pulse: Pulse) -> str:
        return ".".join(pulse.words[part] for part in self.parts)


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """Who follows a page, and until when."""

    key: Key
    may: Callable[[], Awaitable[bool]]
    draining: Callable[[], bool]
    person: str
    team: str  # empty: the operator's pages


class Live:
    """The open streams of a process."""

    def __init__(self) -> None:
        self._open: Counter[Key] = Counter()
        self._looks: dict[Key, tuple[float, asyncio.Future[Any]]] = {}
        self._turn = 0.0
        self.streams = 0

    async def word(self, watch: Watch) -> str:
        """Return, for a page that is being made, what it is about
        to show, or a moment earlier; empty when it is gone.
        """
        pulse = await (self._look(watch.key, watch.read, watch.every_s) if watch.key in self._open else watch.read())
        return watch.word(pulse) if pulse else ""

    async def changes(self, watch: Watch, follower: Follower, seen: str) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events: `changed` when it no longer is as it was `seen`, `done` at the end."""
        caps = {("person", follower.person): PERSON_MOST, ("team", follower.team): TEAM_MOST}
        if self.streams >= MOST or any(self._open[key] >= most for key, most in caps.items()):
            yield FULL
            return
        with self._opened(watch.key, follower.key, *caps):
            yield BEGIN
            end, gap = _now() + OPEN_S, watch.every_s
            while _now() < end and not follower.draining():
                try:
                    may = await self._look(follower.key, follower.may, CHECK_S)
                    pulse = await self._look(watch.key, watch.read, watch.every_s)
                except StoreUnavailable:
                    await self._pause(GAP_MAX_S, follower)
                    continue
                if not may or pulse is None:
                    yield OVER
                    return
                if watch.word(pulse) == seen:
                    gap = watch.every_s
                else:
                    await self._pause(self._wait_for_turn(), follower)
                    yield CHANGED
                    seen, gap = watch.word(pulse), min(1.5 * gap, GAP_MAX_S)
                if pulse.over:
                    await asyncio.sleep(SETTLE_S)
                    yield CHANGED
                    yield OVER
                    return
                await self._pause(gap, follower)
            yield AGAIN

    @contextmanager
    def _opened(self, *keys: Key) -> Iterator[None]:
        self._open.update(keys)
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1
            self._open.subtract(keys)
            for key in keys:
                if self._open[key] <= 0:
                    del self._open[key]
                    self._looks.pop(key, None)

    async def _look(self, key: Key, read: Callable[[], Awaitable[Any]], fresh_s: float) -> Any:
        """Return the answer of a moment ago, the one that is under way, or a new one."""
        at, answer = self._looks.get(key, (0.0, None))
        if answer is None or _now() - at >= fresh_s:
            answer = asyncio.ensure_future(read())
            self._looks[key] = (_now(), answer)
        return await asyncio.shield(answer)  # whoever asked first may leave before it comes

    def _wait_for_turn(self) -> float:
        now = _now()
        self._turn = max(self._turn + TURN_S, now)
        return self._turn - now

    async def _pause(self, seconds: float, follower: Follower) -> None:
        end = _now() + seconds
        while (left := end - _now()) > 0 and not follower.draining():
            await asyncio.sleep(min(left, STEP_S))


def _now() -> float:
    return asyncio.get_running_loop().time()
