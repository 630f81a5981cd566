"""The real time, and as much later as a test wants."""

from heliograph.clock import Clock


class TestClock(Clock):
    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0

    def now(self) -> int:
        return super().now() + self._ahead

    def forward(self, ms: int) -> None:
        self._ahead += max(0, ms)
