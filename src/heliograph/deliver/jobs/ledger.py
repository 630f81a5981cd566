"""Adds up the ledger again and compares it with the accounts: whoever is right, a difference is a bug. And counts what
was charged by month, so that a page need not."""

import asyncio

import structlog

from heliograph.deliver.jobs.periodic import Round
from heliograph.runtime import metrics
from heliograph.storage.store import Store

TEAMS = 200  # compared in a round; all of them in turn

log = structlog.get_logger()


def comparing(store: Store) -> Round:
    """Makes a round that goes on where the one before ended."""
    seen: dict[int, int] = {}  # team → by how much it was off
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
