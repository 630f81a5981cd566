"""PostgreSQL with a streaming standby for lists, search, statistics and exports.

Such a read begins with a query of the primary's position in the WAL, and uses the standby only once the standby has
replayed the WAL up to this position. So the read sees everything that any process had committed before the read began.
If the standby is behind or unavailable, only the primary is used for RETRY_S seconds (ADR 0044).
"""

import asyncio
from functools import wraps

import structlog

from heliograph.runtime import metrics
from heliograph.storage.engine.database import Database, StoreUnavailable, T, Tx, TxFunction, error_text

log = structlog.get_logger()

REPLAY_WAIT_S = 0.1  # wait at most this long for the standby to replay
REPLAY_POLL_S = 0.003
RESPONSE_S = 1.0  # timeout of connecting to the standby, and of the first query there
RETRY_S = 3.0  # use only the primary for this long after the standby was behind or unavailable
FIX = "check the standby and its replication; lists, search, statistics and exports use the primary meanwhile"


class StandbyBehind(Exception):
    """The standby has not replayed the primary's WAL in time, or it is not a standby of this primary."""


class ReplicatedPostgres:
    """A primary and its standby, as one database (protocol `Database`): only `read_standby` uses the standby."""

    def __init__(self, primary: Database, standby: Database) -> None:
        self._primary, self._standby = primary, standby
        self._retry_at = 0.0  # event loop time from which the standby may be used again
        self._fault = ""  # metrics label of the last fault; empty while the standby answers
        self.wakeups, self.serialized = primary.wakeups, primary.serialized
        self.write, self.read, self.probe, self.listen = primary.write, primary.read, primary.probe, primary.listen

    async def read_standby(self, function: TxFunction[T]) -> T:
        loop = asyncio.get_running_loop()
        if not self._fault or loop.time() >= self._retry_at:
            self._retry_at = loop.time() + RETRY_S  # meanwhile, other reads do not try a standby with a fault
            position, system = await self.read(log_position)
            try:
                result = await self._standby.read(_after_replay(function, position, system))
            except StandbyBehind as error:
                self._set_fault("behind", error)
            except StoreUnavailable as error:
                self._set_fault("unavailable", error)
            else:
                self._set_fault("")
                metrics.standby_reads["standby"].inc()
                return result
        metrics.standby_reads[self._fault or "unavailable"].inc()
        return await self.read(function)

    async def close(self) -> None:
        await self._standby.close()
        await self._primary.close()

    def _set_fault(self, fault: str, error: Exception | None = None) -> None:
        if error and not self._fault:
            log.warning("standby not used", reason=fault, error=error_text(error), fix=FIX)
        elif self._fault and not fault:
            log.info("standby used again")
        self._fault = fault


async def log_position(tx: Tx) -> tuple[int, int]:
    """Return the primary's position in the WAL and the id of its database system."""
    ((position, system),) = await tx.run("log_position")
    return position, system


def _after_replay(function: TxFunction[T], position: int, system: int) -> TxFunction[T]:
    """Return a transaction function that waits until the standby has replayed the WAL up to `position`, then reads.

    Each query of the transaction has a snapshot of its own, so the queries of `function` see what the check has seen.
    """

    @wraps(function)
    async def wait_and_read(tx: Tx) -> T:
        loop_time = asyncio.get_running_loop().time
        deadline = loop_time() + REPLAY_WAIT_S
        while True:
            replayed, standby_system = await standby_position(tx)
            if replayed is None or standby_system != system:
                raise StandbyBehind("the server is not a standby of the primary")
            if replayed >= position:
                return await function(tx)
            if loop_time() >= deadline:
                raise StandbyBehind(f"the standby is {position - replayed} bytes behind")
            await asyncio.sleep(REPLAY_POLL_S)

    return wait_and_read


async def standby_position(tx: Tx) -> tuple[int | None, int]:
    """Return the position up to which the server has replayed the WAL, and the id of its database system.

    The position is None if the server is not a standby.
    """
    try:
        async with asyncio.timeout(RESPONSE_S):
            ((position, system),) = await tx.run("standby_position")
    except TimeoutError as error:
        raise StoreUnavailable("the standby does not respond") from error
    return position, system
