"""When a carrier counts as out of reach, and for how long nobody asks it."""

from typing import Literal

import msgspec

from heliograph.domain.limits import SECOND_MS

MISSES_TO_OPEN = 5  # hand-overs in a row without an answer
FIRST_MS = 5 * SECOND_MS
MOST_MS = 60 * SECOND_MS


class Circuit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open circuit: its carrier is asked no more until `until`, then one probe at a time decides.

    Every process learns of it within a second. A closed circuit has no record.
    """

    id: str  # the carrier's
    since: int  # ms
    until: int  # ms
    probes: int = 0  # that failed since
    reason: str = ""

    def is_open(self, now: int) -> bool:
        return now < self.until


Health = Literal["disabled", "untested", "ok", "out_of_reach"]


def health(enabled: bool, circuit: Circuit | None, answered: bool) -> Health:
    """Return what is known of a carrier: nothing, before it has answered for the first time."""
    if not enabled:
        return "disabled"
    return "out_of_reach" if circuit else "ok" if answered else "untested"


def opened(before: Circuit | None, carrier: str, reason: str, now: int) -> Circuit:
    """Return the circuit after one more miss: each failed probe doubles the wait."""
    if before is None:
        return Circuit(id=carrier, since=now, until=now + FIRST_MS, reason=reason)
    probes = before.probes + 1
    wait = min(FIRST_MS << min(probes, 10), MOST_MS)
    return Circuit(id=carrier, since=before.since, until=now + wait, probes=probes, reason=reason)
