"""One endpoint that this process alone serves: its events in order, at most ten in flight, each try recorded."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import structlog
from msgspec.structs import replace

from heliograph.channels.webhook import signature
from heliograph.channels.webhook.post import Posted, Poster
from heliograph.clock import Clock
from heliograph.deliver.waiting import happens, settle
from heliograph.rules.event import StoredEvent, event_body
from heliograph.rules.ids import timestamp
from heliograph.rules.limits import SECOND_MS
from heliograph.rules.setup.records import Webhook
from heliograph.rules.webhook_retry import is_dead, next_attempt, verdict
from heliograph.storage.deliveries import DeliveryTry, Due, Lease, NotOurs
from heliograph.storage.store import Store, StoreUnavailable

WINDOW = 10  # tries in flight for an endpoint (contract 10)
SLOTS = 400  # in flight in this process; beyond that, one for each endpoint
READ = 200  # deliveries read at once
IDLE_S = 30.0  # without work, after which another process may serve it
AWAY_S = 0.5  # after the store could not be reached
TRY_MS = 20 * SECOND_MS  # longer than a try takes: none begins closer than this to the end of the lease

SecretsOf = Callable[[Webhook, int], Sequence[str]]  # webhook, now → what signs; ValueError says why nothing can

log = structlog.get_logger()


class Shared:
    """What all endpoints of a process share."""

    def __init__(self, store: Store, poster: Poster, clock: Clock, secrets_of: SecretsOf) -> None:
        self.store = store
        self.poster = poster
        self.clock = clock
        self.secrets_of = secrets_of
        self.stopping = asyncio.Event()
        self.in_flight = 0
        self.unrecorded: set[int] = set()  # tries that the store could not take yet, by delivery


class Endpoint:
    def __init__(self, lease: Lease, until: int, shared: Shared) -> None:
        self.lease = lease
        self.until = until  # when the lease ends, by our count; 0: it is lost
        self._shared = shared
        self._wake = asyncio.Event()
        self._stale = True  # the store may have more than is waiting here
        self._waiting: list[Due] = []
        self._in_flight: dict[asyncio.Task[None], Due] = {}

    def hint(self) -> None:
        """There may be work, or an end."""
        self._stale = True
        self._wake.set()

    async def serve(self) -> None:
        """Until there is no more work, the endpoint is no longer ours or enabled, or a stop."""
        try:
            while self._open() and await self._work():
                self._wake.clear()
            await settle(self._in_flight)
        finally:
            for task in self._in_flight:  # only when we are cancelled
                task.cancel()

    async def _work(self) -> bool:
        """Start what can be started and wait until something happens; False when nothing does."""
        try:
            await self._start_some()
            return await happens(self._wake, IDLE_S) or bool(self._in_flight)
        except Exception as error:
            log.warning("cannot read deliveries", webhook=self.lease.webhook, error=type(error).__name__)
            self._stale = True
            await happens(self._shared.stopping, AWAY_S)
            return True

    def _open(self) -> Webhook | None:
        """The webhook, as long as tries may begin."""
        hook = self._shared.store.setup.current.records.get(("webhook", self.lease.webhook))
        if not isinstance(hook, Webhook) or not hook.enabled or self._shared.stopping.is_set():
            return None
        return hook if self._shared.clock.count() < self.until - TRY_MS and not self._shared.clock.off() else None

    async def _start_some(self) -> None:
        chosen = self._choose()
        if len(chosen) < self._room() and self._stale:
            await self._read()
            chosen = self._choose()
        if not chosen:
            return
        events = await self._shared.store.deliveries.events_of(chosen)
        if hook := self._open():
            for due in chosen:
                self._waiting.remove(due)
                self._start(due, self._send(due, events.get(due.event), hook))

    def _room(self) -> int:
        own, shared = len(self._in_flight), self._shared
        # What cannot be recorded must not be sent: while a try waits for the store, nothing new begins.
        if shared.unrecorded:
            return 0
        return WINDOW - own if shared.in_flight < SLOTS else int(own == 0)

    def _choose(self) -> list[Due]:
        return choose(self._waiting, {due.subject for due in self._in_flight.values()}, self._room())

    async def _read(self) -> None:
        # Noted before the read: what is recorded while it runs must not come back.
        in_flight = {due.key for due in self._in_flight.values()}
        self._stale = False
        found = await self._shared.store.deliveries.due(self.lease.webhook, READ)
        self._stale |= READ in (len(found.new), len(found.again))
        # In turns: neither retries nor a large replay hold up what is new, nor the other way round.
        pairs = zip_longest(found.new, found.again)
        self._waiting = [due for pair in pairs for due in pair if due and due.key not in in_flight]

    def _start(self, due: Due, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(telling)
        self._in_flight[task] = due
        self._shared.in_flight += 1
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._in_flight[task]
        self._shared.in_flight -= 1
        self._wake.set()

    # -- one try -------------------------------------------------------------------------------------------------

    async def _send(self, due: Due, event: StoredEvent | None, hook: Webhook) -> None:
        clock = self._shared.clock
        at = clock.now()
        posted = await self._post(due, event, hook, at)
        made = to_try(self.lease, due, posted, at=at, now=clock.now(), jitter=lambda: clock.below(2001) / 1000 - 1)
        if event is None:
            made = replace(made, state="exhausted")
        failing_since = await self._record(made)
        if reason := why_disable(made, failing_since, clock.now()):
            await self._disable(hook, reason)

    async def _post(self, due: Due, event: StoredEvent | None, hook: Webhook, at: int) -> Posted:
        if event is None:
            return Posted(error="the event is no longer kept", duration_ms=0)
        try:
            secrets = self._shared.secrets_of(hook, at)
        except ValueError as error:
            return Posted(error=str(error), duration_ms=0)
        try:
            body = event_body(event, self._shared.store.setup.current.teams[hook.team])
            headers = signature.headers(secrets, due.event, at // SECOND_MS, body)
            return await self._shared.poster.post(hook.url, headers, body)
        except Exception as error:
            # A mistake of ours must neither stop the others nor be repeated without a pause.
            log.error("event cannot be sent", webhook=hook.id, event_id=due.event, error=type(error).__name__)
            return Posted(error=f"it could not be sent: {type(error).__name__}", duration_ms=0)

    async def _record(self, made: DeliveryTry) -> int | None:
        """Until the store takes it or says that the endpoint is not ours: what was sent is not sent again."""
        shared = self._shared
        try:
            while True:
                try:
                    return await shared.store.deliveries.record(made)
                except StoreUnavailable:
                    shared.unrecorded.add(made.due.key)
                    await asyncio.sleep(AWAY_S)
        except Exception as error:
            self.until = 0
            if not isinstance(error, NotOurs):
                log.error("try not recorded", webhook=self.lease.webhook, error=type(error).__name__)
            return None
        finally:
            shared.unrecorded.discard(made.due.key)

    async def _disable(self, hook: Webhook, reason: str) -> None:
        try:
            if await self._shared.store.deliveries.disable(hook, reason):
                log.warning("webhook disabled", webhook=hook.id, team=hook.team, reason=reason)
        except StoreUnavailable:
            log.warning("webhook not disabled: the next failure will", webhook=hook.id, reason=reason)


def choose(waiting: Iterable[Due], busy: set[str], most: int) -> list[Due]:
    """The next to send: in order, and for each subject one at a time."""
    chosen: list[Due] = []
    for due in waiting:
        if len(chosen) >= most:
            break
        if due.subject not in busy:
            busy.add(due.subject)
            chosen.append(due)
    return chosen


def to_try(lease: Lease, due: Due, posted: Posted, *, at: int, now: int, jitter: Callable[[], float]) -> DeliveryTry:
    """What the answer means for the delivery."""
    state, due_at = "delivered", now
    if verdict(posted.status) != "delivered":
        number, first_at = due.attempt - due.earlier + 1, due.first_at or at
        again = next_attempt(number, first_at, now, jitter(), posted.retry_after_s)
        state, due_at = ("exhausted", now) if again is None else ("waiting", again)
    return DeliveryTry(
        lease=lease,
        due=due,
        at=at,
        status=posted.status,
        error=posted.error,
        duration_ms=posted.duration_ms,
        answer=posted.answer.decode("utf-8", "replace").replace("\0", ""),  # PostgreSQL takes no NUL
        state=state,
        due_at=due_at,
    )


def why_disable(made: DeliveryTry, failing_since: int | None, now: int) -> str | None:
    if verdict(made.status) == "gone":
        return "the endpoint answered 410 Gone"
    # Judged by retries: one failure after a long silence says little.
    if failing_since is not None and made.due.attempt and is_dead(failing_since, now):
        last = made.error or f"status {made.status}"
        return f"nothing but failures since {timestamp(failing_since)}, the last one: {last}"
    return None
