"""Live pages: server-sent events that notify open pages of changes.

Pages that show the same data share one database query, and no query runs while no page is open. A notified page
reloads its content. Reloads are expensive, so notifications are spread over time and less frequent under constant
change.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from heliograph.storage.store import StoreUnavailable

MOST = 200  # maximum number of streams per process
TEAM_MOST = 50  # maximum number of streams per team in a process
PERSON_MOST = 10  # maximum number of streams per user in a process; hidden pages have no stream
OPEN_S = 600.0  # maximum lifetime of a stream; the page then opens the next one
CHECK_S = 5.0  # interval of checks whether the user may still read the page
EVERY_S = 2.0  # default interval of checks for changes
GAP_MAX_S = 5.0  # maximum interval between notifications under constant change
TURN_S = 0.25  # minimum interval between notifications of any two pages
SETTLE_S = 1.5  # delay of the last notification: webhook events follow the final state shortly after
STEP_S = 1.0  # a shutdown of the service is noticed within this time

BEGIN = b"retry: 5000\n\n"
CHANGED = b"event: changed\ndata: .\n\n"
AGAIN = b"event: done\ndata: again\n\n"  # the client reconnects shortly
OVER = b"event: done\ndata: over\n\n"
FULL = b"event: done\ndata: full\n\n"  # the client retries much later; until then the page does not refresh

Key = tuple[str, ...]


class Pulse(msgspec.Struct, frozen=True):
    """Version tokens of the parts of a page; each changes with its content."""

    words: dict[str, str]
    over: bool = False  # the content is final


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Subscription of a page to changes; subscriptions with the same key share one query."""

    key: Key
    read: Callable[[], Awaitable[Pulse | None]]  # returns None if the subject was deleted
    parts: tuple[str, ...]  # keys of the version tokens that the page shows
    every_s: float = EVERY_S

    def word(self, pulse: Pulse) -> str:
        return ".".join(pulse.words[part] for part in self.parts)


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """Subscriber of a page: user, team, and checks that end the stream."""

    key: Key
    may: Callable[[], Awaitable[bool]]
    draining: Callable[[], bool]
    person: str
    team: str  # empty for operator pages


class Live:
    """Open live streams of a process."""

    def __init__(self) -> None:
        self._open: Counter[Key] = Counter()
        self._looks: dict[Key, tuple[float, asyncio.Future[Any]]] = {}
        self._turn = 0.0
        self.streams = 0

    async def word(self, watch: Watch) -> str:
        """Return the page's version token, cached while a stream is open; empty if its subject was deleted."""
        pulse = await (self._look(watch.key, watch.read, watch.every_s) if watch.key in self._open else watch.read())
        return watch.word(pulse) if pulse else ""

    async def changes(self, watch: Watch, follower: Follower, seen: str) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events: `changed` when the version differs from `seen`, `done` at the end of the stream."""
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
        """Return the result of `read`, shared with concurrent callers and cached for `fresh_s` seconds."""
        at, answer = self._looks.get(key, (0.0, None))
        if answer is None or _now() - at >= fresh_s:
            answer = asyncio.ensure_future(read())
            self._looks[key] = (_now(), answer)
        return await asyncio.shield(answer)  # the first caller may be cancelled before the result arrives

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
