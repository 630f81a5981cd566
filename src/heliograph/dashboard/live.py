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

STREAMS_MAX = 200  # maximum number of streams per process
TEAM_STREAMS_MAX = 50  # maximum number of streams per team in a process
USER_STREAMS_MAX = 10  # maximum number of streams per user in a process; hidden pages have no stream
STREAM_LIFETIME_S = 600.0  # maximum lifetime of a stream; the page then opens the next one
ACCESS_CHECK_INTERVAL_S = 5.0  # interval of checks whether the user may still read the page
POLL_INTERVAL_S = 2.0  # default interval of checks for changes
NOTIFY_INTERVAL_MAX_S = 5.0  # maximum interval between the notifications of a page that changes constantly
NOTIFY_SPACING_S = 0.25  # minimum interval between two notifications of any streams, because each causes a page reload
FINAL_DELAY_S = 1.5  # delay of the last notification, because webhook events follow the final state
SHUTDOWN_CHECK_S = 1.0  # maximum time until a stream notices the shutdown

STREAM_START = b"retry: 5000\n\n"
CHANGED_EVENT = b"event: changed\ndata: .\n\n"
RECONNECT_EVENT = b"event: done\ndata: again\n\n"  # the client reconnects soon
ENDED_EVENT = b"event: done\ndata: over\n\n"
# The client reconnects much later, and does not refresh the page until then.
REJECTED_EVENT = b"event: done\ndata: full\n\n"

Key = tuple[str, ...]


class PageVersion(msgspec.Struct, frozen=True):
    """Version tokens of the parts of a page. A part's token changes with its content."""

    tokens: dict[str, str]  # name of a part → version token
    is_final: bool = False  # the content will not change any more


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Subscription of a page to changes. Subscriptions with the same key share a query."""

    key: Key
    read_version: Callable[[], Awaitable[PageVersion | None]]  # returns None if the page's subject was deleted
    parts: tuple[str, ...]  # names of the parts that the page shows: keys of `PageVersion.tokens`
    interval_s: float = POLL_INTERVAL_S

    def version(self, page_version: PageVersion) -> str:
        return ".".join(page_version.tokens[part] for part in self.parts)


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    """The user and team for which a stream is open, and the checks that end it."""

    key: Key
    may_read: Callable[[], Awaitable[bool]]
    is_draining: Callable[[], bool]
    person: str
    team: str  # empty for operator pages


class Live:
    """The open server-sent event streams of one process, which tell pages that their content changed."""

    def __init__(self) -> None:
        self._open_streams: Counter[Key] = Counter()
        self._cached_reads: dict[Key, tuple[float, asyncio.Future[Any]]] = {}
        self._last_notification_at = 0.0
        self.stream_count = 0

    async def version(self, subscription: Subscription) -> str:
        """Return the page's version token, cached while a stream is open; empty if its subject was deleted."""
        page_version = await (
            self._read_cached(subscription.key, subscription.read_version, subscription.interval_s)
            if subscription.key in self._open_streams
            else subscription.read_version()
        )
        return subscription.version(page_version) if page_version else ""

    async def stream_changes(
        self, subscription: Subscription, subscriber: Subscriber, seen_version: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events: `changed` when the version differs from `seen_version`, `done` at the end."""
        limits = {("person", subscriber.person): USER_STREAMS_MAX, ("team", subscriber.team): TEAM_STREAMS_MAX}
        if self.stream_count >= STREAMS_MAX or any(self._open_streams[key] >= limit for key, limit in limits.items()):
            yield REJECTED_EVENT
            return
        with self._register_stream(subscription.key, subscriber.key, *limits):
            yield STREAM_START
            end, interval = _now() + STREAM_LIFETIME_S, subscription.interval_s
            while _now() < end and not subscriber.is_draining():
                try:
                    may_read = await self._read_cached(subscriber.key, subscriber.may_read, ACCESS_CHECK_INTERVAL_S)
                    page_version = await self._read_cached(
                        subscription.key, subscription.read_version, subscription.interval_s
                    )
                except StoreUnavailable:
                    await self._pause(NOTIFY_INTERVAL_MAX_S, subscriber)
                    continue
                if not may_read or page_version is None:
                    yield ENDED_EVENT
                    return
                if subscription.version(page_version) == seen_version:
                    interval = subscription.interval_s
                else:
                    await self._pause(self._reserve_notification_slot(), subscriber)
                    yield CHANGED_EVENT
                    seen_version = subscription.version(page_version)
                    interval = min(1.5 * interval, NOTIFY_INTERVAL_MAX_S)
                if page_version.is_final:
                    await asyncio.sleep(FINAL_DELAY_S)
                    yield CHANGED_EVENT
                    yield ENDED_EVENT
                    return
                await self._pause(interval, subscriber)
            yield RECONNECT_EVENT

    @contextmanager
    def _register_stream(self, *keys: Key) -> Iterator[None]:
        self._open_streams.update(keys)
        self.stream_count += 1
        try:
            yield
        finally:
            self.stream_count -= 1
            self._open_streams.subtract(keys)
            for key in keys:
                if self._open_streams[key] <= 0:
                    del self._open_streams[key]
                    self._cached_reads.pop(key, None)

    async def _read_cached(self, key: Key, read: Callable[[], Awaitable[Any]], max_age_s: float) -> Any:
        """Return the result of `read`, which concurrent callers share and which is cached for `max_age_s` seconds."""
        started_at, result = self._cached_reads.get(key, (0.0, None))
        if result is None or _now() - started_at >= max_age_s:
            result = asyncio.ensure_future(read())
            self._cached_reads[key] = (_now(), result)
        return await asyncio.shield(result)  # other callers also wait for the result if the first is cancelled

    def _reserve_notification_slot(self) -> float:
        now = _now()
        self._last_notification_at = max(self._last_notification_at + NOTIFY_SPACING_S, now)
        return self._last_notification_at - now

    async def _pause(self, seconds: float, subscriber: Subscriber) -> None:
        end = _now() + seconds
        while (left := end - _now()) > 0 and not subscriber.is_draining():
            await asyncio.sleep(min(left, SHUTDOWN_CHECK_S))


def _now() -> float:
    return asyncio.get_running_loop().time()
