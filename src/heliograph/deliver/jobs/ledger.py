"""Compares each account with the sum of its ledger entries, and sums up charges per month for the dashboard.

Any difference is a bug.
"""

import asyncio

import structlog

from heliograph.deliver.jobs.periodic import Round
from heliograph.runtime import metrics
from heliograph.storage.store import Store

TEAMS = 200  # teams compared per round, in rotation

log = structlog.get_logger()


def comparing(store: Store) -> Round:
    """Return a job that compares the next TEAMS teams in each round."""
    seen: dict[int, int] = {}  # team → last difference
    turn = 0

    async def compare() -> None:
        nonlocal turn
        teams = sorted(store.setup.current.teams_by_ref)
        turn = 0 if turn >= len(teams) else turn
        for team in teams[turn : turn + TEAMS]:
            while await store.ledger.count_spend(team):
                await asyncio.sleep(0)
            off = await store.ledger.difference(team)
            if off and not seen.get(team):
                log.error("the account differs from its ledger", team=team, off=off)
            seen[team] = abs(off)
        turn += TEAMS
        metrics.LEDGER_OFF.set(sum(seen.values()))

    return compare
