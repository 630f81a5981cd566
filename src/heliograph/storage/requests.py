"""What requests leave: the log of refused ones, when each key was last used, and what each process let through.

Requests note it in memory, and each process writes its own down now and then. A flood grows neither memory nor disk:
what is beyond a share is counted and not kept.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from heliograph.clock import Clock
from heliograph.rules.ids import ulid
from heliograph.rules.limits import DAY_MS, HOUR_MS
from heliograph.storage.engine.database import Database, StoreUnavailable, Tx

WAITING_MAX = 10_000  # in memory; while the database is away, the newest
WRITTEN_MAX = 1000  # at once, in equal shares of the teams …
SHARE_MAX = 100  # … each at most this
KEPT_MS = 7 * DAY_MS
TEAM_MAX = 10_000  # kept of a team
PORTION = 500  # deleted in one transaction
NEWEST = "req_~"  # after every id


class RefusedRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What is remembered of a request that a team's key made and that was refused: no body, no path."""

    id: str
    team: int
    at: int
    key: str  # its public part
    route: str
    status: int
    code: str
    message: str
    more: int = 0  # that came just before it and were too many to be kept


class RequestLog:
    """What this process refused and has not written yet."""

    def __init__(self) -> None:
        self.waiting: deque[RefusedRequest] = deque(maxlen=WAITING_MAX)  # oldest first
        self._writing = asyncio.Lock()
        self._written = 0  # in this second

    async def write(self, store: "Requests") -> None:
        """All that waits now; when the database is away, or in a flood, it keeps waiting."""
        async with self._writing:
            taken = [*self.waiting]
            if not taken or self._written >= WRITTEN_MAX:
                return
            kept = shares(taken)
            await store.note_refused(kept)
            self._written += len(kept)
            written = {one.id for one in taken}
            left = [one for one in self.waiting if one.id not in written]
            self.waiting.clear()
            self.waiting.extend(left)

    async def write_in_time(self, store: "Requests") -> None:
        """Once a second, and at the end."""
        self._written = 0
        try:
            await self.write(store)
        except StoreUnavailable:
            raise
        except Exception:
            self.waiting.clear()  # or it would break the next round too
            raise


def shares(requests: Sequence[RefusedRequest]) -> list[RefusedRequest]:
    """The newest of each team; the oldest of these says how many came before it."""
    by_team: defaultdict[int, list[RefusedRequest]] = defaultdict(list)
    for one in requests:
        by_team[one.team].append(one)
    most = max(1, min(SHARE_MAX, WRITTEN_MAX // len(by_team)))
    kept = []
    for own in by_team.values():
        oldest, *rest = [_storable(one) for one in own[-most:]]
        kept += [replace(oldest, more=max(0, len(own) - most)), *rest]
    return kept


def _storable(one: RefusedRequest) -> RefusedRequest:
    """PostgreSQL cannot store a NUL, nor UTF-8 half a surrogate pair."""
    return replace(one, message=one.message.replace("\0", "\ufffd").encode("utf-8", "replace").decode())


async def purge(tx: Tx, now: int) -> bool:
    """Delete one portion; returns whether there may be more."""
    old = await tx.run("purge_refused", before=f"req_{ulid(now - KEPT_MS, 0)}", limit=PORTION)
    beyond = await tx.run("trim_refused", since=f"req_{ulid(now - HOUR_MS, 0)}", most=TEAM_MAX, limit=PORTION)
    return PORTION in (len(old), len(beyond))


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
            await tx.run("tell_spent", spent=rows)
            found = await tx.run("hear_spent", process=self._owner, since=now - SPENT_FRESH_MS)
            return [Spent(*row) for row in found]

        return await self._database.write(story)

    async def key_uses(self, keys: Iterable[str]) -> dict[str, int]:
        """Of these keys, those that were ever used, and when; the last minute is only in the processes' memories."""
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

    async def note_refused(self, requests: Sequence[RefusedRequest]) -> None:
        await self._database.write(lambda tx: tx.run("note_refused", requests=requests))

    async def refused(self, team: int, before: str = NEWEST, limit: int = 50) -> list[RefusedRequest]:
        """Newest first; one more than the limit, when there are more."""
        rows = await self._database.read(
            lambda tx: tx.run("refused_requests", team=team, before=before, limit=limit + 1)
        )
        return [msgspec.convert(tuple(row), RefusedRequest) for row in rows]

    async def find_refused(self, team: int, id_: str) -> RefusedRequest | None:
        rows = await self._database.read(lambda tx: tx.run("refused_request", team=team, id=id_))
        return msgspec.convert(tuple(rows[0]), RefusedRequest) if rows else None
