"""Counts of starts and verifications by place and hour: what the conversion guard's decisions use."""

from collections import defaultdict
from collections.abc import Iterable

from heliograph.rules.verify.conversion import KNOWN_MS, WINDOW_MS, Tally, areas, hour_of
from heliograph.storage.engine.database import Tx

Phone = tuple[int, str]  # team, number


async def tallies(tx: Tx, phones: Iterable[Phone], now: int) -> dict[tuple[int, str], Tally]:
    """The last day in every place of these phones, by team and place."""
    asked = {(team, area) for team, phone in phones for area in areas(phone)}
    found: dict[tuple[int, str], Tally] = defaultdict(dict)
    if asked:
        for team, area, hour, *counts in await tx.run("conversion", areas=list(asked), after=now - WINDOW_MS):
            found[team, area][hour] = counts
    return found


async def known(tx: Tx, phones: Iterable[Phone], now: int) -> set[Phone]:
    """Those that verified lately."""
    return {(team, phone) for team, phone in await tx.run("known_phones", phones=list(phones), after=now - KNOWN_MS)}


async def count(tx: Tx, changes: Iterable[tuple[int, str, int, int, int]]) -> None:
    """Each: team, phone, when, starts to add, verified to add."""
    sums: dict[tuple[int, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for team, phone, at, starts, verified in changes:
        for area in areas(phone):
            counts = sums[team, area, hour_of(at)]
            counts[0] += starts
            counts[1] += verified
    if sums:
        # In order: processes that count the same places then wait in a line, never in a ring.
        await tx.run("count_conversion", counts=sorted((*area, *counts) for area, counts in sums.items()))
