"""What became of each team's messages by channel and hour, and what else the overview reads of a team.

Only counters and small tables are read, so that it is as fast with a million messages as with ten.
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

QUEUE_MOST = 1_000  # how far a queue is counted

Step = tuple[int, Channel, int, str, tuple[str, ...]]  # team, channel, when, state before, states passed through


class Reached(NamedTuple):
    """Recipients, by what they reached."""

    sent: int = 0
    delivered: int = 0
    bounced: int = 0
    complained: int = 0
    failed: int = 0
    read: int = 0

    def plus(self, more: "Reached", times: int = 1) -> "Reached":
        return Reached(*(one + times * another for one, another in zip(self, more, strict=True)))


class TeamFigures(NamedTuple):
    sent: int = 0  # by all channels
    emails: int = 0
    bounced: int = 0  # of the emails
    complained: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    figures: dict[tuple[int, str], Reached]  # by when their hour or day began, and the channel
    waiting: int  # recipients not handed over yet; QUEUE_MOST: or more
    oldest_due: int | None  # of those that are due
    failing: dict[str, int]  # webhook → since when


@cache
def tally(before: str, path: tuple[str, ...]) -> Reached:
    """Return what one recipient's way counts as: its first outcome is the send, also when it was a refusal."""
    seen = [int(state in path) for state in Reached._fields[1:]]
    return Reached(int(before in ("queued", "sending") and path[-1:] not in ((), ("sending",))), *seen)


async def count(tx: Tx, steps: Iterable[Step]) -> None:
    sums: dict[tuple[int, int, str], Reached] = {}
    alike = Counter([(team, at - at % HOUR_MS, channel, before, path) for team, channel, at, before, path in steps])
    for (team, hour, channel, before, path), times in alike.items():
        if any(counted := tally(before, path)):
            key = (team, hour, channel)
            sums[key] = sums.get(key, Reached()).plus(counted, times)
    if sums:
        # In order: processes that count the same hour then wait in a line, never in a ring.
        await tx.run("count_figures", counts=[(*key, *counts) for key, counts in sorted(sums.items())])


class Figures:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def overview(self, team: int, since: int, width: int, webhooks: Iterable[str]) -> Overview:
        """Return figures `since` then, by hours or days as the `width` in ms says, and whether these webhooks fail."""
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
        """Return what each team that has sent since then did."""
        rows = await self._database.read(lambda tx: tx.run("instance_figures", since=since))
        return {team: TeamFigures(*counts) for team, *counts in rows}

    async def of_teams(self, teams: Iterable[int], since: int) -> dict[int, TeamFigures]:
        """Return what each of these teams that has sent since then did."""
        asked = [(team,) for team in teams]
        rows = await self._database.read(lambda tx: tx.run("figures_of_teams", teams=asked, since=since))
        return {team: TeamFigures(*counts) for team, *counts in rows}

    async def sent_by_hour(self, teams: Iterable[int], since: int) -> dict[int, dict[int, int]]:
        """Return how many each of these teams has sent, by team and by the hour's beginning."""
        asked = [(team,) for team in teams]
        rows = await self._database.read(lambda tx: tx.run("sent_by_hour", teams=asked, since=since))
        found: dict[int, dict[int, int]] = {}
        for team, hour, sent in rows:
            found.setdefault(team, {})[hour] = sent
        return found

    async def held(self, team: int, channel: Channel) -> int:
        """Count what of a channel waits for a reason on our own side; QUEUE_MOST means that many or more."""
        lanes = [(queue,) for queue, (lane, _) in QUEUES.items() if lane == LANE[channel]]
        rows = await self._database.read(
            lambda tx: tx.run("team_held", team=team, channel=channel, lanes=lanes, most=QUEUE_MOST)
        )
        return min(QUEUE_MOST, sum(int(row[0]) for row in rows))
