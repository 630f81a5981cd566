"""Hourly statistics of each team by channel, and other figures of the team overview.

Only counters and small tables are read, so the cost does not grow with the number of messages.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import msgspec

from heliograph.domain.delivery.lanes import LANE_AND_PRIORITY_BY_QUEUE, LANE_BY_CHANNEL
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.setup.records import Channel
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.queues import ALL_QUEUES

QUEUE_COUNT_MAX = 1_000  # rows of a queue are counted up to this number

Transition = tuple[int, Channel, int, str, tuple[str, ...]]  # team, channel, time, state before, states passed through


class StateCounts(NamedTuple):
    """Number of recipients that reached each state."""

    sent: int = 0
    delivered: int = 0
    bounced: int = 0
    complained: int = 0
    failed: int = 0
    read: int = 0

    def plus(self, other: "StateCounts", times: int = 1) -> "StateCounts":
        return StateCounts(
            *(own_count + times * other_count for own_count, other_count in zip(self, other, strict=True))
        )


class TeamTotals(NamedTuple):
    """Total numbers of messages of one team."""

    sent: int = 0  # over all channels
    emails: int = 0
    bounced: int = 0  # bounced emails
    complained: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    counts: dict[tuple[int, str], StateCounts]  # by start of the hour or day, and channel
    waiting: int  # number of recipients not attempted yet; QUEUE_COUNT_MAX means at least that many
    oldest_due: int | None  # due time of the oldest due recipient
    failing: dict[str, int]  # webhook → time of the first failure


@cache
def count_transition(previous: str, path: tuple[str, ...]) -> StateCounts:
    """Return the counters of one state transition. The first outcome counts as sent, even if it is a failure."""
    reached = [int(state in path) for state in StateCounts._fields[1:]]
    return StateCounts(int(previous in ("queued", "sending") and path[-1:] not in ((), ("sending",))), *reached)


async def count_transitions(tx: Tx, transitions: Iterable[Transition]) -> None:
    """Add state transitions to the hourly counters."""
    sums: dict[tuple[int, int, str], StateCounts] = {}
    transition_counts = Counter(
        [(team, at - at % HOUR_MS, channel, before, path) for team, channel, at, before, path in transitions]
    )
    for (team, hour, channel, before, path), times in transition_counts.items():
        if any(counts := count_transition(before, path)):
            key = (team, hour, channel)
            sums[key] = sums.get(key, StateCounts()).plus(counts, times)
    if sums:
        # Sorted, so that processes that count the same hours lock rows in the same order and cannot deadlock.
        await tx.run("count_figures", counts=[(*key, *counts) for key, counts in sorted(sums.items())])


class Stats:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def overview(self, team: int, since: int, interval_ms: int, webhooks: Iterable[str]) -> Overview:
        """Return a team's figures since `since`, in intervals of `interval_ms`, and which webhooks are failing."""
        now = self._clock.now()
        hooks = [(id_,) for id_ in webhooks]

        async def read_overview(tx: Tx) -> Overview:
            rows = await tx.run("team_figures", team=team, since=since, width=interval_ms)
            queues = await tx.run("team_queue", team=team, lanes=ALL_QUEUES, most=QUEUE_COUNT_MAX)
            return Overview(
                counts={(start, channel): StateCounts(*counts) for start, channel, *counts in rows},
                waiting=min(QUEUE_COUNT_MAX, sum(row[1] for row in queues)),
                oldest_due=min((due for _, _, due in queues if due is not None and due <= now), default=None),
                failing=dict(await tx.run("failing_endpoints", webhooks=hooks)),
            )

        return await self._database.read_standby(read_overview)

    async def usage(self, team: int, since: int, until: int) -> dict[str, StateCounts]:
        """Return channel → a team's counts from `since` to before `until`."""
        rows = await self._database.read_standby(
            lambda tx: tx.run("usage_figures", team=team, since=since, until=until)
        )
        return {channel: StateCounts(*counts) for channel, *counts in rows}

    async def instance_totals(self, since: int) -> dict[int, TeamTotals]:
        """Return team → its totals, for every team that has sent since `since`."""
        rows = await self._database.read_standby(lambda tx: tx.run("instance_figures", since=since))
        return {team: TeamTotals(*counts) for team, *counts in rows}

    async def team_totals(self, teams: Iterable[int], since: int) -> dict[int, TeamTotals]:
        """Return team → its totals, for those of `teams` that have sent since `since`."""
        team_rows = [(team,) for team in teams]
        rows = await self._database.read_standby(lambda tx: tx.run("figures_of_teams", teams=team_rows, since=since))
        return {team: TeamTotals(*counts) for team, *counts in rows}

    async def sent_by_hour(self, teams: Iterable[int], since: int) -> dict[int, dict[int, int]]:
        """Return team → start of the hour → number of messages sent."""
        team_rows = [(team,) for team in teams]
        rows = await self._database.read_standby(lambda tx: tx.run("sent_by_hour", teams=team_rows, since=since))
        sent_by_team: dict[int, dict[int, int]] = {}
        for team, hour, sent in rows:
            sent_by_team.setdefault(team, {})[hour] = sent
        return sent_by_team

    async def count_held(self, team: int, channel: Channel) -> int:
        """Return how many messages of a channel are held for a reason of our own, such as an unavailable carrier.

        QUEUE_COUNT_MAX means at least that many.
        """
        lanes = [
            (queue,) for queue, (lane, _) in LANE_AND_PRIORITY_BY_QUEUE.items() if lane == LANE_BY_CHANNEL[channel]
        ]
        rows = await self._database.read(
            lambda tx: tx.run("team_held", team=team, channel=channel, lanes=lanes, most=QUEUE_COUNT_MAX)
        )
        return min(QUEUE_COUNT_MAX, sum(int(row[0]) for row in rows))
