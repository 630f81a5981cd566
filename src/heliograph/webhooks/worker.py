"""Webhook delivery worker: leases endpoints with due deliveries, serves them, and releases the leases."""

import asyncio

import structlog

from heliograph.domain.delivery.lanes import WEBHOOKS
from heliograph.domain.limits import HEARTBEAT_MS, LEASE_MS, SECOND_MS
from heliograph.domain.setup.records import Webhook
from heliograph.runtime.async_wait import happens, wait_for_all
from heliograph.runtime.clock import Clock
from heliograph.storage.events import OWN
from heliograph.storage.store import Store
from heliograph.webhooks.client.http_post import Poster
from heliograph.webhooks.endpoint import AWAY_S, Endpoint, SecretsOf, Shared
from heliograph.webhooks.store import Lease

CLAIM_MOST = 50  # endpoints claimed per poll, so that several processes share a burst
PAUSE_S = 0.01  # pause after a poll that found work, so that a burst of wakeups causes one poll
STOP_S = 20.0  # longer than an attempt, which takes at most 15 s

log = structlog.get_logger()


class WebhookWorker:
    """Claims endpoints with due deliveries and runs an `Endpoint` for each until shutdown."""

    def __init__(self, store: Store, poster: Poster, clock: Clock, secrets_of: SecretsOf) -> None:
        self._store = store
        self._clock = clock
        self._bell = store.hints.bells[WEBHOOKS]
        self._shared = Shared(store, poster, clock, secrets_of)
        self._serving: dict[str, Endpoint] = {}  # by webhook id
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._ended.set()

    async def run(self) -> None:
        """Deliver to webhooks until `stop`."""
        self._ended.clear()
        leases = asyncio.create_task(self._keep_leases())
        try:
            while not self._shared.stopping.is_set():
                found = False
                try:
                    found = await self._look()
                except Exception as error:
                    log.warning("cannot look for deliveries", error=type(error).__name__)
                    await happens(self._shared.stopping, AWAY_S)
                if found:
                    await asyncio.sleep(PAUSE_S)
                await self._bell.wait(self._store.hints.poll_s)
            await self._finish()
        finally:
            leases.cancel()
            for task in self._tasks:
                task.cancel()
            self._ended.set()

    async def stop(self) -> None:
        """Start no more attempts, wait until attempts in flight are recorded, and release the endpoints."""
        self._shared.stopping.set()
        self._bell.ring()
        for endpoint in self._serving.values():
            endpoint.hint()
        await self._ended.wait()

    async def _look(self) -> bool:
        """Poll for due deliveries and claim endpoints without an owner. Return whether any delivery is due."""
        count = self._clock.count()
        due = await self._store.deliveries.due_webhooks()
        for webhook in due:
            if endpoint := self._serving.get(webhook):
                endpoint.hint()
        free = [webhook for webhook, taken in due.items() if not taken and self._wants(webhook)]
        if free and not self._clock.off():
            for lease in await self._store.deliveries.claim(free[:CLAIM_MOST]):
                self._serve(lease, count + LEASE_MS)
        if len(free) > CLAIM_MOST:
            self._bell.ring()
        await self._drop_strays([webhook for webhook in due if not self._find(webhook)])
        return bool(due)

    def _find(self, webhook: str) -> Webhook | None:
        hook = self._store.setup.current.records.get(("webhook", webhook.removesuffix(OWN)))
        return hook if isinstance(hook, Webhook) else None

    def _wants(self, webhook: str) -> bool:
        hook = self._find(webhook)
        return webhook not in self._serving and hook is not None and hook.enabled

    def _serve(self, lease: Lease, until: int) -> None:
        endpoint = self._serving[lease.webhook] = Endpoint(lease, until, self._shared)
        task = asyncio.create_task(self._serve_and_release(endpoint))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_and_release(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.serve()
            await self._store.deliveries.release(endpoint.lease)
        except Exception as error:
            log.warning("endpoint not released", webhook=endpoint.lease.webhook, error=type(error).__name__)
        finally:
            del self._serving[endpoint.lease.webhook]

    async def _drop_strays(self, unknown: list[str]) -> None:
        """Delete deliveries that were written while their webhook was being deleted."""
        if unknown:
            # The setup is refreshed after the deliveries were read, so it includes every newly created webhook.
            await self._store.setup.refresh()
            for webhook in unknown:
                if not self._find(webhook):
                    await self._store.deliveries.drop(webhook)

    async def _keep_leases(self) -> None:
        wait_s = HEARTBEAT_MS / SECOND_MS
        while True:
            await asyncio.sleep(wait_s)
            wait_s = HEARTBEAT_MS / SECOND_MS
            count, endpoints = self._clock.count(), list(self._serving.values())
            try:
                kept = await self._store.deliveries.keep([endpoint.lease for endpoint in endpoints])
            except Exception as error:
                log.warning("cannot keep the leases", error=type(error).__name__)
                wait_s = AWAY_S
                continue
            for endpoint in endpoints:
                endpoint.until = count + LEASE_MS if endpoint.lease.webhook in kept else 0

    async def _finish(self) -> None:
        if unfinished := await wait_for_all(self._tasks, STOP_S):
            # Keep their leases: it is unknown whether those events arrived, and the next start sends them again.
            log.warning("stopped with endpoints in use", count=len(unfinished))
