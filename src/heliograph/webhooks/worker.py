"""Webhook worker: leases endpoints with due deliveries, serves them, and releases the leases."""

import asyncio

import structlog

from heliograph.domain.delivery.lanes import WEBHOOKS
from heliograph.domain.limits import HEARTBEAT_MS, LEASE_MS, SECOND_MS
from heliograph.domain.setup.records import Webhook
from heliograph.runtime.async_wait import wait_event, wait_for_all
from heliograph.runtime.clock import Clock
from heliograph.storage.events import CALLBACK_SUFFIX
from heliograph.storage.store import Store
from heliograph.webhooks.client.http_post import WebhookHttpClient
from heliograph.webhooks.endpoint import STORE_RETRY_S, Endpoint, SecretsOf, SharedState
from heliograph.webhooks.store import Lease

CLAIM_MAX = 50  # maximum endpoints leased per poll, so that several processes share a burst
POLL_PAUSE_S = 0.01  # pause after a poll that found deliveries, so that a burst of wakeups causes one poll
STOP_TIMEOUT_S = 20.0  # maximum wait for attempts at shutdown; an attempt takes at most 15 s

log = structlog.get_logger()


class WebhookWorker:
    """Claims endpoints with due deliveries and runs an `Endpoint` for each until shutdown."""

    def __init__(self, store: Store, client: WebhookHttpClient, clock: Clock, secrets_of: SecretsOf) -> None:
        self._store = store
        self._clock = clock
        self._wakeup = store.wakeups.by_kind[WEBHOOKS]
        self._shared = SharedState(store, client, clock, secrets_of)
        self._endpoints: dict[str, Endpoint] = {}  # webhook id → endpoint
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()
        self._stopped.set()

    async def run(self) -> None:
        """Deliver to webhooks until `stop`."""
        self._stopped.clear()
        leases = asyncio.create_task(self._renew_leases())
        try:
            while not self._shared.stopping.is_set():
                has_due = False
                try:
                    has_due = await self._poll()
                except Exception as error:
                    log.warning("cannot poll for deliveries", error=type(error).__name__)
                    await wait_event(self._shared.stopping, STORE_RETRY_S)
                if has_due:
                    await asyncio.sleep(POLL_PAUSE_S)
                await self._wakeup.wait(self._store.wakeups.poll_s)
            await self._wait_for_endpoints()
        finally:
            leases.cancel()
            for task in self._tasks:
                task.cancel()
            self._stopped.set()

    async def stop(self) -> None:
        """Start no more attempts, wait until those in flight are recorded, and release the endpoints."""
        self._shared.stopping.set()
        self._wakeup.set()
        for endpoint in self._endpoints.values():
            endpoint.wake()
        await self._stopped.wait()

    async def _poll(self) -> bool:
        """Lease endpoints with due deliveries that no process has leased. Returns whether any delivery is due."""
        polled_at = self._clock.monotonic_ms()
        due = await self._store.deliveries.due_webhooks()
        for webhook in due:
            if endpoint := self._endpoints.get(webhook):
                endpoint.wake()
        unclaimed = [webhook for webhook, is_claimed in due.items() if not is_claimed and self._should_serve(webhook)]
        if unclaimed and not self._clock.clock_error():
            for lease in await self._store.deliveries.claim(unclaimed[:CLAIM_MAX]):
                self._start_endpoint(lease, polled_at + LEASE_MS)
        if len(unclaimed) > CLAIM_MAX:
            self._wakeup.set()
        await self._delete_orphaned([webhook for webhook in due if not self._find_webhook(webhook)])
        return bool(due)

    def _find_webhook(self, webhook: str) -> Webhook | None:
        hook = self._store.setup.current.records.get(("webhook", webhook.removesuffix(CALLBACK_SUFFIX)))
        return hook if isinstance(hook, Webhook) else None

    def _should_serve(self, webhook: str) -> bool:
        hook = self._find_webhook(webhook)
        return webhook not in self._endpoints and hook is not None and hook.enabled

    def _start_endpoint(self, lease: Lease, lease_until: int) -> None:
        endpoint = self._endpoints[lease.webhook] = Endpoint(lease, lease_until, self._shared)
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
            del self._endpoints[endpoint.lease.webhook]

    async def _delete_orphaned(self, unknown: list[str]) -> None:
        """Delete deliveries that were written while their webhook was being deleted."""
        if unknown:
            # After the refresh, the setup contains every webhook that existed when the deliveries were read.
            await self._store.setup.refresh()
            for webhook in unknown:
                if not self._find_webhook(webhook):
                    await self._store.deliveries.delete_all(webhook)

    async def _renew_leases(self) -> None:
        wait_s = HEARTBEAT_MS / SECOND_MS
        while True:
            await asyncio.sleep(wait_s)
            wait_s = HEARTBEAT_MS / SECOND_MS
            renewed_at, endpoints = self._clock.monotonic_ms(), list(self._endpoints.values())
            try:
                renewed = await self._store.deliveries.renew([endpoint.lease for endpoint in endpoints])
            except Exception as error:
                log.warning("cannot renew the leases", error=type(error).__name__)
                wait_s = STORE_RETRY_S
                continue
            for endpoint in endpoints:
                endpoint.lease_until = renewed_at + LEASE_MS if endpoint.lease.webhook in renewed else 0

    async def _wait_for_endpoints(self) -> None:
        if unfinished := await wait_for_all(self._tasks, STOP_TIMEOUT_S):
            # keep their leases: whether the events arrived is unknown, and the next owner sends them again
            log.warning("stopped with attempts in flight", count=len(unfinished))
