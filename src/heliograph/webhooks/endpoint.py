"""Delivery to an endpoint leased by this process: in order, at most ten attempts in flight, each attempt recorded.

A message can have a callback URL of its own. Requests to callback URLs are signed with the webhook's secrets and have a
separate queue, whose limit of attempts in flight applies per host: a host that does not respond delays neither the
webhook nor other hosts.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import zip_longest
from urllib.parse import urlsplit

import msgspec
import structlog
from structlog.contextvars import bind_contextvars

from heliograph.domain.ids import timestamp
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.setup.records import Webhook
from heliograph.runtime import metrics, tracing
from heliograph.runtime.async_wait import wait_event, wait_for_all
from heliograph.runtime.clock import Clock
from heliograph.storage.events import CALLBACK_SUFFIX
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.texts.explain import with_explanation
from heliograph.webhooks.client.http_post import PostResult, WebhookHttpClient
from heliograph.webhooks.policy.formats.formats import FORMATS
from heliograph.webhooks.policy.retry import classify_response, has_failed_too_long, next_attempt
from heliograph.webhooks.policy.signature import SignatureInput
from heliograph.webhooks.policy.webhook import basic_auth_header
from heliograph.webhooks.store import DeliveryAttempt, DueDelivery, EndpointLeaseLost, Lease

WINDOW = 10  # maximum attempts in flight per endpoint (contract 10)
# Maximum attempts of an endpoint that are in flight or not recorded yet; a crash may repeat all of them
UNRECORDED_MAX = 5 * WINDOW
# Number of attempts in flight in this process from which on each endpoint may have only one attempt in flight
IN_FLIGHT_SOFT_MAX = 400
READ_MAX = 200  # maximum deliveries per query
READ_CALLBACKS_MAX = 5 * READ_MAX  # more than READ_MAX, because many may wait for a host that does not respond
QUEUE_MAX_AGE_MS = SECOND_MS  # deliveries queued for longer are read again, because their events may have been erased
RECORD_DELAY_S = 0.005  # maximum wait after a finished attempt, so that several are recorded together
IDLE_S = 30.0  # after this time without deliveries, the endpoint is released
STORE_RETRY_S = 0.5  # pause after the store was unavailable
# Longer than any attempt takes: an attempt starts only if the lease lasts for at least this time
ATTEMPT_MAX_MS = 20 * SECOND_MS


class WebhookSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """Decrypted secrets of a webhook: signing secrets, private key and user:password."""

    secrets: Sequence[str]
    login: str = ""
    key: str = ""  # private key, for formats that sign with a key pair


_FinishedAttempt = tuple[DeliveryAttempt, Webhook]
# (webhook, now) → secrets; raises ValueError if they cannot be decrypted
SecretsOf = Callable[[Webhook, int], WebhookSecrets]

log = structlog.get_logger()


class SharedState:
    """State shared by all endpoints of a process."""

    def __init__(self, store: Store, client: WebhookHttpClient, clock: Clock, secrets_of: SecretsOf) -> None:
        self.store = store
        self.client = client
        self.clock = clock
        self.secrets_of = secrets_of
        self.stopping = asyncio.Event()
        self.in_flight = 0
        self.unrecorded: set[int] = set()  # keys of deliveries with attempts that the store could not record yet


class Endpoint:
    """Delivers events to one webhook: reads due deliveries, sends in one task per attempt, and records attempts."""

    def __init__(self, lease: Lease, lease_until: int, shared: SharedState) -> None:
        self.lease = lease
        self.lease_until = lease_until  # monotonic ms; 0 once the lease is lost or the receiver responded 410 Gone
        self._shared = shared
        # Whether this is the queue for the callback URLs of messages
        self._is_callback_queue = lease.webhook.endswith(CALLBACK_SUFFIX)
        self._wake = asyncio.Event()
        self._stale = True  # True if the store may have due deliveries that are not in `_queued`
        self._queued: list[DueDelivery] = []
        self._read_at = 0
        self._send_tasks: set[asyncio.Task[None]] = set()
        self._record_task: asyncio.Task[None] | None = None
        self._in_flight = 0
        self._recorded_keys: set[int] = set()  # keys of deliveries recorded since the last read began
        self._started: dict[int, DueDelivery] = {}  # in flight or not recorded yet, by key
        self._finished: list[_FinishedAttempt] = []  # attempts that finished and are not recorded yet
        self._cached_secrets: tuple[Webhook, bool, WebhookSecrets] | None = None

    def wake(self) -> None:
        """Wake the endpoint: there may be new deliveries, or the process is stopping."""
        self._stale = True
        self._wake.set()

    async def serve(self) -> None:
        """Deliver until idle for IDLE_S, the lease is lost, the webhook is disabled, or the process stops."""
        try:
            while self._find_open_webhook() and await self._run_once():
                self._wake.clear()
            await wait_for_all(self._send_tasks)
            await wait_for_all([self._record_task] if self._record_task else [])
            await self._record_attempts()
        finally:
            # These tasks still run only if this task was cancelled
            for task in filter(None, (*self._send_tasks, self._record_task)):
                task.cancel()

    async def _run_once(self) -> bool:
        """Start attempts, record finished ones, and wait for a wakeup; return False if idle for IDLE_S."""
        try:
            await self._read_due()
            self._start_attempts()
            if self._finished and (self._record_task is None or self._record_task.done()):
                self._record_task = asyncio.create_task(self._record_attempts())
            return await wait_event(self._wake, IDLE_S) or bool(self._started)
        except Exception as error:
            log.warning("cannot read deliveries", webhook=self.lease.webhook, error=type(error).__name__)
            self._stale = True
            await wait_event(self._shared.stopping, STORE_RETRY_S)
            return True

    def _find_open_webhook(self) -> Webhook | None:
        """Return the webhook if attempts to it may start now, else None."""
        hook = self._shared.store.setup.current.records.get(
            ("webhook", self.lease.webhook.removesuffix(CALLBACK_SUFFIX))
        )
        if not isinstance(hook, Webhook) or not hook.enabled or self._shared.stopping.is_set():
            return None
        clock = self._shared.clock
        is_leased = clock.monotonic_ms() < self.lease_until - ATTEMPT_MAX_MS and not clock.clock_error()
        return hook if is_leased else None

    async def _read_due(self) -> None:
        if self._is_queue_stale():
            self._queued, self._stale = [], True
        if not self._stale or len(self._queued) >= WINDOW:
            return
        self._stale = False
        self._recorded_keys.clear()
        read_at = self._shared.clock.monotonic_ms()
        limit = READ_CALLBACKS_MAX if self._is_callback_queue else READ_MAX
        deliveries = await self._shared.store.deliveries.due(self.lease.webhook, limit)
        self._read_at = read_at
        self._stale |= limit in (len(deliveries.new), len(deliveries.repeated))
        # Alternate new and repeated deliveries, so that neither delays the other.
        pairs = zip_longest(deliveries.new, deliveries.repeated)
        # Deliveries recorded during the read may have been read as still due
        excluded_keys = self._started.keys() | self._recorded_keys
        self._queued = [due for pair in pairs for due in pair if due and due.key not in excluded_keys]

    def _is_queue_stale(self) -> bool:
        """Return whether the queued deliveries must be read again, because their events may have been erased."""
        return bool(self._queued) and self._shared.clock.monotonic_ms() - self._read_at > QUEUE_MAX_AGE_MS

    def _start_attempts(self) -> None:
        if (hook := self._find_open_webhook()) and not self._is_queue_stale():
            for due in choose_next(
                self._queued, self._started.values(), self._free_slots(), _host if self._is_callback_queue else None
            ):
                self._queued.remove(due)
                self._started[due.key] = due
                self._in_flight += 1
                self._shared.in_flight += 1
                self._send_tasks.add(asyncio.create_task(self._send(due, hook)))

    def _free_slots(self) -> int:
        started, shared = len(self._started), self._shared
        # While one attempt cannot be recorded, further ones could not be recorded either.
        if shared.unrecorded:
            return 0
        if shared.in_flight >= IN_FLIGHT_SOFT_MAX:
            return int(started == 0)
        window = UNRECORDED_MAX if self._is_callback_queue else WINDOW
        return min(window - self._in_flight, UNRECORDED_MAX - started)

    # -- sending an attempt --------------------------------------------------------------------------------------

    async def _send(self, due: DueDelivery, hook: Webhook) -> None:
        # other subjects may be email addresses, which must not be logged
        log_context = {"message": due.subject} if due.stored_event and due.stored_event.record else {}
        bind_contextvars(event_id=due.event_id, **log_context)
        clock = self._shared.clock
        now = clock.now()
        team_now = now + clock.offsets.get(due.team, 0)
        try:
            result, finished_at = await self._post(due, hook, now, team_now), clock.team_now(due.team)
            attempt = to_attempt(
                self.lease,
                due,
                result,
                started_at=team_now,
                now=finished_at,
                jitter=lambda: clock.randbelow(2001) / 1000 - 1,  # from -1 to 1
                is_callback=self._is_callback_queue,
            )
            self._finished.append((attempt, hook))
            # Start no more attempts, although the webhook is not disabled yet
            if attempt.state != "delivered" and _is_gone(attempt):
                self.lease_until = 0
                self._wake.set()
        finally:
            self._send_tasks.discard(asyncio.current_task())
            self._in_flight -= 1
            self._shared.in_flight -= 1
            if self._in_flight <= WINDOW // 2:
                self._wake.set()
            elif len(self._finished) == 1:  # wait for more attempts, to record them together
                asyncio.get_running_loop().call_later(RECORD_DELAY_S, self._wake.set)

    async def _post(self, due: DueDelivery, hook: Webhook, now: int, team_now: int) -> PostResult:
        event = due.stored_event
        url = (event.callback if event else None) if self._is_callback_queue else hook.url
        if event is None or url is None:
            return PostResult(reason="not_kept", error="the event is no longer stored", duration_ms=0)
        try:
            secrets = self._get_secrets(hook, team_now)
        except ValueError as error:
            return PostResult(reason="no_secret", error=str(error), duration_ms=0)
        try:
            event_format = FORMATS[hook.format]
            body = event_format.body(with_explanation(event), self._shared.store.setup.current.teams[hook.team])
            signing = SignatureInput(
                secrets=secrets.secrets,
                private_key=secrets.key,
                url=url,
                event_id=due.event_id,
                timestamp_s=now // SECOND_MS,  # not by the test clock: receivers compare it with their own clock
                body=body,
            )
            # The login in the webhook's URL replaces an Authorization header of the format
            headers = event_format.headers(signing) | (
                basic_auth_header(secrets.login) if secrets.login and url == hook.url else {}
            )
            span_attributes = {"heliograph_event__id": due.event_id, "heliograph_webhook": hook.id}
            with tracing.begin_span("webhook", event.trace, "CLIENT", **span_attributes) as span:
                if span.traceparent:
                    headers["traceparent"] = span.traceparent
                result = await self._shared.client.post(url, headers, body)
                span.set_attributes(http_response_status__code=result.status or 0)
                return result
        except Exception as error:
            # an internal error affects only this delivery, which is retried after the usual delay
            log.error("event cannot be sent", webhook=hook.id, event_id=due.event_id, error=type(error).__name__)
            message = f"internal error while sending: {type(error).__name__}"
            return PostResult(reason="own_fault", error=message, duration_ms=0)

    def _get_secrets(self, hook: Webhook, team_now: int) -> WebhookSecrets:
        """Return the decrypted secrets, cached until the webhook changes or its rotation ends: decrypting is slow."""
        rotating = team_now < hook.old_until
        if not self._cached_secrets or self._cached_secrets[0] is not hook or self._cached_secrets[1] != rotating:
            self._cached_secrets = hook, rotating, self._shared.secrets_of(hook, team_now)
        return self._cached_secrets[2]

    # -- recording attempts --------------------------------------------------------------------------------------

    async def _record_attempts(self) -> None:
        """Record all finished attempts; retry while the store is unavailable and the lease is held."""
        pending, self._finished = self._finished, []
        batch, unrecorded = pending, self._shared.unrecorded
        reasons: list[tuple[Webhook, str]] = []
        try:
            while pending := await self._submit_attempts(pending, reasons):
                unrecorded.update([attempt.due.key for attempt, _ in pending])
                await asyncio.sleep(STORE_RETRY_S)
        finally:
            unrecorded.difference_update([attempt.due.key for attempt, _ in batch])
        for hook, reason in reasons[:1]:
            await self._disable(hook, reason)
        self._wake.set()

    async def _submit_attempts(
        self, attempts: list[_FinishedAttempt], reasons: list[tuple[Webhook, str]]
    ) -> list[_FinishedAttempt]:
        """Submit attempts; return those to submit again. Add (webhook, reason) to `reasons` for webhooks to disable."""
        to_retry: list[_FinishedAttempt] = []
        record, team_now = self._shared.store.deliveries.record, self._shared.clock.team_now
        # One after the other: attempts of a transaction finish together, and asyncio.gather would add a callback for
        # each.
        for future, attempt, hook in [(record(attempt), attempt, hook) for attempt, hook in attempts]:
            try:
                failing_since = await future
                if attempt.state != "delivered" and (
                    reason := disable_reason(attempt, failing_since, team_now(attempt.due.team))
                ):
                    reasons.append((hook, reason))
            except StoreUnavailable:
                to_retry.append((attempt, hook))
                continue
            except Exception as error:
                self._stop_sending(error)
            self._mark_recorded(attempt)
        return to_retry

    def _mark_recorded(self, attempt: DeliveryAttempt) -> None:
        metrics.webhook_attempts["retried" if attempt.state == "waiting" else attempt.state].inc()
        del self._started[attempt.due.key]
        self._recorded_keys.add(attempt.due.key)

    def _stop_sending(self, error: Exception) -> None:
        """Start no more attempts, because the lease is lost or an attempt cannot be recorded."""
        self.lease_until = 0
        if not isinstance(error, EndpointLeaseLost):
            log.error("attempt not recorded", webhook=self.lease.webhook, error=type(error).__name__)

    async def _disable(self, hook: Webhook, reason: str) -> None:
        try:
            if await self._shared.store.deliveries.disable(hook, reason):
                log.warning("webhook disabled", webhook=hook.id, team=hook.team, reason=reason)
        except StoreUnavailable:
            log.warning("webhook not disabled, retried after its next failure", webhook=hook.id, reason=reason)


def choose_next(
    queued: Iterable[DueDelivery],
    started: Collection[DueDelivery],
    limit: int,
    host: Callable[[DueDelivery], str] | None = None,
) -> list[DueDelivery]:
    """Return the next deliveries to send, in order.

    At most one delivery per subject is in flight and, if `host` is given, at most `WINDOW` per host.
    """
    busy, hosts = {due.subject for due in started}, Counter(map(host, started) if host else ())
    chosen_deliveries: list[DueDelivery] = []
    for due in queued:
        if len(chosen_deliveries) >= limit:
            break
        if due.subject not in busy and not (host and hosts[host(due)] >= WINDOW):
            busy.add(due.subject)
            hosts[host(due) if host else ""] += 1
            chosen_deliveries.append(due)
    return chosen_deliveries


def _host(due: DueDelivery) -> str:
    """Return the host of a message's callback URL."""
    return urlsplit(due.stored_event.callback).netloc if due.stored_event and due.stored_event.callback else ""


