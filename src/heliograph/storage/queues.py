"""Counts waiting outbox rows by lane and team along an index, up to a limit."""

import msgspec

from heliograph.domain.delivery.lanes import QUEUES
from heliograph.domain.setup.records import Priority
from heliograph.storage.engine.database import Tx

PAGE_MOST = 10_000  # maximum that a page counts per team or webhook: takes about a millisecond
DEPTH_MOST = 100_000  # maximum that the metrics count per team
EVERY = [(queue,) for queue in QUEUES]


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One team's share of a lane; `due` and `later` are counted up to a limit."""

    lane: str
    team: int
    due: int = 0
    later: int = 0  # waiting for a retry
    working: int = 0
    oldest: int | None = None  # earliest due time of the waiting rows
    working_since: int | None = None  # earliest due time of the rows in progress
    tried_since: int | None = None  # first attempt of the oldest row that waits for a retry

    @property
    def first_due(self) -> int | None:
        return _earlier(self.oldest, self.working_since)


async def oldest_by_priority(tx: Tx, now: int, most: int) -> dict[Priority, int]:
    """Map each priority to the time since which its oldest message has waited.

    That is its due time, or its first attempt if it is in retry.
    """
    found: dict[Priority, int] = {}
    for part in await _parts(tx, now, most):
        since, (_, priority) = _earlier(part.first_due, part.tried_since), QUEUES[part.lane]
        if since is not None and since <= now:  # scheduled messages do not wait yet
            found[priority] = min(since, found.get(priority, since))
    return found


async def _parts(tx: Tx, now: int, most: int) -> list[Queue]:
    """Return each team's share of each queue, waiting rows and rows in progress separately.

    `lane` is here the name of the queue.
    """
    waiting = [
        Queue(lane=queue, team=team, due=due, later=later, oldest=oldest, tried_since=tried_since)
        for queue, team, due, later, oldest, tried_since in await tx.run(
            "waiting_by_team", lanes=EVERY, now=now, most=most
        )
    ]
    return waiting + [
        Queue(lane=queue, team=team, working=working, working_since=since)
        for queue, team, working, since in await tx.run("working_by_team")
    ]


async def queues(tx: Tx, now: int, most: int) -> list[Queue]:
    """Return each team's share of each lane."""
    found: dict[tuple[str, int], Queue] = {}
    for part in await _parts(tx, now, most):
        lane, _ = QUEUES[part.lane]
        before = found.get((lane, part.team), Queue(lane=lane, team=part.team))
        found[lane, part.team] = Queue(
            lane=lane,
            team=part.team,
            due=before.due + part.due,
            later=before.later + part.later,
            working=before.working + part.working,
            oldest=_earlier(before.oldest, part.oldest),
            working_since=_earlier(before.working_since, part.working_since),
            tried_since=_earlier(before.tried_since, part.tried_since),
        )
    return list(found.values())


def _earlier(*times: int | None) -> int | None:
    return min((at for at in times if at is not None), default=None)
