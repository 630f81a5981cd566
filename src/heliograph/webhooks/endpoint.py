"""Delivery to one endpoint leased by this process: events in order, at most ten in flight, every attempt recorded.

Callbacks that a webhook signs but that go to the callback URLs of individual messages form a separate queue. The queue
is served in the same way, with a concurrency limit per host, so that a host that hangs delays neither the webhook nor
the other hosts.
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
from heliograph.runtime.async_wait import happens, wait_for_all
from heliograph.runtime.clock import Clock
from heliograph.storage.events import OWN
from heliograph.storage.store import Store, StoreUnavailable
from heliograph.texts.explain import explained
from heliograph.webhooks.client.http_post import Posted, Poster
from heliograph.webhooks.policy.formats.formats import FORMATS
from heliograph.webhooks.policy.retry import is_dead, next_attempt, verdict
from heliograph.webhooks.policy.signature import Signing
from heliograph.webhooks.policy.webhook import basic
from heliograph.webhooks.store import DeliveryTry, Due, Lease, NotOurs

WINDOW = 10  # maximum attempts in flight per endpoint (contract 10)
BEGUN = 5 * WINDOW  # maximum attempts in flight or unrecorded: a killed process may repeat this many
SLOTS = 400  # attempts in flight in this process; above it, each endpoint may have one
READ = 200  # deliveries read per query
READ_OWN = 5 * READ  # callbacks read per query: more, as callbacks to other hosts may queue behind a host that hangs
FRESH_MS = SECOND_MS  # maximum age of a queued delivery before it is read again
GATHER_S = 0.005  # time to wait until half of the window has responded, to record those attempts together
IDLE_S = 30.0  # idle time after which the endpoint is released to other processes
AWAY_S = 0.5  # pause after the store was unavailable
TRY_MS = 20 * SECOND_MS  # longer than an attempt takes: no attempt starts this close to the end of the lease


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """Decrypted secrets of a webhook: signing secrets, private key and user:password."""

    secrets: Sequence[str]
    login: str = ""
    key: str = ""  # private key, for formats that sign with a key pair


_Made = tuple[DeliveryTry, Webhook]
SecretsOf = Callable[[Webhook, int], Opened]  # (webhook, now) → secrets; ValueError if they cannot be decrypted

log = structlog.get_logger()


class Shared:
    """State shared by all endpoints of a process."""

    def __init__(self, store: Store, poster: Poster, clock: Clock, secrets_of: SecretsOf) -> None:
        self.store = store
        self.poster = poster
        self.clock = clock
        self.secrets_of = secrets_of
        self.stopping = asyncio.Event()
        self.in_flight = 0
        self.unrecorded: set[int] = set()  # keys of deliveries whose attempts the store could not record yet


class Endpoint:
    """Delivers events to one webhook: a reader task, one sender task per attempt, and a recorder task."""

    def __init__(self, lease: Lease, until: int, shared: Shared) -> None:
        self.lease = lease
        self.until = until  # end of the lease in monotonic ms; 0 if the lease is lost or the endpoint is gone
        self._shared = shared
        self._own = lease.webhook.endswith(OWN)  # serves callback URLs of individual messages
        self._wake = asyncio.Event()
        self._stale = True  # the store may have more due deliveries than `_waiting`
        self._waiting: list[Due] = []
        self._read_at = 0
        self._sending: set[asyncio.Task[None]] = set()
        self._recording: asyncio.Task[None] | None = None
        self._flying = 0
        self._recorded: set[int] = set()  # keys recorded since the last read began
        self._begun: dict[int, Due] = {}  # in flight or not recorded yet, by key
        self._made: list[_Made] = []  # attempts that finished and are not recorded yet
        self._opened: tuple[Webhook, bool, Opened] | None = None

    def hint(self) -> None:
        """Wake the endpoint: there may be new deliveries or a shutdown."""
        self._stale = True
        self._wake.set()

    async def serve(self) -> None:
        """Deliver until idle, until the lease is lost, until the webhook is disabled, or until shutdown."""
        try:
            while self._open() and await self._work():
                self._wake.clear()
            await wait_for_all(self._sending)
            await wait_for_all([self._recording] if self._recording else [])
            await self._record()
        finally:
            for task in filter(None, (*self._sending, self._recording)):  # running only after a cancellation
                task.cancel()

    async def _work(self) -> bool:
        """Start attempts, start recording finished ones, and wait for a wakeup. Return False if idle for `IDLE_S`."""
        try:
            await self._read()
            self._start()
            if self._made and (self._recording is None or self._recording.done()):
                self._recording = asyncio.create_task(self._record())
            return await happens(self._wake, IDLE_S) or bool(self._begun)
        except Exception as error:
            log.warning("cannot read deliveries", webhook=self.lease.webhook, error=type(error).__name__)
            self._stale = True
            await happens(self._shared.stopping, AWAY_S)
            return True

    def _open(self) -> Webhook | None:
        """Return the webhook if new attempts may start; else None."""
        hook = self._shared.store.setup.current.records.get(("webhook", self.lease.webhook.removesuffix(OWN)))
        if not isinstance(hook, Webhook) or not hook.enabled or self._shared.stopping.is_set():
            return None
        return hook if self._shared.clock.count() < self.until - TRY_MS and not self._shared.clock.off() else None

    async def _read(self) -> None:
        if self._is_old():
            self._waiting, self._stale = [], True
        if not self._stale or len(self._waiting) >= WINDOW:
            return
        self._stale = False
        self._recorded.clear()
        read_at = self._shared.clock.count()
        most = READ_OWN if self._own else READ
        found = await self._shared.store.deliveries.due(self.lease.webhook, most)
        self._read_at = read_at
        self._stale |= most in (len(found.new), len(found.again))
        # Alternate new and repeated deliveries, so that neither retries nor a large replay delay new events, or vice
        # versa.
        pairs = zip_longest(found.new, found.again)
        # Skip deliveries recorded during the read: the query may still have returned them as due.
        known = self._begun.keys() | self._recorded
        self._waiting = [due for pair in pairs for due in pair if due and due.key not in known]

    def _is_old(self) -> bool:
        """Return whether queued deliveries must be read again, because their events may have been erased since."""
        return bool(self._waiting) and self._shared.clock.count() - self._read_at > FRESH_MS

    def _start(self) -> None:
        if (hook := self._open()) and not self._is_old():
            for due in choose(self._waiting, self._begun.values(), self._room(), _host if self._own else None):
                self._waiting.remove(due)
                self._begun[due.key] = due
                self._flying += 1
                self._shared.in_flight += 1
                self._sending.add(asyncio.create_task(self._send(due, hook)))

    def _room(self) -> int:
        begun, shared = len(self._begun), self._shared
        # Start nothing new while an attempt waits for the store: an attempt that cannot be recorded must not be sent.
        if shared.unrecorded:
            return 0
        window = BEGUN if self._own else WINDOW
        return min(window - self._flying, BEGUN - begun) if shared.in_flight < SLOTS else int(begun == 0)

    # -- sending an attempt --------------------------------------------------------------------------------------

    async def _send(self, due: Due, hook: Webhook) -> None:
        about = {"message": due.subject} if due.told and due.told.record else {}  # other subjects may be addresses
        bind_contextvars(event_id=due.event, **about)
        clock = self._shared.clock
        now = clock.now()
        at = now + clock.moved.get(due.team, 0)
        try:
            posted, then = await self._post(due, hook, now, at), clock.of(due.team)
            made = to_try(self.lease, due, posted, at=at, now=then, jitter=self._jitter, elsewhere=self._own)
            self._made.append((made, hook))
            if made.state != "delivered" and _is_gone(made):  # start no more attempts before the webhook is disabled
                self.until = 0
                self._wake.set()
        finally:
            self._sending.discard(asyncio.current_task())
            self._flying -= 1
            self._shared.in_flight -= 1
            if self._flying <= WINDOW // 2:
                self._wake.set()
            elif len(self._made) == 1:  # first finished attempt: wait for more before recording
                asyncio.get_running_loop().call_later(GATHER_S, self._wake.set)

    async def _post(self, due: Due, hook: Webhook, now: int, at: int) -> Posted:
        url = hook.url if not self._own else due.told.callback if due.told else None
        if due.told is None or url is None:
            return Posted(reason="not_kept", error="the event is no longer kept", duration_ms=0)
        try:
            known = self._secrets(hook, at)
        except ValueError as error:
            return Posted(reason="no_secret", error=str(error), duration_ms=0)
        try:
            form = FORMATS[hook.format]
            body = form.body(explained(due.told), self._shared.store.setup.current.teams[hook.team])
            t = now // SECOND_MS  # real time, not the test clock: verifiers compare with their own clock
            signing = Signing(secrets=known.secrets, key=known.key, url=url, event=due.event, t=t, body=body)
            # The endpoint's own login replaces an Authorization header of the format.
            headers = form.headers(signing) | (basic(known.login) if known.login and url == hook.url else {})
            about = {"heliograph_event__id": due.event, "heliograph_webhook": hook.id}
            with tracing.span("webhook", due.told.trace, "CLIENT", **about) as span:
                if span.traceparent:
                    headers["traceparent"] = span.traceparent
                posted = await self._shared.poster.post(url, headers, body)
                span.note(http_response_status__code=posted.status or 0)
                return posted
        except Exception as error:
            # An internal error must neither stop other deliveries nor be retried without a pause.
            log.error("event cannot be sent", webhook=hook.id, event_id=due.event, error=type(error).__name__)
            told = f"it could not be sent: {type(error).__name__}"
            return Posted(reason="own_fault", error=told, duration_ms=0)

    def _jitter(self) -> float:
        return self._shared.clock.below(2001) / 1000 - 1

    def _secrets(self, hook: Webhook, at: int) -> Opened:
        """Return the decrypted secrets.

        They are cached until the webhook changes or its rotation ends: decrypting costs as much as signing.
        """
        rotating = at < hook.old_until
        if not self._opened or self._opened[0] is not hook or self._opened[1] != rotating:
            self._opened = hook, rotating, self._shared.secrets_of(hook, at)
        return self._opened[2]

    # -- recording attempts --------------------------------------------------------------------------------------

    async def _record(self) -> None:
        """Record finished attempts, so that none is sent twice.

        Retries until the store accepts them or the lease is lost.
        """
        made, self._made = self._made, []
        asked, unrecorded = made, self._shared.unrecorded
        reasons: list[tuple[Webhook, str]] = []
        try:
            while made := await self._submit(made, reasons):
                unrecorded.update([one.due.key for one, _ in made])
                await asyncio.sleep(AWAY_S)
        finally:
            unrecorded.difference_update([one.due.key for one, _ in asked])
        for hook, reason in reasons[:1]:
            await self._disable(hook, reason)
        self._wake.set()

    async def _submit(self, made: list[_Made], reasons: list[tuple[Webhook, str]]) -> list[_Made]:
        """Submit attempts to the store; return those to retry.

        Add (webhook, reason) to `reasons` for webhooks to disable.
        """
        away: list[_Made] = []
        record, now = self._shared.store.deliveries.record, self._shared.clock.of
        # Await one after the other: attempts of one transaction finish together, and asyncio.gather adds a callback
        # each.
        for recorded, one, hook in [(record(one), one, hook) for one, hook in made]:
            try:
                since = await recorded
                if one.state != "delivered" and (reason := why_disable(one, since, now(one.due.team))):
                    reasons.append((hook, reason))
            except StoreUnavailable:
                away.append((one, hook))
                continue
            except Exception as error:
                self._lose(error)
            self._end(one)
        return away

    def _end(self, made: DeliveryTry) -> None:
        metrics.webhook_tried["retried" if made.state == "waiting" else made.state].inc()
        del self._begun[made.due.key]
        self._recorded.add(made.due.key)

    def _lose(self, error: Exception) -> None:
        """Start no more attempts: the lease is lost, or attempts cannot be recorded."""
        self.until = 0
        if not isinstance(error, NotOurs):
            log.error("try not recorded", webhook=self.lease.webhook, error=type(error).__name__)

    async def _disable(self, hook: Webhook, reason: str) -> None:
        try:
            if await self._shared.store.deliveries.disable(hook, reason):
                log.warning("webhook disabled", webhook=hook.id, team=hook.team, reason=reason)
        except StoreUnavailable:
            log.warning("webhook not disabled: the next failure will", webhook=hook.id, reason=reason)


def choose(
    waiting: Iterable[Due], begun: Collection[Due], most: int, host: Callable[[Due], str] | None = None
) -> list[Due]:
    """Return the next deliveries to send, in order.

    At most one delivery per subject is in flight and, if `host` is given, at most `WINDOW` per host.
    """
    busy, hosts = {due.subject for due in begun}, Counter(map(host, begun) if host else ())
    chosen: list[Due] = []
    for due in waiting:
        if len(chosen) >= most:
            break
        if due.subject not in busy and not (host and hosts[host(due)] >= WINDOW):
            busy.add(due.subject)
            hosts[host(due) if host else ""] += 1
            chosen.append(due)
    return chosen


def _host(due: Due) -> str:
    """Return the host of a message's callback URL."""
    return urlsplit(due.told.callback).netloc if due.told and due.told.callback else ""


