"""Estimates a machine's capacity from measurements, for `heliograph capacity` and docs/capacity.md."""

from typing import Literal

import msgspec

from heliograph.domain.limits import DAY_MS, HOUR_MS

# A message is written when it is accepted, when it is claimed and when its outcome is recorded.
COMMITS_PER_MESSAGE = 3
MESSAGES_PER_COMMIT = (
    100  # messages per commit under load: waiting messages are committed together, and a claim takes as many
)
PEAK_SHARE = 10  # the busiest hour has a tenth of a day's messages
USABLE_SHARE = 0.7  # usable share of a machine; the rest is for retries, dashboard, webhooks, backups

Limit = Literal["accepting", "delivery", "disk"]

ADVICE_BY_LIMIT: dict[Limit, str] = {
    "accepting": "a faster core; or PostgreSQL, with a process for each core, then machines for the API alone",
    "delivery": "a faster core; or PostgreSQL, with a process for each core, then machines for workers alone",
    "disk": "a disk that syncs faster: a local SSD, or one with a protected write cache",
}


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a machine. CPU times are microseconds of one core per message."""

    syncs_per_s: float
    signing_us: float
    accept_us: float
    accepted_per_s: float  # measured rate, with the load generator on the same machine
    hand_over_us: float
    handed_over_per_s: float


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    per_s: int  # sustained rate of one process
    per_hour: int
    per_day: int  # such that the busiest hour fits
    per_day_evenly: int
    limit: Limit
    advice: str


def estimate_capacity(measured: Measurements) -> Capacity:
    by_core = 1e6 / (measured.accept_us + measured.hand_over_us)
    by_disk = measured.syncs_per_s * MESSAGES_PER_COMMIT / COMMITS_PER_MESSAGE
    if by_disk < by_core:
        limit: Limit = "disk"
    else:
        limit = "accepting" if measured.accept_us > measured.hand_over_us else "delivery"
    per_s = USABLE_SHARE * min(by_core, by_disk)
    per_hour = per_s * HOUR_MS / 1000
    return Capacity(
        per_s=int(per_s),
        per_hour=int(per_hour),
        per_day=int(per_hour * PEAK_SHARE),
        per_day_evenly=int(per_s * DAY_MS / 1000),
        limit=limit,
        advice=ADVICE_BY_LIMIT[limit],
    )
