"""Clocks for tests: the real time plus an offset, or a time that stands still."""

from heliograph.runtime.clock import Clock

BEGIN_MS = 1_750_000_000_000


class TestClock(Clock):
    __test__ = False

    def __init__(self) -> None:
        self.forwarded_ms = 0
        self.wall_shift_ms = 0  # ms by which the wall clock is ahead of what it should be
        super().__init__()

    def wall_ms(self) -> int:
        return super().wall_ms() + self.forwarded_ms + self.wall_shift_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.forwarded_ms

    def now(self) -> int:
        return self.monotonic_ms() + self._offset

    def team_now(self, team: int) -> int:
        return self.now() + self.offsets.get(team, 0)

    def forward(self, ms: int) -> None:
        self.forwarded_ms += max(0, ms)


class StandingClock(Clock):
    """A clock that stands still unless `forward` is called, so that runs are reproducible."""

    def __init__(self) -> None:
        self._now = BEGIN_MS
        super().__init__()

    def now(self) -> int:
        return self._now

    def wall_ms(self) -> int:
        return self._now

    def monotonic_ms(self) -> int:
        return self._now

    def team_now(self, team: int) -> int:
        return self._now + self.offsets.get(team, 0)

    def forward(self, ms: int) -> None:
        self._now += max(0, ms)