def to_try(
    lease: Lease,
    due: Due,
    posted: Posted,
    *,
    at: int,
    now: int,
    jitter: Callable[[], float],
    elsewhere: bool = False,
) -> DeliveryTry:
    """Return the attempt record with the delivery's next state and due time."""
    state, due_at = "delivered", now
    if verdict(posted.status) != "delivered":
        number, first_at = due.attempt - due.earlier + 1, due.first_at or at
        again = next_attempt(number, first_at, now, jitter(), posted.retry_after_s)
        state, due_at = ("exhausted", now) if again is None or posted.reason == "not_kept" else ("waiting", again)
    return DeliveryTry(
        lease=lease,
        due=due,
        at=at,
        status=posted.status,
        reason=posted.reason,
        error=posted.error,
        duration_ms=posted.duration_ms,
        answer=posted.answer.decode("utf-8", "replace").replace("\0", ""),  # PostgreSQL text cannot contain NUL
        state=state,
        due_at=due_at,
        elsewhere=elsewhere,
    )


def _is_gone(made: DeliveryTry) -> bool:
    return verdict(made.status) == "gone" and not made.elsewhere


def why_disable(made: DeliveryTry, failing_since: int | None, now: int) -> str | None:
    if _is_gone(made):
        return "the endpoint answered 410 Gone"
    # Only a failed retry counts: a single failure after a long idle time is weak evidence.
    if failing_since is not None and made.due.attempt and not made.elsewhere and is_dead(failing_since, now):
        last = made.error or f"status {made.status}"
        return f"nothing but failures since {timestamp(failing_since)}, the last one: {last}"
    return None
