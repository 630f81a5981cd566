"""Asks DNS about the sending domains whose check is due."""

from heliograph.deliver.duties.repeat import Round, repeat

EVERY_S = 600.0


async def check_domains(check_due: Round) -> None:
    await repeat(EVERY_S, check_due)
