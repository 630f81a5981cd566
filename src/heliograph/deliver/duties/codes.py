"""Sends codes by their next channel when the one before told no receipt in time."""

from heliograph.deliver.duties.repeat import Round, repeat

EVERY_S = 1.0


async def send_codes(send_due: Round) -> None:
    await repeat(EVERY_S, send_due)
