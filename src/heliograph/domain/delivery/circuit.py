"""Circuit breaker of a carrier: when it opens, and for how long no message is sent to the carrier."""

from typing import Literal

import msgspec

from heliograph.domain.limits import SECOND_MS

FAILURES_TO_OPEN = 5  # consecutive send attempts without a response
FIRST_WAIT_MS = 5 * SECOND_MS
WAIT_MAX_MS = 60 * SECOND_MS


class Circuit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Open circuit of a carrier: nothing is sent before `until`; after that, one probe at a time is sent.

    Every process learns of an open circuit within a second. A closed circuit has no record.
    """

    id: str  # carrier id
    since: int  # when the circuit opened, Unix time in ms
    until: int  # nothing is sent before this time, Unix time in ms
    probes: int = 0  # number of failed probes since the circuit opened
    reason: str = ""

    def is_open(self, now: int) -> bool:
        return now < self.until


Health = Literal["disabled", "untested", "ok", "out_of_reach"]


def circuit_health(enabled: bool, circuit: Circuit | None, has_responded: bool) -> Health:
    """Return the health of a carrier: "untested" until the carrier first responds."""
    if not enabled:
        return "disabled"
    return "out_of_reach" if circuit else "ok" if has_responded else "untested"


def open_circuit(previous: Circuit | None, carrier: str, reason: str, now: int) -> Circuit:
    """Return the circuit after another failure of the carrier; each failed probe doubles the wait."""
    if previous is None:
        return Circuit(id=carrier, since=now, until=now + FIRST_WAIT_MS, reason=reason)
    probes = previous.probes + 1
    wait = min(FIRST_WAIT_MS << min(probes, 10), WAIT_MAX_MS)
    return Circuit(id=carrier, since=previous.since, until=now + wait, probes=probes, reason=reason)
