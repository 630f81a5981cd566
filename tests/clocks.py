"""The real time, and as much later as a test wants; or a time that stands still."""

from heliograph.runtime.clock import Clock

BEGIN_MS = 1_750_000_000_000


class TestClock(Clock):
    __test__ = False

    def __init__(self) -> None:
        self.later = 0
        self.wrong = 0  # ms by which the wall clock is ahead of what it should be
        super().__init__()

    def wall(self) -> int:
        return super().wall() + self.later + self.wrong

    def count(self) -> int:
        return super().count() + self.later

    def now(self) -> int:
        return self.count() + self._ahead

    def of(self, team: int) -> int:
        return self.now() + self.moved.get(team, 0)

    def forward(self, ms: int) -> None:
        self.later += max(0, ms)


class StandingClock(Clock):
    """Stands still but for `forward`, so that all happens again as it did."""

    def __init__(self) -> None:
        self._now = BEGIN_MS
        super().__init__()

    def now(self) -> int:
        return self._now

    def wall(self) -> int:
        return self._now

    def count(self) -> int:
        return self._now

    def of(self, team: int) -> int:
        return self._now + self.moved.get(team, 0)

    def forward(self, ms: int) -> None:
        self._now += max(0, ms)
