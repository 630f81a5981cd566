"""The real time, and as much later as a test wants."""

from heliograph.clock import Clock


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

    def forward(self, ms: int) -> None:
        self.later += max(0, ms)
