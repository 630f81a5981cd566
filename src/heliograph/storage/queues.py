"""Counts waiting outbox rows by lane and team, up to a limit, by reading only an index."""

import msgspec

from heliograph.domain.delivery.lanes import HELD_QUEUE, LANE_AND_PRIORITY_BY_QUEUE
from heliograph.domain.setup.records import Priority
from heliograph.storage.engine.database import Tx

PAGE_COUNT_MAX = 10_000  # maximum that a page counts per team or webhook, in about a millisecond
DEPTH_COUNT_MAX = 100_000  # maximum that the metrics count per team
ALL_QUEUES = [(queue,) for queue in LANE_AND_PRIORITY_BY_QUEUE]
QUEUES_AND_HELD = [*ALL_QUEUES, (HELD_QUEUE,)]  # all queues, and that of messages that wait for approval


class QueueShare(msgspec.Struct, frozen=True, kw_only=True):
    """One team's row counts and due times in a lane; `due` and `retrying` are counted up to a limit."""

    lane: str
    team: int
    due: int = 0
    retrying: int = 0  # waiting for a retry
    in_progress: int = 0
    oldest_due: int | None = None  # earliest due time of the waiting rows
    in_progress_since: int | None = None  # earliest due time of the rows in progress
    retrying_since: int | None = None  # first attempt of the oldest row that waits for a retry

    @property
    def first_due(self) -> int | None:
        return _earliest(self.oldest_due, self.in_progress_since)


async def oldest_by_priority(tx: Tx, now: int, limit: int) -> dict[Priority, int]:
    """Return priority → time at which the wait of its oldest message began.

    A wait begins when the message is due or, if the message is being retried, with its first attempt.
    """
    since_by_priority: dict[Priority, int] = {}
    for share in await _read_shares(tx, now, limit):
        since, (_, priority) = _earliest(share.first_due, share.retrying_since), LANE_AND_PRIORITY_BY_QUEUE[share.lane]
        if since is not None and since <= now:  # scheduled messages do not wait yet
            since_by_priority[priority] = min(since, since_by_priority.get(priority, since))
    return since_by_priority


async def _read_shares(tx: Tx, now: int, limit: int) -> list[QueueShare]:
    """Return each team's shares in each queue, one for the waiting rows and one for those in progress.

    The field `lane` of these shares is the name of the queue.
    """
    waiting_shares = [
        QueueShare(lane=queue, team=team, due=due, retrying=retrying, oldest_due=oldest, retrying_since=retrying_since)
        for queue, team, due, retrying, oldest, retrying_since in await tx.run(
            "waiting_by_team", lanes=ALL_QUEUES, now=now, most=limit
        )
    ]
    return waiting_shares + [
        QueueShare(lane=queue, team=team, in_progress=in_progress, in_progress_since=since)
        for queue, team, in_progress, since in await tx.run("claimed_by_team")
    ]


async def read_lane_shares(tx: Tx, now: int, limit: int) -> list[QueueShare]:
    """Return the row counts and due times of each team in each lane, over all priorities."""
    share_by_lane: dict[tuple[str, int], QueueShare] = {}
    for share in await _read_shares(tx, now, limit):
        lane, _ = LANE_AND_PRIORITY_BY_QUEUE[share.lane]
        previous_share = share_by_lane.get((lane, share.team), QueueShare(lane=lane, team=share.team))
        share_by_lane[lane, share.team] = QueueShare(
            lane=lane,
            team=share.team,
            due=previous_share.due + share.due,
            retrying=previous_share.retrying + share.retrying,
            in_progress=previous_share.in_progress + share.in_progress,
            oldest_due=_earliest(previous_share.oldest_due, share.oldest_due),
            in_progress_since=_earliest(previous_share.in_progress_since, share.in_progress_since),
            retrying_since=_earliest(previous_share.retrying_since, share.retrying_since),
        )
    return list(share_by_lane.values())


def _earliest(*times: int | None) -> int | None:
    return min((at for at in times if at is not None), default=None)
