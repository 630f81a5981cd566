"""What waits in the outbox, by lane and team: counted along an index, and no further than anybody needs to know."""

import msgspec

from heliograph.rules.lanes import LANE
from heliograph.storage.engine.database import Tx

PAGE_MOST = 10_000  # how far a page counts what waits for each team or webhook: a millisecond
DEPTH_MOST = 100_000  # … and the metrics
_LANES = [(lane,) for lane in sorted(set(LANE.values()))]


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One team's share of a lane; `due` and `later` are counted up to a limit."""

    lane: str
    team: int
    due: int = 0
    later: int = 0  # to be tried again
    working: int = 0
    oldest: int | None = None  # when the first was due
    working_since: int | None = None  # … of those in work

    @property
    def first_due(self) -> int | None:
        return min((at for at in (self.oldest, self.working_since) if at is not None), default=None)


async def queues(tx: Tx, now: int, most: int) -> list[Queue]:
    found = {
        (lane, team): Queue(lane=lane, team=team, due=due, later=later, oldest=oldest)
        for lane, team, due, later, oldest in await tx.run("waiting_by_team", lanes=_LANES, now=now, most=most)
    }
    for lane, team, working, since in await tx.run("working_by_team"):
        before = found.get((lane, team), Queue(lane=lane, team=team))
        found[lane, team] = msgspec.structs.replace(before, working=working, working_since=since)
    return list(found.values())
