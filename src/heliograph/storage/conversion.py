"""Counts started and completed verifications per hour and area (team, country, range) for the conversion guard."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from heliograph.domain.verify.conversion import KNOWN_PHONE_MS, WINDOW_MS, Tally, areas, hour_of
from heliograph.storage.engine.database import Tx

Phone = tuple[int, str]  # team, number


async def read_tallies(tx: Tx, phones: Mapping[Phone, int]) -> dict[tuple[int, str], Tally]:
    """Return the last day's counters of started and completed verifications, by team and area (`conversion.areas`).

    The areas are those of the phones. `phones` maps each phone to the current time of its team.
    """
    area_keys = {(team, area, now - WINDOW_MS) for (team, phone), now in phones.items() for area in areas(phone)}
    tally_by_area: dict[tuple[int, str], Tally] = defaultdict(dict)
    if area_keys:
        for team, area, hour, *counts in await tx.run("conversion", areas=list(area_keys)):
            tally_by_area[team, area][hour] = counts
    return tally_by_area


async def find_known_phones(tx: Tx, phones: Mapping[Phone, int]) -> set[Phone]:
    """Return the phones that completed a verification within KNOWN_PHONE_MS."""
    phone_keys = [(*phone, now - KNOWN_PHONE_MS) for phone, now in phones.items()]
    return {(team, phone) for team, phone in await tx.run("known_phones", phones=phone_keys)}


async def count_verifications(tx: Tx, changes: Iterable[tuple[int, str, int, int, int]]) -> None:
    """Add to the counters. `changes`: (team, phone, time, number of started, number of completed verifications)."""
    sums: dict[tuple[int, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for team, phone, at, started, verified in changes:
        for area in areas(phone):
            counts = sums[team, area, hour_of(at)]
            counts[0] += started
            counts[1] += verified
    if sums:
        # Sorted, so that processes that update the same areas cannot deadlock.
        await tx.run("count_conversion", counts=sorted((*area, *counts) for area, counts in sums.items()))
