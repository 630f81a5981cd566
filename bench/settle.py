"""When a server under measurement has nothing left to do."""

import time
from typing import Protocol

QUIET_S, SETTLE_S = 0.3, 10.0
IDLE_SHARE = 0.1  # of a core: a server that uses less has nothing to do


class Busy(Protocol):
    def cpu_s(self) -> float: ...


def settle(server: Busy) -> float:
    """Wait for that: recording and removing go on after the last message. Answers its CPU time."""
    used, deadline = server.cpu_s(), time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        time.sleep(QUIET_S)
        before, used = used, server.cpu_s()
        if used - before < IDLE_SHARE * QUIET_S:
            break
    return used
