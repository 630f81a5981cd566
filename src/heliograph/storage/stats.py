"""Hourly statistics of each team by channel, and other figures of the team overview.

Only counters and small tables are read, so the cost does not grow with the number of messages.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import msgspec

from heliograph.domain.delivery.lanes import LANE, QUEUES
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.setup.records import Channel
from heliograph.runtime.clock import Clock
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.queues import EVERY

QUEUE_MOST = 1_000  # maximum that is counted of a queue

Step = tuple[int, Channel, int, str, tuple[str, ...]]  # team, channel, time, state before, states passed through


class Reached(NamedTuple):
    """Recipients by the states that they reached."""

    sent: int = 0
    delivered: int = 0
    bounced: int = 0
    complained: int = 0
    failed: int = 0
    read: int = 0

    def plus(self, more: "Reached", times: int = 1) -> "Reached":
        return Reached(*(one + times * another for one, another in zip(self, more, strict=True)))


class TeamFigures(NamedTuple):
    """Totals of one team."""

    sent: int = 0  # over all channels
    emails: int = 0
    bounced: int = 0  # bounced emails
    complained: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    figures: dict[tuple[int, str], Reached]  # by start of the hour or day, and channel
    waiting: int  # recipients not attempted yet; QUEUE_MOST means that many or more
    oldest_due: int | None  # due time of the oldest due recipient
    failing: dict[str, int]  # webhook → time of the first failure


@cache
def tally(before: str, path: tuple[str, ...]) -> Reached:
    """Return the counters of one state transition.

    The first outcome counts as sent, even if the outcome is a failure.
    """
    seen = [int(state in path) for state in Reached._fields[1:]]
    return Reached(int(before in ("queued", "sending") and path[-1:] not in ((), ("sending",))), *seen)


async def count(tx: Tx, steps: Iterable[Step]) -> None:
    """Add state transitions to the hourly counters."""
    sums: dict[tuple[int, int, str], Reached] = {}
    alike = Counter([(team, at - at % HOUR_MS, channel, before, path) for team, channel, at, before, path in steps])
    for (team, hour, channel, before, path), times in alike.items():
        if any(counted := tally(before, path)):
            key = (team, hour, channel)
            sums[key] = sums.get(key, Reached()).plus(counted, times)
    if sums:
        # Sorted, so that processes that count the same hours lock rows in the same order and cannot deadlock.
        await tx.run("count_figures", counts=[(*key, *counts) for key, counts in sorted(sums.items())])


class Figures:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def overview(self, team: int, since: int, width: int, webhooks: Iterable[str]) -> Overview:
        """Return a team's figures since `since`, in intervals of `width` ms, and which webhooks are failing."""
        now = self._clock.now()
        hooks = [(id_,) for id_ in webhooks]

        async def story(tx: Tx) -> Overview:
            rows = await tx.run("team_figures", team=team, since=since, width=width)
            queues = await tx.run("team_queue", team=team, lanes=EVERY, most=QUEUE_MOST)
            return Overview(
                figures={(start, channel): Reached(*counts) for start, channel, *counts in rows},
                waiting=min(QUEUE_MOST, sum(row[1] for row in queues)),
                oldest_due=min((due for _, _, due in queues if due is not None and due <= now), default=None),
                failing=dict(await tx.run("failing_endpoints", webhooks=hooks)),
            )

        return await self._database.read(story)

    async def of_instance(self, since: int) -> dict[int, TeamFigures]:
        """Return the totals of every team that has sent since `since`."""
        rows = await self._database.read(lambda tx: tx.run("instance_figures", since=since))
        return {team: TeamFigures(*counts) for team, *counts in rows}

    async def of_teams(self, teams: Iterable[int], since: int) -> dict[int, TeamFigures]:
        """Return the totals of those of `teams` that have sent since `since`."""
        asked = [(team,) for team in teams]
        rows = await self._database.read(lambda tx: tx.run("figures_of_teams", teams=asked, since=since))
        return {team: TeamFigures(*counts) for team, *counts in rows}

    async def sent_by_hour(self, teams: Iterable[int], since: int) -> dict[int, dict[int, int]]:
        """Return the number sent, by team and start of the hour."""
        asked = [(team,) for team in teams]
        rows = await self._database.read(lambda tx: tx.run("sent_by_hour", teams=asked, since=since))
        found: dict[int, dict[int, int]] = {}
        for team, hour, sent in rows:
            found.setdefault(team, {})[hour] = sent
        return found

    async def held(self, team: int, channel: Channel) -> int:
        """Return how many messages of a channel wait for a reason on our side; QUEUE_MOST means that many or more."""
        lanes = [(queue,) for queue, (lane, _) in QUEUES.items() if lane == LANE[channel]]
        rows = await self._database.read(
            lambda tx: tx.run("team_held", team=team, channel=channel, lanes=lanes, most=QUEUE_MOST)
        )
        return min(QUEUE_MOST, sum(int(row[0]) for row in rows))
