"""Periodic work: claims of dead processes are freed, poison and bad senders put aside, what is over is put away."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from heliograph.channels.carrier import Carriers
from heliograph.deliver import reports
from heliograph.rules.reputation import rates
from heliograph.storage.store import Store

EARLY_S = 0.25  # reports that were faster than the record of their hand-over
CARRIERS_S = 1.0
RECLAIM_S = 5.0
PURGE_S = 60.0
SWEEP_S = 3600.0
DOMAINS_S = 600.0
REPUTATION_S = 60.0
ATTEST_S = 10.0  # a copy that is older than this is known when it is restored

log = structlog.get_logger()


class Housekeeping:
    def __init__(
        self,
        store: Store,
        check_domains: Callable[[], Awaitable[None]],
        carriers: Carriers,
        attest: Callable[[], Awaitable[bool]],
    ) -> None:
        """`check_domains` asks DNS about those that are due; `attest` answers whether the database was turned back."""
        self._store = store
        self._attest = attest
        self._check_domains = check_domains
        self._carriers = carriers

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(
            _every(EARLY_S, self._apply_early),
            _every(CARRIERS_S, self._keep_carriers),
            _every(RECLAIM_S, self._reclaim),
            _every(PURGE_S, self._store.upkeep.purge),
            _every(SWEEP_S, self._store.upkeep.sweep_blobs),
            _every(DOMAINS_S, self._check_domains),
            _every(REPUTATION_S, self._judge_reputations),
            _every(ATTEST_S, self._look_back),
        )

    async def _apply_early(self) -> None:
        await reports.apply_early(self._store)

    async def _keep_carriers(self) -> None:
        await self._carriers.keep(self._store.setup.current.carriers)

    async def _reclaim(self) -> None:
        if count := await self._store.outbox.reclaim():
            log.error("messages quarantined: their workers died with them", count=count)

    async def _look_back(self) -> None:
        if await self._attest():
            log.error("the database was turned back: delivery is paused")

    async def _judge_reputations(self) -> None:
        for judged in await self._store.reputation.judge():
            log.warning("reputation judged", team=judged.team, state=judged.state, why=rates(judged))


async def _every(interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except Exception as error:
            # Whatever it was, the next round tries again: without housekeeping, dead claims would stay for ever.
            log.warning("housekeeping failed", work=work.__name__, error=type(error).__name__)
        await asyncio.sleep(interval_s)
