"""Stores the request log, the last use of each API key, and request counts per process for rate limits.

Requests are recorded in memory and written periodically, after the response; a crash loses unwritten entries. A flood
grows neither memory nor disk: requests beyond a team's share are only counted.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.domain.ids import ulid
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, StoreUnavailable, Tx

BUFFER_MAX = 10_000  # entries in memory; during a database outage the newest are kept
WRITE_MAX = 1000  # maximum entries per write, in equal shares for the teams
TEAM_SHARE_MAX = 100  # maximum entries of refused requests per team and write, and as many of other requests
RETENTION_MS = 7 * DAY_MS
TEAM_MAX = 10_000  # maximum stored entries of refused requests per team, and as many of other requests
RECENT_MS = 5 * MINUTE_MS  # TEAM_MAX is checked for teams with a request within this time
DELETE_BATCH = 500  # entries deleted per transaction
FILTER_SCAN_MAX = 2_000  # number of newest requests, refused and others each, whose routes and codes the page offers
NEWEST = "req_~"  # sorts after every id


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Log entry of a request made with a team's key; contains neither body nor path."""

    id: str
    team: int
    at: int
    key: str  # public id of the API key
    route: str
    status: int
    code: str = ""  # code of the refusal
    message: str = ""
    more: int = 0  # requests just before this one that were not logged
    took_ms: int = 0
    replayed: int = 0  # 1 if answered with the stored response of its Idempotency-Key
    subject: str = ""  # id of the object created or requested
    refused: int = 0
    client: str = ""  # User-Agent of a request to a compatibility API


class CompatCalls(msgspec.Struct, frozen=True, array_like=True):
    """Number of calls with one API key to one route of a compatibility API, by one client and with one result."""

    route: str
    client: str  # User-Agent
    refused: int
    code: str
    message: str
    status: int
    id: str  # id of the newest call
    at: int
    count: int


class RequestFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of the request log; an empty text or None matches every entry."""

    status_class: int | None = None  # first digit of the status: 2, 4 or 5
    code: str = ""
    key: str = ""
    route: str = ""
    since: int = 0  # Unix time in ms


class RequestFilterValues(msgspec.Struct, frozen=True, kw_only=True):
    """Routes and error codes that occur in a team's newest requests."""

    routes: frozenset[str]
    codes: frozenset[str]


class RequestLog:
    """Entries for answered requests of this process that are not written yet."""

    def __init__(self) -> None:
        self.buffer: deque[LoggedRequest] = deque(maxlen=BUFFER_MAX)  # oldest first
        self._writing = asyncio.Lock()
        self._written = 0  # entries written in this second
        self._logged_by_team: dict[int, int] = {}  # entries of requests not refused in this second, by team
        self._skipped_by_team: dict[int, int] = {}  # requests not logged since the last entry, by team

    def should_log(self, team: int, limit: int) -> bool:
        """Return whether to log a request that was not refused; at most `limit` per team and second are logged."""
        logged = self._logged_by_team.get(team, 0)
        if logged < limit:
            self._logged_by_team[team] = logged + 1
            return True
        self._skipped_by_team[team] = self._skipped_by_team.get(team, 0) + 1
        return False

    def add(self, request: LoggedRequest) -> None:
        """Add a log entry; call this only if `should_log` returned True or the request was refused."""
        skipped = self._skipped_by_team.pop(request.team, 0)
        self.buffer.append(replace(request, more=skipped) if skipped else request)

    async def write(self, store: "Requests") -> None:
        """Write all waiting entries; during an outage or a flood they stay in memory."""
        async with self._writing:
            buffered = [*self.buffer]
            if not buffered or self._written >= WRITE_MAX:
                return
            to_write = fair_shares(buffered)
            await store.insert(to_write)
            self._written += len(to_write)
            written_ids = {request.id for request in buffered}
            unwritten = [request for request in self.buffer if request.id not in written_ids]
            self.buffer.clear()
            self.buffer.extend(unwritten)

    async def write_periodically(self, store: "Requests") -> None:
        """Reset the limits per second and write all entries; called once a second and at shutdown."""
        self._written = 0
        self._logged_by_team.clear()
        try:
            await self.write(store)
        except StoreUnavailable:
            raise
        except Exception:
            self.buffer.clear()  # otherwise the same entries would fail in the next round
            raise


