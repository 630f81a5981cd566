"""What requests leave: the log of them, when each key was last used, and what each process let through.

Requests note it in memory, and each process writes its own down now and then: after the answer, and what a crash takes
with it is lost. A flood grows neither memory nor disk: what is beyond a share is counted and not kept.
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

WAITING_MAX = 10_000  # in memory; while the database is away, the newest
WRITTEN_MAX = 1000  # at once, in equal shares of the teams …
SHARE_MAX = 100  # … each at most this, of refused ones and of others
KEPT_MS = 7 * DAY_MS
TEAM_MAX = 10_000  # kept of a team: so many refused ones, and so many others
LATELY_MS = 5 * MINUTE_MS  # whose team may have too many
PORTION = 500  # deleted in one transaction
NEWEST = "req_~"  # after every id


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What is remembered of a request that a team's key made: no body, no path."""

    id: str
    team: int
    at: int
    key: str  # its public part
    route: str
    status: int
    code: str = ""  # of the refusal
    message: str = ""
    more: int = 0  # that came just before it and were too many to be kept
    took_ms: int = 0
    replayed: int = 0  # answered as its Idempotency-Key was before
    subject: str = ""  # the id of what it made or asked for
    refused: int = 0


class WantedRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests a list has. An empty text and None mean any."""

    class_: int | None = None  # of the status: 2, 4 or 5
    code: str = ""
    key: str = ""
    route: str = ""
    since: int = 0  # ms


class RequestLog:
    """What this process has answered and not written yet."""

    def __init__(self) -> None:
        self.waiting: deque[LoggedRequest] = deque(maxlen=WAITING_MAX)  # oldest first
        self._writing = asyncio.Lock()
        self._written = 0  # in this second
        self._kept: dict[int, int] = {}  # in this second, of those that were not refused, by team
        self._left_out: dict[int, int] = {}  # since the last that was kept

    def keeps(self, team: int, most: int) -> bool:
        """Tell whether a request that was not refused is kept: so many of a team in a second."""
        kept = self._kept.get(team, 0)
        if kept < most:
            self._kept[team] = kept + 1
            return True
        self._left_out[team] = self._left_out.get(team, 0) + 1
        return False

    def note(self, request: LoggedRequest) -> None:
        """Note it, after `keeps` has said so."""
        more = self._left_out.pop(request.team, 0)
        self.waiting.append(replace(request, more=more) if more else request)

    async def write(self, store: "Requests") -> None:
        """Write all that waits now; when the database is away, or in a flood, it keeps waiting."""
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
        """Write once a second, and at the end."""
        self._written = 0
        self._kept.clear()
        try:
            await self.write(store)
        except StoreUnavailable:
            raise
        except Exception:
            self.waiting.clear()  # or it would break the next round too
            raise


def shares(requests: Sequence[LoggedRequest]) -> list[LoggedRequest]:
    """Keep the newest of each team, refused ones and others apart; the oldest of these says how many came before it."""
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
    """Replace what cannot be stored: PostgreSQL takes no NUL, and UTF-8 no half of a surrogate pair."""
    if not one.message:
        return one
    return replace(one, message=one.message.replace("\0", "\ufffd").encode("utf-8", "replace").decode())


async def purge(tx: Tx, now: int) -> bool:
    """Delete one portion; returns whether there may be more."""
    old = await tx.run("purge_requests", before=f"req_{ulid(now - KEPT_MS, 0)}", limit=PORTION)
    beyond = await tx.run("trim_requests", since=f"req_{ulid(now - LATELY_MS, 0)}", most=TEAM_MAX, limit=PORTION)
    return PORTION in (len(old), len(beyond))


async def _page(tx: Tx, team: int, wanted: WantedRequests, before: str, limit: int) -> list[LoggedRequest]:
    kinds: tuple[int, ...] = (0, 1) if wanted.class_ is None else (int(wanted.class_ >= 4),)
    if wanted.code:  # only refusals have one
        kinds = tuple(kind for kind in kinds if kind)
    low, high = (0, 999) if wanted.class_ is None else (100 * wanted.class_, 100 * wanted.class_ + 99)
    span = {"before": before, "since": f"req_{ulid(wanted.since, 0)}", "low": low, "high": high, "limit": limit + 1}
    words = {"code": wanted.code, "key": wanted.key, "route": wanted.route}
    rows = [row for kind in kinds for row in await tx.run("list_requests", team=team, refused=kind, **span, **words)]
    return sorted((msgspec.convert(tuple(row), LoggedRequest) for row in rows), key=lambda one: one.id, reverse=True)[
        : limit + 1
    ]


SPENT_FRESH_MS = 30_000  # a process that reported nothing for this long is gone


class Spent(msgspec.Struct, frozen=True):
    """What a process has let through since its start, by key."""

    process: str
    key: str
    count: int


class Requests:
    def __init__(self, database: Database, clock: Clock, owner: str) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner

    async def exchange_spent(self, spent: dict[str, int]) -> list[Spent]:
        """Publish what this process has let through since its start, by key; returns the same for live processes."""
        now = self._clock.now()
        rows = [(self._owner, key, count, now) for key, count in [("", 0), *spent.items()]]

        async def story(tx: Tx) -> list[Spent]:
            await tx.run("take_turns")
            await tx.run("tell_spent", spent=rows)
            found = await tx.run("hear_spent", process=self._owner, since=now - SPENT_FRESH_MS)
            return [Spent(*row) for row in found]

        return await self._database.write(story)

    async def key_uses(self, keys: Iterable[str]) -> dict[str, int]:
        """Return when each of these keys was used, if ever; the last minute is only in the processes' memories."""
        asked = [(key,) for key in keys]
        return dict(await self._database.read(lambda tx: tx.run("key_uses", keys=asked)))

    async def write_key_uses(self, used: dict[str, int]) -> None:
        """Write what was noted; what is noted meanwhile stays for the next time."""
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
        """Return the newest first, and one more than the limit when there are more."""
        asked = wanted or WantedRequests()
        return await self._database.read(partial(_page, team=team, wanted=asked, before=before, limit=limit))

    async def find(self, team: int, id_: str) -> LoggedRequest | None:
        rows = await self._database.read(lambda tx: tx.run("find_request", team=team, id=id_))
        return msgspec.convert(tuple(rows[0]), LoggedRequest) if rows else None

    async def pulse(self, team: int) -> dict[str, str]:
        """Return a word that changes with the list."""
        (row,) = await self._database.read(lambda tx: tx.run("requests_pulse", team=team))
        return {"requests": "-".join(str(id_ or "") for id_ in row)}
