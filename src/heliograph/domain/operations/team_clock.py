"""Test clock of a team: limits, and intermediate stops while it advances (contract 19)."""

from msgspec.structs import replace

from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.refusals import InvalidRequest, TestClockNotFound
from heliograph.domain.setup.records import Team, TeamClock

AHEAD_MAX_MS = 60 * DAY_MS  # total limit
ADVANCE_MAX_S = AHEAD_MAX_MS // SECOND_MS


def clock_of(team: Team) -> TeamClock:
    if not team.simulated:
        raise TestClockNotFound()
    return team.clock or TeamClock(team=team.record.id)


def advanced(clock: TeamClock, seconds: int) -> TeamClock:
    """Return the clock with a later target."""
    left = (AHEAD_MAX_MS - clock.target) // SECOND_MS
    if not 1 <= seconds <= left:
        raise InvalidRequest(
            f"advance_s is {seconds}: it goes forward only, by 60 days in all, and this test clock by {left} s more. "
            "To start over, turn it off and on again.",
            param="advance_s",
        )
    return replace(clock, target=clock.target + seconds * SECOND_MS)


def next_stop(clock: TeamClock, due: int | None, now: int) -> int | None:
    """Return the next offset of the clock: where the next work is due, otherwise its target.

    None if work is already due and must be done first. `due` is in the team's time, `now` in real time.
    """
    if due is not None and due <= now + clock.ahead:
        return None
    return clock.target if due is None else min(clock.target, due - now)
