"""Compares accounts with their ledgers, where any difference is a bug, and sums up charges per month."""

import asyncio

import structlog

from heliograph.deliver.jobs.periodic import Job
from heliograph.runtime import metrics
from heliograph.storage.store import Store

TEAMS_PER_ROUND = 200  # teams compared per round, in rotation

log = structlog.get_logger()


def ledger_comparison(store: Store) -> Job:
    """Return a job that compares the accounts of the next TEAMS_PER_ROUND teams with their ledgers in each round."""
    differences: dict[int, int] = {}  # team → last difference
    start = 0

    async def compare_accounts() -> None:
        nonlocal start
        teams = sorted(store.setup.current.teams_by_ref)
        start = 0 if start >= len(teams) else start
        for team in teams[start : start + TEAMS_PER_ROUND]:
            while await store.ledger.update_spend(team):
                await asyncio.sleep(0)
            difference = await store.ledger.difference(team)
            if difference and not differences.get(team):
                log.error("the account differs from its ledger", team=team, difference=difference)
            differences[team] = abs(difference)
        start += TEAMS_PER_ROUND
        metrics.LEDGER_DIFFERENCE.set(sum(differences.values()))

    return compare_accounts
