"""Chooses the source address of an email and enforces the rate limits of the mailbox providers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from heliograph.carriers.contract import NotReady, OutboundMessage, SendHooks
from heliograph.carriers.email.connection_gate import ConnectionGate
from heliograph.carriers.email.connection_pool import MAILS_PER_CONNECTION_MAX
from heliograph.domain.delivery.outcome import Deferred, local_failure
from heliograph.domain.delivery.provider_pause import PROBE_WAIT_MS, Pause, begin_pause, end_pause
from heliograph.domain.delivery.provider_rates import (
    TOKEN_VALID_MS,
    ConnectionRequest,
    Exchange,
    ExchangeResult,
    HoldReason,
    Limits,
    ProbeClaim,
    ProviderKey,
    RateRefusal,
    TokenGrant,
    TokenRequest,
    daily_limit,
    is_in_use,
    limits_of_source,
    provider_limits,
    warmup_starts_at,
)
from heliograph.domain.setup.carrier_kinds import MxOptions
from heliograph.domain.setup.source_options import DEFAULT_POOL, SourcePool, address_of
from heliograph.inbound.policy.smtp_reply import is_connection_refusal, is_rate_refusal, pauses_host
from heliograph.runtime import metrics

CRITICAL_REPORT_S = 0.5  # delay until messages sent without a token are reported to the other processes
RETRY_S = 1.0  # delay before another access to the shared state after it could not be reached
SENDING_MAX = 8  # after a refusal, the limit on messages under way grows up to this number and is then lifted
RECHECK_MS = 2 * TOKEN_VALID_MS  # a message that waited longer for a connection needs a new token
TEXT_BY_REASON: dict[HoldReason, str] = {
    "provider_rate": "the rate limit for {provider} is reached",
    "warmup": "the daily limit of the warm-up for {provider} is reached",
}

Shuffle = Callable[[list[Any]], None]
ApplyExchange = Callable[[Exchange], Awaitable[ExchangeResult]]

log = structlog.get_logger()


class Held(Exception):
    """Raised if a message must wait because of a rate limit; `outcome` is the deferral to record."""

    def __init__(self, outcome: Deferred) -> None:
        super().__init__()
        self.outcome = outcome


class NextAttempt(msgspec.Struct, frozen=True):
    """Time of the next attempt of a message that got no token, and why the message must wait."""

    at: int
    reason: HoldReason


class SendPermit(msgspec.Struct, kw_only=True, eq=False):
    """Permission to send one message to a provider from a source address."""

    source: str | None
    provider: str
    quota: "Quota"
    attempted_at: int  # time of the permission, or of the check just before the message was sent
    has_token: bool
    is_critical: bool
    gate: ConnectionGate | None
    mails_per_connection: int


class RefusalPause:
    """The pause after a provider refused a message because of the rate, as known to this process.

    After the pause, one message, the probe, is sent first. Then the limit on messages under way grows by one each time
    the provider has accepted as many messages as the limit permits, so that a backlog is not refused as a whole.
    """

    def __init__(self) -> None:
        self._pause = Pause()
        self._probe: SendPermit | None = None  # the probe under way
        self._probe_at = 0  # when to ask again whether this process may send the probe
        self._sending = set[SendPermit]()  # messages under way that were sent after the refusal
        self._sending_max: int | None = None  # limit on messages under way; None: no limit
        self._accepted = 0  # messages accepted since the limit last changed

    @property
    def refused_at(self) -> int:
        return self._pause.refused_at

    @property
    def is_active(self) -> bool:
        """Return whether the provider refused a message and has not accepted a probe since."""
        return self._pause.is_active

    @property
    def is_recovering(self) -> bool:
        """Return whether messages under way are still limited because of the last refusal."""
        return self._sending_max is not None

    def ends_at(self, now: int, permit: SendPermit | None = None, *, is_critical: bool = False) -> int | None:
        """Return when to try again, or None if a message may be sent now."""
        if permit and permit in self._sending and permit.attempted_at > self.refused_at:
            return None
        if self.is_active:
            until = max(self._pause.ends_at(is_critical=is_critical), self._probe_at)
            return max(until, now + PROBE_WAIT_MS) if self._probe or now < until else None
        is_full = self._sending_max is not None and len(self._sending) >= self._sending_max
        return now + PROBE_WAIT_MS if is_full else None

    def start_sending(self, permit: SendPermit) -> bool:
        """Count the message as under way; return whether it is a new probe, which only one process may send."""
        is_first = self.is_active and permit is not self._probe
        if self.is_active:
            self._probe = permit
        if self.is_recovering:
            self._sending.add(permit)
        return is_first

    def end_sending(self, permit: SendPermit) -> None:
        self._sending.discard(permit)
        if self._probe is permit:
            self._probe = None

    def wait_for_probe(self, until: int) -> None:
        """Send no message before `until`, because another process waits for the reply to its probe."""
        self._probe_at = until

    def accept(self, permit: SendPermit) -> bool:
        """Process a reply other than a rate refusal; return whether the reply ends the pause."""
        if permit.attempted_at <= self._pause.refused_at:
            return False
        if self._sending_max is not None:
            self._accepted += 1
            if self._accepted >= self._sending_max:
                self._accepted = 0
                self._sending_max = self._sending_max + 1 if self._sending_max < SENDING_MAX else None
        if not self.is_active:
            return False
        self._pause = end_pause(self._pause, permit.attempted_at)
        return True

    def refuse(self, permit: SendPermit, now: int, *, closes_connection: bool) -> None:
        self._pause = begin_pause(self._pause, permit.attempted_at, now, closes_connection=closes_connection)
        self._sending_max, self._accepted = 1, 0

    def adopt(self, shared: Pause) -> None:
        """Adopt the pause shared by all processes unless this process knows of later replies."""
        if shared.refused_at > self._pause.refused_at:
            if shared.is_active:
                self._sending_max, self._accepted = 1, 0
        elif shared.refused_at < self._pause.refused_at or not self.is_active:
            return
        self._pause = shared


class AdmittedHooks(SendHooks):
    """Hooks of an admitted message, which check the rate again once the connection is open."""

    def __init__(self, hooks: SendHooks, recheck: Callable[[], Awaitable[None]]) -> None:
        self._hooks = hooks
        self._recheck = recheck

    def on_queued(self, seconds: float) -> None:
        self._hooks.on_queued(seconds)

    async def before_send(self) -> None:
        await self._recheck()
        await self._hooks.before_send()


class Quota:
    """The tokens and connections of this process for one provider and source address."""

    def __init__(self, key: ProviderKey, limits: Limits, exchange: ApplyExchange, now: Callable[[], int]) -> None:
        self.key = key
        self.limits = limits
        self.gate = ConnectionGate(limits.connections, self._lease) if limits.connections else None
        self._exchange = exchange
        self._now = now
        self._tokens = 0
        self._granted_in = 0  # second in which the current tokens were granted
        self._valid_until = 0
        self._unused: dict[int, int] = {}  # second → unused tokens granted in it, to be returned
        self._critical = 0  # critical messages that were sent without a token and are not reported yet
        self._refusals: list[RateRefusal] = []
        self._pause_ended_by = 0  # send time of the message whose reply ended a pause; 0: nothing to report
        self.pause = RefusalPause()
        # By `reserves_time`: messages that wait for a token, as (was held before, future)
        self._waiting: dict[bool, list[tuple[bool, asyncio.Future[NextAttempt | None]]]] = {True: [], False: []}
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def needs_tokens(self) -> bool:
        limits = self.limits
        return bool(
            limits.per_minute
            or (limits.warmup and daily_limit(limits.warmup, limits.per_minute, self._now()) is not None)
        )

    @property
    def has_token(self) -> bool:
        return self._tokens > 0 and self._now() < self._valid_until

    async def take(self, *, was_held: bool, reserves_time: bool) -> NextAttempt | None:
        """Take a token and return None, or return when the message is to be attempted again.

        `reserves_time`: reserve that time, so that later messages are attempted after this one.
        """
        if self.has_token:
            self._tokens -= 1
            return None
        next_attempt: asyncio.Future[NextAttempt | None] = asyncio.get_running_loop().create_future()
        self._waiting[reserves_time].append((was_held, next_attempt))
        self._start()
        return await next_attempt

    @property
    def critical_order(self) -> tuple[int, bool, bool, bool, int]:
        """Return the sort key by which a critical message chooses among source addresses."""
        paused_until = self.pause.ends_at(self._now(), is_critical=True) or 0
        lacks_token = self.needs_tokens and not self.has_token
        is_warming = self.limits.warmup is not None
        return paused_until, self.pause.is_recovering, lacks_token, is_warming, self.pause.refused_at

    def take_critical(self) -> None:
        """Take a token if one is left; otherwise report the message to the state shared by all processes."""
        if self.has_token:
            self._tokens -= 1
            return
        self._critical += 1
        self._start_in(CRITICAL_REPORT_S)

    def report_refusal(self, refusal: RateRefusal) -> None:
        self._refusals.append(refusal)
        self._tokens = 0
        self._start()

    def report_reply(self, attempted_at: int) -> None:
        """Report to the other processes that the reply to the message sent at `attempted_at` ended a pause."""
        self._pause_ended_by = attempted_at
        self._start()

    async def claim_probe(self, *, is_critical: bool) -> int | None:
        """Return when to ask again, or None if this process may send the probe after a pause."""
        try:
            return (await self._access(probe=ProbeClaim(is_critical=is_critical))).probe_at
        except Exception as error:
            # Each process then sends a probe.
            log.warning("cannot read the provider limits", provider=self.key.provider, error=type(error).__name__)
            return None

    async def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)
        if self.gate:
            await self.gate.close()

    def _start_in(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._start)

    def _start(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._critical or self._refusals or self._pause_ended_by or any(self._waiting.values()):
                if not await self._exchange_once():
                    self._start_in(RETRY_S)
                    break
                self._serve_waiting()
        finally:
            self._task = None

    async def _exchange_once(self) -> bool:
        """Send pending requests to the shared state and distribute its tokens, first to messages held before.

        Returns whether the state was reached; otherwise the next call reports the refusals again.
        """
        reserves_time = bool(self._waiting[True])
        waiting, self._waiting[reserves_time] = self._waiting[reserves_time], []
        waiting.sort(key=lambda item: not item[0])
        returning = sum(was_held for was_held, _ in waiting)
        if self._tokens:
            self._unused[self._granted_in] = self._unused.get(self._granted_in, 0) + self._tokens
            self._tokens = 0
        request = TokenRequest(
            returning=returning,
            fresh=len(waiting) - returning,
            critical=self._critical,
            unused=self._unused,
            reserves_attempt_times=reserves_time,
        )
        refusals, self._refusals, self._critical, self._unused = tuple(self._refusals), [], 0, {}
        pause_ended_by, self._pause_ended_by = self._pause_ended_by, 0
        try:
            result = await self._access(tokens=request, refusals=refusals, pause_ended_by=pause_ended_by)
        except Exception as error:
            log.warning("cannot read the provider limits", provider=self.key.provider, error=type(error).__name__)
            self._refusals[:0], self._critical = refusals, self._critical + request.critical
            self._pause_ended_by = self._pause_ended_by or pause_ended_by
            for _, next_attempt in [*waiting, *self._waiting[True], *self._waiting[False]]:
                if not next_attempt.done():
                    next_attempt.set_exception(NotReady("the provider limits cannot be read now"))
                    next_attempt.exception()  # mark as retrieved
            self._waiting = {True: [], False: []}
            return False
        assert result.grant
        self._distribute(result.grant, waiting)
        return True

    def _distribute(
        self, grant: TokenGrant, waiting: Sequence[tuple[bool, "asyncio.Future[NextAttempt | None]"]]
    ) -> None:
        attempt_times, served = iter(grant.attempt_times), {True: grant.returning, False: grant.fresh}
        self._tokens = grant.tokens
        for was_held, next_attempt in waiting:
            answer: NextAttempt | None = None
            if served[was_held]:
                served[was_held] -= 1
                self._tokens -= not next_attempt.done()  # done: the message was cancelled
            else:
                answer = NextAttempt(next(attempt_times), grant.reason)
            if not next_attempt.done():
                next_attempt.set_result(answer)
        self._granted_in, self._valid_until = grant.second, self._now() + TOKEN_VALID_MS

    def _serve_waiting(self) -> None:
        """Give the remaining tokens to messages that arrived during the exchange."""
        for waiting in self._waiting.values():
            while waiting and self.has_token:
                _, next_attempt = waiting.pop(0)
                if not next_attempt.done():
                    self._tokens -= 1
                    next_attempt.set_result(None)

    async def _lease(self, request: ConnectionRequest) -> int:
        return (await self._access(connections=request)).connections

    async def _access(self, **requests: Any) -> ExchangeResult:
        """Send requests to the shared state and adopt its pause."""
        result = await self._exchange(Exchange(key=self.key, limits=self.limits, **requests))
        self.pause.adopt(result.pause)
        return result


class ProviderLimiter:
    """Admits the messages of one carrier within the rate limits of the mailbox providers."""

    def __init__(
        self, options: MxOptions, carrier: str, exchange: ApplyExchange, now: Callable[[], int], shuffle: Shuffle
    ) -> None:
        self._carrier = carrier
        self._exchange = exchange
        self._now = now
        self._shuffle = shuffle
        self._options = options
        all_sources = SourcePool(source_ips=[address_of(source) for source in options.source_ips])
        self._pools = {DEFAULT_POOL: all_sources} | options.pools
        self._quotas: dict[ProviderKey, Quota] = {}

    async def admit(self, provider: str, address: str, message: OutboundMessage) -> SendPermit | Deferred:
        """Return the permission to send to `address` from an address of the message's pool, or a deferral."""
        pool = self._pools.get(message.pool) or self._pools[DEFAULT_POOL]
        sources = [ip for ip in pool.source_ips if (":" in ip) == (":" in address)]
        if pool.source_ips and not sources:
            text = f"no address in source_ips can reach {address}"
            return Deferred(detail={"host": None, "address": address, "text": text, "trouble": "not_ready"})
        quotas = [self._quota(provider, source) for source in sources or [""]]
        self._shuffle(quotas)
        try:
            return await self._choose_permit(quotas, message)
        except Held as held:
            may_overflow = pool.overflow and not message.uncertain
            return msgspec.structs.replace(held.outcome, overflow=pool.overflow) if may_overflow else held.outcome

    def with_recheck(self, message: OutboundMessage, permit: SendPermit) -> OutboundMessage:
        """Return the message with hooks that check the rate again once the message has a connection."""
        hooks = AdmittedHooks(message.hooks, partial(self._recheck, permit))
        return msgspec.structs.replace(message, hooks=hooks)

    async def _recheck(self, permit: SendPermit) -> None:
        """Take a new token if the permit is older than RECHECK_MS or than a refusal because of the rate.

        Raises Held if no token is available, or if the provider refused a message because of the rate meanwhile.
        """
        quota, is_old = permit.quota, self._now() - permit.attempted_at > RECHECK_MS
        if permit.has_token and (is_old or quota.pause.refused_at >= permit.attempted_at):
            next_attempt = await quota.take(was_held=True, reserves_time=True)
            if next_attempt:
                raise self._held(permit.provider, next_attempt)
        await self._start_sending(permit)
        permit.attempted_at = self._now()

    async def _start_sending(self, permit: SendPermit) -> None:
        """Count the message as under way after a refusal; raise Held if the message must wait for the pause's end."""
        pause = permit.quota.pause
        if paused_until := pause.ends_at(self._now(), permit, is_critical=permit.is_critical):
            raise self._held(permit.provider, NextAttempt(paused_until, "provider_rate"))
        if not pause.start_sending(permit):
            return
        probe_at = await permit.quota.claim_probe(is_critical=permit.is_critical)
        if probe_at:
            pause.end_sending(permit)
            pause.wait_for_probe(probe_at)
            raise self._held(permit.provider, NextAttempt(probe_at, "provider_rate"))

    def report(self, permit: SendPermit, detail: dict[str, Any]) -> None:
        """Process a server's reply."""
        quota, now = permit.quota, self._now()
        if not is_rate_refusal(detail):
            if detail.get("code") and quota.pause.accept(permit):
                quota.report_reply(permit.attempted_at)
            return
        closes_connection, open_connections = pauses_host(detail), None
        if permit.gate and is_connection_refusal(detail):
            permit.gate.limit_to_opened()
            open_connections = permit.gate.opened
        quota.pause.refuse(permit, now, closes_connection=closes_connection)
        metrics.provider_rate_deferrals[quota.key.carrier, quota.key.provider, quota.key.source].inc()
        quota.report_refusal(
            RateRefusal(
                attempted_at=permit.attempted_at,
                reply=str(detail.get("text")),
                refused_at=now,
                closes_connection=closes_connection,
                open_connections=open_connections,
            )
        )

    async def close(self) -> None:
        await asyncio.gather(*(quota.close() for quota in self._quotas.values()))

    def _quota(self, provider: str, source: str) -> Quota:
        key = ProviderKey(self._carrier, provider, source)
        quota = self._quotas.get(key)
        if quota is None:
            limits = limits_of_source(self._options, provider, source)
            quota = self._quotas[key] = Quota(key, limits, self._exchange, self._now)
        return quota

    async def _choose_permit(self, quotas: Sequence[Quota], message: OutboundMessage) -> SendPermit:
        """Return a permit of a quota that admits the message. Raises Held if all quotas make the message wait."""
        is_critical = message.priority == "critical"
        limits = provider_limits(self._options, quotas[0].key.provider)
        mails = limits.messages_per_connection or MAILS_PER_CONNECTION_MAX
        tries_left = len(quotas)
        while True:
            tries_left -= 1
            quota = await self._choose_quota(quotas, message)
            permit = SendPermit(
                source=quota.key.source or None,
                provider=quota.key.provider,
                quota=quota,
                attempted_at=self._now(),
                has_token=quota.needs_tokens and not is_critical,
                is_critical=is_critical,
                gate=quota.gate,
                mails_per_connection=min(mails, MAILS_PER_CONNECTION_MAX),
            )
            try:
                await self._start_sending(permit)
            except Held:
                if not tries_left:
                    raise
            else:
                return permit

    async def _choose_quota(self, quotas: Sequence[Quota], message: OutboundMessage) -> Quota:
        """Return a quota that admits the message. Raises Held if all quotas make the message wait."""
        now, provider = self._now(), quotas[0].key.provider
        in_use = [quota for quota in quotas if is_in_use(quota.limits.warmup, now)]
        if not in_use:
            first_day = min(warmup_starts_at(quota.limits.warmup) for quota in quotas if quota.limits.warmup)
            raise self._held(provider, NextAttempt(first_day, "warmup"))
        if message.priority == "critical":
            quota = min(in_use, key=lambda quota: quota.critical_order)
            if paused_until := quota.pause.ends_at(now, is_critical=True):
                raise self._held(provider, NextAttempt(paused_until, "provider_rate"))
            if quota.needs_tokens:
                quota.take_critical()
            return quota
        pauses = [quota.pause.ends_at(now) for quota in in_use]
        if all(pauses):
            raise self._held(provider, NextAttempt(min(filter(None, pauses)), "provider_rate"))
        in_use = [quota for quota, paused_until in zip(in_use, pauses, strict=True) if not paused_until]
        next_attempts = list[tuple[int, int]]()
        for number, quota in enumerate(in_use):
            next_attempt = None
            if quota.needs_tokens:
                next_attempt = await quota.take(was_held=message.was_held, reserves_time=len(in_use) == 1)
            if next_attempt is None:
                return quota
            if len(in_use) == 1:
                raise self._held(provider, next_attempt)
            next_attempts.append((next_attempt.at, number))
        first = in_use[min(next_attempts)[1]]
        next_attempt = await first.take(was_held=message.was_held, reserves_time=True)
        if next_attempt:
            raise self._held(provider, next_attempt)
        return first

    def _held(self, provider: str, next_attempt: NextAttempt) -> Held:
        detail = local_failure(next_attempt.reason, TEXT_BY_REASON[next_attempt.reason].format(provider=provider))
        wait_ms = max(1, next_attempt.at - self._now())
        return Held(Deferred(detail=detail, held=True, retry_after_ms=wait_ms))
