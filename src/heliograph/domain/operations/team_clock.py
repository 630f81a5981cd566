"""Test clock of a team: limits, and intermediate stops while the clock advances (contract 19)."""

from msgspec.structs import replace

from heliograph.domain.limits import DAY_MS, SECOND_MS
from heliograph.domain.refusals import InvalidRequest, TestClockNotFound
from heliograph.domain.setup.records import Team, TeamClock

AHEAD_MAX_MS = 60 * DAY_MS  # how far a test clock can be ahead of real time
ADVANCE_MAX_S = AHEAD_MAX_MS // SECOND_MS


def require_test_clock(team: Team) -> TeamClock:
    if not team.simulated:
        raise TestClockNotFound()
    return team.clock or TeamClock(team=team.record.id)


def advance_clock(clock: TeamClock, seconds: int) -> TeamClock:
    """Return the clock with its target time `seconds` later; raise InvalidRequest above the limit."""
    remaining_s = (AHEAD_MAX_MS - clock.target) // SECOND_MS
    if not 1 <= seconds <= remaining_s:
        raise InvalidRequest(
            f"advance_s is {seconds}. A test clock moves only forward, 60 days in total; this one {remaining_s} s "
            "more. To start over, turn the test clock off and on again.",
            param="advance_s",
        )
    return replace(clock, target=clock.target + seconds * SECOND_MS)


def next_offset(clock: TeamClock, due_at: int | None, now: int) -> int | None:
    """Return the next offset of the clock: the time at which the next work is due, or otherwise the clock's target.

    None if work is already due and must be done first. `due_at` is in the team's time, `now` in real time.
    """
    if due_at is not None and due_at <= now + clock.ahead:
        return None
    return clock.target if due_at is None else min(clock.target, due_at - now)
