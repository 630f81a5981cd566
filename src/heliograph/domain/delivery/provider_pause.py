"""Pause after a mailbox provider refused a message because of the rate, shared by all processes.

After the pause, one process sends a first message (the probe); the other processes wait for the reply to this message.
"""

import msgspec
from msgspec.structs import replace

from heliograph.domain.limits import DAY_MS, MINUTE_MS, SECOND_MS

PROBE_WAIT_MS = SECOND_MS  # pause after the first refusal, and interval at which waiting processes check for its end
PROBE_LEASE_MS = 10 * SECOND_MS  # wait for the reply to the first message; after this, another process sends a message
REPEATED_PAUSE_MS = MINUTE_MS  # pause after the second refusal in succession; equals the pause of a host after a 421
CRITICAL_GROWTH = 4  # factor by which the pause of critical messages grows with each refusal in succession
PAUSE_MAX_MS = 10 * MINUTE_MS
DEDUCTED_REFUSALS = 2  # the end of a pause deducts this many refusals; the next pause begins with the rest
MEMORY_MS = 7 * DAY_MS  # after this long without a refusal the next pause is as short as the first


class Pause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When messages may be sent again after a refusal; times in ms."""

    refused_at: int = 0  # time of the last refusal
    refusals: int = 0  # refusals in succession; after a pause, the number to which the next refusal is added
    until: int = 0  # 0: there is no pause
    critical_until: int = 0
    probe_by: str = ""  # process that sends the first message after the pause
    probe_until: int = 0  # end of that process's exclusive right to send

    @property
    def is_active(self) -> bool:
        """Return whether the provider refused a message and has not accepted one since."""
        return self.until > 0

    def ends_at(self, *, is_critical: bool) -> int:
        return self.critical_until if is_critical else self.until


def begin_pause(pause: Pause, attempted_at: int, refused_at: int, *, closes_connection: bool) -> Pause:
    """Return the pause after a refusal: longer after each in succession, but shorter for critical messages.

    A provider that refused several messages before it accepted one will probably do so again, which lowers the sender's
    reputation. The next pause therefore begins almost as long as the last one ended.
    """
    # A message that was sent before the last refusal adds no information: its refusal does not lengthen the pause.
    earlier = pause.refusals if refused_at - pause.refused_at < MEMORY_MS else 0
    refusals = max(1, earlier + (attempted_at >= pause.refused_at))
    first_ms = REPEATED_PAUSE_MS if closes_connection else PROBE_WAIT_MS
    repeated_ms = min(REPEATED_PAUSE_MS << min(refusals - 2, 10), PAUSE_MAX_MS) if refusals > 1 else first_ms
    critical_ms = min(PROBE_WAIT_MS * CRITICAL_GROWTH ** min(refusals - 1, 10), PAUSE_MAX_MS)
    return Pause(
        refused_at=max(pause.refused_at, refused_at),
        refusals=refusals,
        until=max(pause.until, refused_at + repeated_ms),
        critical_until=max(pause.critical_until, refused_at + max(first_ms, critical_ms)),
    )


def end_pause(pause: Pause, attempted_at: int) -> Pause:
    """Return the pause after a reply other than a refusal: a message sent after the last refusal ends the pause."""
    if not pause.is_active or attempted_at <= pause.refused_at:
        return pause
    return Pause(refused_at=pause.refused_at, refusals=max(0, pause.refusals - DEDUCTED_REFUSALS))


def claim_probe(pause: Pause, process: str, now: int, *, is_critical: bool) -> tuple[Pause, int | None]:
    """Let `process` send the first message after a pause, unless the pause lasts or another process sends that message.

    Returns when to try again, or None if the process may send.
    """
    if not pause.is_active:
        return pause, None
    if now < pause.ends_at(is_critical=is_critical):
        return pause, pause.ends_at(is_critical=is_critical)
    if pause.probe_by != process and now < pause.probe_until:
        return pause, now + PROBE_WAIT_MS
    return replace(pause, probe_by=process, probe_until=now + PROBE_LEASE_MS), None