def fair_shares(requests: Sequence[LoggedRequest]) -> list[LoggedRequest]:
    """Return the newest requests of each team, up to an equal share per team for refused and for other requests.

    The older requests of a share are left out; the oldest returned request of the share has their number in `more`.
    """
    groups: defaultdict[tuple[int, int], list[LoggedRequest]] = defaultdict(list)
    for request in requests:
        groups[request.team, request.refused].append(request)
    share_max = max(1, min(TEAM_SHARE_MAX, WRITE_MAX // len(groups)))
    shares = []
    for group in groups.values():
        skipped_requests = group[:-share_max]
        oldest, *newer = [_storable(request) for request in group[-share_max:]]
        skipped = len(skipped_requests) + sum(request.more for request in skipped_requests)
        shares += [replace(oldest, more=oldest.more + skipped), *newer]
    return shares


def _storable(request: LoggedRequest) -> LoggedRequest:
    """Return the request without characters that cannot be stored: NUL on PostgreSQL, and lone surrogates in UTF-8."""
    if not request.message:
        return request
    return replace(request, message=request.message.replace("\0", "\ufffd").encode("utf-8", "replace").decode())


async def purge(tx: Tx, now: int) -> bool:
    """Delete one batch of old log entries; return whether there may be more."""
    old = await tx.run("purge_requests", before=f"req_{ulid(now - RETENTION_MS, 0)}", limit=DELETE_BATCH)
    trimmed = await tx.run("trim_requests", since=f"req_{ulid(now - RECENT_MS, 0)}", most=TEAM_MAX, limit=DELETE_BATCH)
    return DELETE_BATCH in (len(old), len(trimmed))


async def _list_page(tx: Tx, team: int, request_filter: RequestFilter, before: str, limit: int) -> list[LoggedRequest]:
    refused_values, status_min, status_max = [0, 1], 0, 999
    if (status_class := request_filter.status_class) is not None:
        refused_values, status_min = [int(status_class >= 4)], 100 * status_class
        status_max = status_min + 99
    if request_filter.code:  # only refusals have a code
        refused_values = [refused for refused in refused_values if refused]
    since = f"req_{ulid(request_filter.since, 0)}"
    id_range = {"before": before, "since": since, "low": status_min, "high": status_max, "limit": limit + 1}
    text_filters = {"code": request_filter.code, "key": request_filter.key, "route": request_filter.route}
    requests = [
        msgspec.convert(tuple(row), LoggedRequest)
        for refused in refused_values
        for row in await tx.run("list_requests", team=team, refused=refused, **id_range, **text_filters)
    ]
    return sorted(requests, key=lambda request: request.id, reverse=True)[: limit + 1]


USAGE_FRESH_MS = 30_000  # a process without a report for this long is considered dead


class ProcessUsage(msgspec.Struct, frozen=True):
    """Number of requests that a process has allowed for one key since the process started."""

    process: str
    key: str
    count: int


class Requests:
    def __init__(self, database: Database, clock: Clock, owner: str) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner

    async def sync_usage(self, counts: dict[str, int]) -> list[ProcessUsage]:
        """Publish this process's request counts by key; return the counts of all live processes."""
        now = self._clock.now()
        rows = [(self._owner, key, count, now) for key, count in [("", 0), *counts.items()]]

        async def exchange(tx: Tx) -> list[ProcessUsage]:
            await tx.run("lock_usage_exchange")
            await tx.run("save_usage", spent=rows)
            usage_rows = await tx.run("usage_of_others", process=self._owner, since=now - USAGE_FRESH_MS)
            return [ProcessUsage(*row) for row in usage_rows]

        return await self._database.write(exchange)

    async def read_key_uses(self, keys: Iterable[str]) -> dict[str, int]:
        """Return key id → time of the key's last use; keys without a use are missing.

        Uses in the last minute may not be written yet.
        """
        key_rows = [(key,) for key in keys]
        return dict(await self._database.read(lambda tx: tx.run("key_uses", keys=key_rows)))

    async def write_key_uses(self, last_uses: dict[str, int]) -> None:
        """Write the recorded uses and clear them; uses recorded during the write stay for the next call."""
        written = dict(last_uses)
        if not written:
            return
        await self._database.write(lambda tx: tx.run("save_key_uses", uses=list(written.items())))
        for key, at in written.items():
            if last_uses[key] == at:
                del last_uses[key]

    async def insert(self, requests: Sequence[LoggedRequest]) -> None:
        await self._database.write(lambda tx: tx.run("insert_requests", requests=requests))

    async def list_page(
        self, team: int, request_filter: RequestFilter | None = None, before: str = NEWEST, limit: int = 50
    ) -> list[LoggedRequest]:
        """Return log entries, newest first: up to `limit`, and one more if another page follows."""
        request_filter = request_filter or RequestFilter()
        return await self._database.read_standby(
            partial(_list_page, team=team, request_filter=request_filter, before=before, limit=limit)
        )

    async def list_filter_values(self, team: int) -> RequestFilterValues:
        """Return the routes and error codes of a team's newest requests."""

        async def read_values(tx: Tx) -> list[Any]:
            return [
                row
                for refused in (0, 1)
                for row in await tx.run("request_filter_values", team=team, refused=refused, most=FILTER_SCAN_MAX)
            ]

        rows = await self._database.read_standby(read_values)
        return RequestFilterValues(
            routes=frozenset(route for route, _ in rows), codes=frozenset(code for _, code in rows if code)
        )

    async def list_compat_calls(self, team: int, key: str, limit: int) -> list[CompatCalls]:
        """Return the logged calls to compatibility APIs with a key, accepted and refused, newest first."""
        since = f"req_{ulid(self._clock.now() - RETENTION_MS, 0)}"

        async def read_calls(tx: Tx) -> list[Any]:
            params = {"team": team, "key": key, "since": since, "most": limit}
            return [row for refused in (0, 1) for row in await tx.run("compat_calls_of_key", refused=refused, **params)]

        rows = await self._database.read_standby(read_calls)
        return sorted((CompatCalls(*row) for row in rows), key=lambda call: call.id, reverse=True)

    async def find(self, team: int, id_: str) -> LoggedRequest | None:
        rows = await self._database.read(lambda tx: tx.run("find_request", team=team, id=id_))
        return msgspec.convert(tuple(rows[0]), LoggedRequest) if rows else None

    async def list_version(self, team: int) -> dict[str, str]:
        """Return a version token that changes whenever the request list changes."""
        (row,) = await self._database.read(lambda tx: tx.run("requests_version", team=team))
        return {"requests": "-".join(str(id_ or "") for id_ in row)}