def to_attempt(
    lease: Lease,
    due: DueDelivery,
    result: PostResult,
    *,
    started_at: int,
    now: int,
    jitter: Callable[[], float],
    is_callback: bool = False,
) -> DeliveryAttempt:
    """Return the record of an attempt, with the next state and due time of its delivery."""
    state, due_at = "delivered", now
    if classify_response(result.status) != "delivered":
        attempt_number, first_at = due.attempts - due.earlier_attempts + 1, due.first_at or started_at
        next_at = next_attempt(attempt_number, first_at, now, jitter(), result.retry_after_s)
        state, due_at = ("exhausted", now) if next_at is None or result.reason == "not_kept" else ("waiting", next_at)
    return DeliveryAttempt(
        lease=lease,
        due=due,
        started_at=started_at,
        status=result.status,
        reason=result.reason,
        error=result.error,
        duration_ms=result.duration_ms,
        answer=result.answer.decode("utf-8", "replace").replace("\0", ""),  # PostgreSQL text cannot contain NUL
        state=state,
        due_at=due_at,
        is_callback=is_callback,
    )


def _is_gone(attempt: DeliveryAttempt) -> bool:
    return classify_response(attempt.status) == "gone" and not attempt.is_callback


def disable_reason(attempt: DeliveryAttempt, failing_since: int | None, now: int) -> str | None:
    """Return why the webhook must be disabled after this attempt; None if it must not."""
    if _is_gone(attempt):
        return "the endpoint responded 410 Gone"
    # only a failed retry counts: a single failure after a long idle time is weak evidence
    if (
        failing_since is not None
        and attempt.due.attempts
        and not attempt.is_callback
        and has_failed_too_long(failing_since, now)
    ):
        last_error = attempt.error or f"status {attempt.status}"
        return f"every delivery has failed since {timestamp(failing_since)}, most recently: {last_error}"
    return None
