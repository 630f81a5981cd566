"""One endpoint that this process alone serves: its events in order, at most ten in flight, each try recorded.

The callbacks that a webhook signs, to addresses of the messages' own, are a line beside it that is served the same way,
with a window for each of their hosts: one that hangs holds up neither the webhook and its state nor the other hosts.
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

WINDOW = 10  # tries in flight for an endpoint (contract 10)
BEGUN = 5 * WINDOW  # in flight or not recorded yet: what a kill may have sent again
SLOTS = 400  # in flight in this process; beyond that, one for each endpoint
READ = 200  # deliveries read at once
READ_OWN = 5 * READ  # … of callbacks: behind those of a host that hangs are those of others
FRESH_MS = SECOND_MS  # how long what was read may wait to be sent
GATHER_S = 0.005  # how long the first answers wait for half of the window, to be followed and recorded together
IDLE_S = 30.0  # without work, after which another process may serve it
AWAY_S = 0.5  # after the store could not be reached
TRY_MS = 20 * SECOND_MS  # longer than a try takes: none begins closer than this to the end of the lease


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What is sealed of a webhook: what signs, and user:password."""

    secrets: Sequence[str]
    login: str = ""
    key: str = ""  # the private one, of formats that have keys


_Made = tuple[DeliveryTry, Webhook]
SecretsOf = Callable[[Webhook, int], Opened]  # webhook, now → what signs; ValueError says why nothing can

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
    """One task reads what is due, one for each try sends, and one records what became of them meanwhile."""

    def __init__(self, lease: Lease, until: int, shared: Shared) -> None:
        self.lease = lease
        self.until = until  # when the lease ends, by our count; 0: it is lost, or the endpoint is gone
        self._shared = shared
        self._own = lease.webhook.endswith(OWN)  # callbacks to addresses of the messages' own
        self._wake = asyncio.Event()
        self._stale = True  # the store may have more than is waiting here
        self._waiting: list[Due] = []
        self._read_at = 0
        self._sending: set[asyncio.Task[None]] = set()
        self._recording: asyncio.Task[None] | None = None
        self._flying = 0
        self._recorded: set[int] = set()  # since the last read began, by key
        self._begun: dict[int, Due] = {}  # in flight or not recorded yet, by key
        self._made: list[_Made] = []  # answered and not recorded yet
        self._opened: tuple[Webhook, bool, Opened] | None = None

    def hint(self) -> None:
        """Say that there may be work, or an end."""
        self._stale = True
        self._wake.set()

    async def serve(self) -> None:
        """Serve until there is no more work, the endpoint is no longer ours or enabled, or a stop."""
        try:
            while self._open() and await self._work():
                self._wake.clear()
            await wait_for_all(self._sending)
            await wait_for_all([self._recording] if self._recording else [])
            await self._record()
        finally:
            for task in filter(None, (*self._sending, self._recording)):  # only when we are cancelled
                task.cancel()

    async def _work(self) -> bool:
        """Start what can be started, record what was made, and wait until something happens; False if nothing does."""
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
        """Return the webhook, as long as tries may begin."""
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
        # In turns: neither retries nor a large replay hold up what is new, nor the other way round.
        pairs = zip_longest(found.new, found.again)
        # What was begun before the read and recorded meanwhile may still have been due to it.
        known = self._begun.keys() | self._recorded
        self._waiting = [due for pair in pairs for due in pair if due and due.key not in known]

    def _is_old(self) -> bool:
        """Tell whether to read again: what was read may have been erased since."""
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
        # What cannot be recorded must not be sent: while a try waits for the store, nothing new begins.
        if shared.unrecorded:
            return 0
        window = BEGUN if self._own else WINDOW
        return min(window - self._flying, BEGUN - begun) if shared.in_flight < SLOTS else int(begun == 0)

    # -- one try -------------------------------------------------------------------------------------------------

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
            if made.state != "delivered" and _is_gone(made):  # nothing more begins before it is disabled
                self.until = 0
                self._wake.set()
        finally:
            self._sending.discard(asyncio.current_task())
            self._flying -= 1
            self._shared.in_flight -= 1
            if self._flying <= WINDOW // 2:
                self._wake.set()
            elif len(self._made) == 1:  # the others gather
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
            t = now // SECOND_MS  # real time: verifiers have no other
            signing = Signing(secrets=known.secrets, key=known.key, url=url, event=due.event, t=t, body=body)
            # A format may have a login of its own; the one that the endpoint asks for wins.
            headers = form.headers(signing) | (basic(known.login) if known.login and url == hook.url else {})
            about = {"heliograph_event__id": due.event, "heliograph_webhook": hook.id}
            with tracing.span("webhook", due.told.trace, "CLIENT", **about) as span:
                if span.traceparent:
                    headers["traceparent"] = span.traceparent
                posted = await self._shared.poster.post(url, headers, body)
                span.note(http_response_status__code=posted.status or 0)
                return posted
        except Exception as error:
            # A mistake of ours must neither stop the others nor be repeated without a pause.
            log.error("event cannot be sent", webhook=hook.id, event_id=due.event, error=type(error).__name__)
            told = f"it could not be sent: {type(error).__name__}"
            return Posted(reason="own_fault", error=told, duration_ms=0)

    def _jitter(self) -> float:
        return self._shared.clock.below(2001) / 1000 - 1

    def _secrets(self, hook: Webhook, at: int) -> Opened:
        """Open them once, until the webhook changes or its former secret ends: opening takes as long as signing."""
        rotating = at < hook.old_until
        if not self._opened or self._opened[0] is not hook or self._opened[1] != rotating:
            self._opened = hook, rotating, self._shared.secrets_of(hook, at)
        return self._opened[2]

    # -- what was made of them -----------------------------------------------------------------------------------

    async def _record(self) -> None:
        """Record until the store takes it or says that the endpoint is not ours: what was sent is not sent again."""
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
        """Return what the store could not take; why a webhook is to be disabled is added to the reasons."""
        away: list[_Made] = []
        record, now = self._shared.store.deliveries.record, self._shared.clock.of
        # In turn: those of one transaction end together, and gathering calls back for each.
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
        """Begin no more tries: the endpoint is another's, or its tries cannot be recorded."""
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
    """Choose the next to send, in order.

    For each subject it is one at a time, and for each host, if there are several, a window.
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
    """Return the host that a message's own callback goes to."""
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
    """Return what the answer means for the delivery."""
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
        answer=posted.answer.decode("utf-8", "replace").replace("\0", ""),  # PostgreSQL takes no NUL
        state=state,
        due_at=due_at,
        elsewhere=elsewhere,
    )


def _is_gone(made: DeliveryTry) -> bool:
    return verdict(made.status) == "gone" and not made.elsewhere


def why_disable(made: DeliveryTry, failing_since: int | None, now: int) -> str | None:
    if _is_gone(made):
        return "the endpoint answered 410 Gone"
    # Judged by retries: one failure after a long silence says little.
    if failing_since is not None and made.due.attempt and not made.elsewhere and is_dead(failing_since, now):
        last = made.error or f"status {made.status}"
        return f"nothing but failures since {timestamp(failing_since)}, the last one: {last}"
    return None
