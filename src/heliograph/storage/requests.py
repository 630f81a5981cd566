"""Stores the request log, the last use of each API key, and request counts per process for rate limits.

Requests are recorded in memory and written periodically, after the response; a crash loses unwritten entries. A flood
grows neither memory nor disk: requests beyond a team's share are only counted.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from heliograph.domain.ids import ulid
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, StoreUnavailable, Tx

WAITING_MAX = 10_000  # entries in memory; during a database outage the newest are kept
WRITTEN_MAX = 1000  # entries per write, in equal shares for the teams
SHARE_MAX = 100  # maximum per team and write, for refused and other requests each
KEPT_MS = 7 * DAY_MS
TEAM_MAX = 10_000  # entries kept per team, for refused and other requests each
LATELY_MS = 5 * MINUTE_MS  # teams with requests this recent are checked for TEAM_MAX
PORTION = 500  # entries deleted per transaction
NEWEST = "req_~"  # sorts after every id


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Log entry of a request made with a team's key; contains neither body nor path."""

    id: str
    team: int
    at: int
    key: str  # public part of the API key
    route: str
    status: int
    code: str = ""  # code of the refusal
    message: str = ""
    more: int = 0  # requests just before this one that were not logged
    took_ms: int = 0
    replayed: int = 0  # 1 if answered with the stored response of its Idempotency-Key
    subject: str = ""  # id of the object created or requested
    refused: int = 0


class WantedRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of the request log; an empty text and None match anything."""

    class_: int | None = None  # status class: 2, 4 or 5
    code: str = ""
    key: str = ""
    route: str = ""
    since: int = 0  # ms


class RequestLog:
    """Answered requests of this process that are not written yet."""

    def __init__(self) -> None:
        self.waiting: deque[LoggedRequest] = deque(maxlen=WAITING_MAX)  # oldest first
        self._writing = asyncio.Lock()
        self._written = 0  # entries written in this second
        self._kept: dict[int, int] = {}  # entries of requests not refused in this second, by team
        self._left_out: dict[int, int] = {}  # requests not logged since the last entry, by team

    def keeps(self, team: int, most: int) -> bool:
        """Return whether to log a request that was not refused; at most `most` per team and second."""
        kept = self._kept.get(team, 0)
        if kept < most:
            self._kept[team] = kept + 1
            return True
        self._left_out[team] = self._left_out.get(team, 0) + 1
        return False

    def note(self, request: LoggedRequest) -> None:
        """Add a log entry; call this only if `keeps` returned True or the request was refused."""
        more = self._left_out.pop(request.team, 0)
        self.waiting.append(replace(request, more=more) if more else request)

    async def write(self, store: "Requests") -> None:
        """Write all waiting entries; during an outage or a flood they stay in memory."""
        async with self._writing:
            taken = [*self.waiting]
            if not taken or self._written >= WRITTEN_MAX:
                return
            kept = shares(taken)
            await store.note(kept)
            self._written += len(kept)
            written = {one.id for one in taken}
            left = [one for one in self.waiting if one.id not in written]
            self.waiting.clear()
            self.waiting.extend(left)

    async def write_in_time(self, store: "Requests") -> None:
        """Reset the limits of the second and write; called once a second and at shutdown."""
        self._written = 0
        self._kept.clear()
        try:
            await self.write(store)
        except StoreUnavailable:
            raise
        except Exception:
            self.waiting.clear()  # otherwise the same entries would fail in the next round
            raise


def shares(requests: Sequence[LoggedRequest]) -> list[LoggedRequest]:
    """Return the newest requests of each team, refused and other requests separately.

    In each group, `more` of the oldest returned request has the number of older requests left out.
    """
    groups: defaultdict[tuple[int, int], list[LoggedRequest]] = defaultdict(list)
    for one in requests:
        groups[one.team, one.refused].append(one)
    most = max(1, min(SHARE_MAX, WRITTEN_MAX // len(groups)))
    kept = []
    for own in groups.values():
        left_out = own[:-most]
        oldest, *rest = [_storable(one) for one in own[-most:]]
        more = len(left_out) + sum(one.more for one in left_out)
        kept += [replace(oldest, more=oldest.more + more), *rest]
    return kept


def _storable(one: LoggedRequest) -> LoggedRequest:
    """Replace characters that cannot be stored: NUL on PostgreSQL, and lone surrogates in UTF-8."""
    if not one.message:
        return one
    return replace(one, message=one.message.replace("\0", "\ufffd").encode("utf-8", "replace").decode())


async def purge(tx: Tx, now: int) -> bool:
    """Delete one batch of old entries; return whether there may be more."""
    old = await tx.run("purge_requests", before=f"req_{ulid(now - KEPT_MS, 0)}", limit=PORTION)
    beyond = await tx.run("trim_requests", since=f"req_{ulid(now - LATELY_MS, 0)}", most=TEAM_MAX, limit=PORTION)
    return PORTION in (len(old), len(beyond))


async def _page(tx: Tx, team: int, wanted: WantedRequests, before: str, limit: int) -> list[LoggedRequest]:
    kinds: tuple[int, ...] = (0, 1) if wanted.class_ is None else (int(wanted.class_ >= 4),)
    if wanted.code:  # only refusals have a code
        kinds = tuple(kind for kind in kinds if kind)
    low, high = (0, 999) if wanted.class_ is None else (100 * wanted.class_, 100 * wanted.class_ + 99)
    span = {"before": before, "since": f"req_{ulid(wanted.since, 0)}", "low": low, "high": high, "limit": limit + 1}
    words = {"code": wanted.code, "key": wanted.key, "route": wanted.route}
    rows = [row for kind in kinds for row in await tx.run("list_requests", team=team, refused=kind, **span, **words)]
    return sorted((msgspec.convert(tuple(row), LoggedRequest) for row in rows), key=lambda one: one.id, reverse=True)[
        : limit + 1
    ]


SPENT_FRESH_MS = 30_000  # a process without a report for this long is considered dead


class Spent(msgspec.Struct, frozen=True):
    """Number of requests that a process has allowed since its start, for one key."""

    process: str
    key: str
    count: int


class Requests:
    def __init__(self, database: Database, clock: Clock, owner: str) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner

    async def exchange_spent(self, spent: dict[str, int]) -> list[Spent]:
        """Publish this process's request counts by key; return the counts of all live processes."""
        now = self._clock.now()
        rows = [(self._owner, key, count, now) for key, count in [("", 0), *spent.items()]]

        async def story(tx: Tx) -> list[Spent]:
            await tx.run("take_turns")
            await tx.run("tell_spent", spent=rows)
            found = await tx.run("hear_spent", process=self._owner, since=now - SPENT_FRESH_MS)
            return [Spent(*row) for row in found]

        return await self._database.write(story)

    async def key_uses(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the time of the last use of each key.

        The last minute is only in the memory of the processes. Unused keys are missing.
        """
        asked = [(key,) for key in keys]
        return dict(await self._database.read(lambda tx: tx.run("key_uses", keys=asked)))

    async def write_key_uses(self, used: dict[str, int]) -> None:
        """Write and clear the recorded uses; uses recorded during the write stay for the next call."""
        noted = dict(used)
        if not noted:
            return
        await self._database.write(lambda tx: tx.run("note_key_use", uses=list(noted.items())))
        for key, at in noted.items():
            if used[key] == at:
                del used[key]

    async def note(self, requests: Sequence[LoggedRequest]) -> None:
        await self._database.write(lambda tx: tx.run("note_requests", requests=requests))

    async def page(
        self, team: int, wanted: WantedRequests | None = None, before: str = NEWEST, limit: int = 50
    ) -> list[LoggedRequest]:
        """Return entries, newest first, with one more than `limit` if there are more."""
        asked = wanted or WantedRequests()
        return await self._database.read(partial(_page, team=team, wanted=asked, before=before, limit=limit))

    async def find(self, team: int, id_: str) -> LoggedRequest | None:
        rows = await self._database.read(lambda tx: tx.run("find_request", team=team, id=id_))
        return msgspec.convert(tuple(rows[0]), LoggedRequest) if rows else None

    async def pulse(self, team: int) -> dict[str, str]:
        """Return a version token that changes with the list."""
        (row,) = await self._database.read(lambda tx: tx.run("requests_pulse", team=team))
        return {"requests": "-".join(str(id_ or "") for id_ in row)}
