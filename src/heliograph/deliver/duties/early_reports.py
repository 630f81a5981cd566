"""Applies the reports that were faster than the record of their hand-over."""

from functools import partial

from heliograph.deliver import reports
from heliograph.deliver.duties.repeat import repeat
from heliograph.storage.store import Store

EVERY_S = 0.25


async def apply_early_reports(store: Store) -> None:
    await repeat(EVERY_S, partial(reports.apply_early, store))
