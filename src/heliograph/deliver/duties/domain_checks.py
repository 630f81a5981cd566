"""Asks DNS about the sending domains whose check is due, and often about those that were changed lately."""

from heliograph.deliver.duties.repeat import Round, repeat

EVERY_S = 600.0
WATCH_S = 2.5


async def check_domains(check_due: Round) -> None:
    await repeat(EVERY_S, check_due)


async def watch_domains(check_watched: Round) -> None:
    await repeat(WATCH_S, check_watched)
