"""An event loop in simulated time: it never waits, but jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class SimulatedSelector(selectors.DefaultSelector):
    """A selector that advances the simulated time instead of waiting for I/O."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("all tasks wait, and no timer is set")
        self.seconds += max(0.0, timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.simulated = SimulatedSelector()
        super().__init__(self.simulated)

    def time(self) -> float:
        return self.simulated.seconds


def run_simulated(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` in a loop of its own, whose time begins at 0."""
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()
