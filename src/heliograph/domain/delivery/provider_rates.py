"""Rate limits per mailbox provider and source address: tokens, reduction after refusals, warm-up, connections.

All processes share one `ProviderState` per carrier, provider and source address. They take tokens and connections in
batches, so that most messages need no access to the state.
"""

import datetime
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from heliograph.domain.delivery.provider_pause import Pause, begin_pause, claim_probe, end_pause
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.setup.carrier_kinds import MxOptions
from heliograph.domain.setup.source_options import (
    ANY_PROVIDER,
    ProviderLimits,
    SourceAddress,
    Warmup,
)

SLOT_MS = SECOND_MS  # resolution of the count of granted tokens
TOKEN_VALID_MS = SECOND_MS  # a token must be used within this time
QUIET_MS = 10 * MINUTE_MS  # time between a refusal and the first step of the recovery, and between two steps
RECOVERY_STEPS = 10  # steps from zero to the configured rate
SPREAD_MS = 7 * DAY_MS  # after a refusal the tokens of a minute are spread over it for this long
RATE_MIN = 0.1  # minimum messages per minute after refusals
FULL_DAILY_LIMIT = 10_000  # daily limit at the end of a warm-up without a configured rate
BACKLOG_SPEEDUP = 1.05  # held messages are attempted slightly faster than the rate, so that no token stays unused
RESERVED_SHARE = 0.2  # share of the rate that is reserved for messages that were held before
UNLIMITED = 1_000_000_000
PREFETCH_DIVISOR = 60  # a process prefetches at most the tokens of one second: 1/60 of a minute's
CONNECTION_LEASE_MS = 15 * SECOND_MS
CONNECTIONS_REDUCED_MS = HOUR_MS  # how long the limit of connections stays reduced; doubles up to a day
CONNECTIONS_REDUCED_MAX_MS = DAY_MS

REPLY_MAX = 300  # maximum stored characters of a reply

HoldReason = Literal["provider_rate", "warmup"]
_EMAIL_ADDRESS = re.compile(r"[^\s<>()]+@[^\s<>()]+")
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Configured limits of one provider and source address; 0 means no limit."""

    per_minute: int = 0
    connections: int = 0
    warmup: Warmup | None = None


def provider_limits(options: MxOptions, provider: str) -> ProviderLimits:
    """Return the configured limits of a provider."""
    return options.providers.get(provider) or options.providers.get(ANY_PROVIDER) or ProviderLimits()


def limits_of_source(options: MxOptions, provider: str, source: str) -> Limits:
    """Return the configured limits of a provider and source address."""
    configured = provider_limits(options, provider)
    warmups = {entry.address: entry.warmup for entry in options.source_ips if isinstance(entry, SourceAddress)}
    return Limits(per_minute=configured.per_minute, connections=configured.connections, warmup=warmups.get(source))


class ConnectionLease(msgspec.Struct, frozen=True, array_like=True):
    """Connections that a process may open until the lease ends."""

    count: int
    wanted: int
    until: int
    opened: int = 0  # connections that the process had open at its last request


class ProviderState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rate limit state of a carrier, mailbox provider and source address, shared by all processes; times in ms."""

    used: dict[int, int] = {}  # second of the grant → granted tokens that still count
    backlog_until: int = 0  # earliest attempt time of the next message that is held
    reduced_rate: float = 0.0  # messages per minute just after the last reduction
    reduced_at: int = 0  # time of the last reduction; 0: never
    day: int = 0  # UTC day of the counts below
    sent: int = 0  # granted tokens of that day
    deferrals: int = 0  # refusals because of the rate on that day
    last_reply: str = ""  # reply of the last refusal because of the rate
    last_reply_at: int = 0
    pause: Pause = Pause()
    connections: dict[str, ConnectionLease] = {}  # by process
    connection_limit: int = 0  # connections just after the last reduction
    connections_reduced_at: int = 0  # time of the last reduction; 0: never
    connection_reductions: int = 0  # reductions in succession, each soon after the one before had ended


class ProviderKey(NamedTuple):
    """Key of a ProviderState."""

    carrier: str
    provider: str
    source: str  # IP address; empty: the system chooses it


class ProviderRate(msgspec.Struct, frozen=True, kw_only=True):
    """Rate and counts of a provider and source address, as shown in the dashboard and metrics."""

    key: ProviderKey
    per_minute: int  # configured limit; 0: no limit
    rate: float  # messages per minute that are permitted now
    sent: int  # messages of this UTC day; 0 without a limit
    daily_limit: int | None  # daily limit of the warm-up; None after it
    deferrals: int  # refusals because of the rate on this UTC day
    last_reply: str
    last_reply_at: int | None


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Number of tokens that a process needs, and how it used earlier tokens since its last request."""

    fresh: int = 0  # messages that were not held before
    returning: int = 0  # messages that were held before
    critical: int = 0  # messages sent without a token
    unused: Mapping[int, int] = {}  # second of the grant → tokens that were not used
    # whether the attempt times of messages that get no token are reserved, so that later messages get later times
    reserves_attempt_times: bool = True


class TokenGrant(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens for a process, and the next attempt times of messages that get none."""

    tokens: int
    returning: int = 0  # messages held before that got a token
    fresh: int = 0
    second: int = 0  # Unix time of the grant in seconds; unused tokens are returned to this second
    reason: HoldReason = "provider_rate"
    attempt_times: tuple[int, ...] = ()  # next attempt time of each message that got no token
    rate: float = 0.0


class RateRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A temporary refusal (4xx reply) because of the rate of messages."""

    attempted_at: int  # when the message was sent
    reply: str
    refused_at: int = 0  # 0: now
    closes_connection: bool = False
    open_connections: int | None = None  # connections that the process has open; None: the reply is not about them


class ProbeClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Request to send one message first after a pause."""

    is_critical: bool


class ConnectionRequest(msgspec.Struct, frozen=True, kw_only=True):
    wanted: int
    opened: int  # connections that the process has open now


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One access of a process to the shared state of a provider and source address."""

    key: ProviderKey
    limits: Limits
    tokens: TokenRequest | None = None
    refusals: tuple[RateRefusal, ...] = ()
    pause_ended_by: int = 0  # send time of the message whose reply ended a pause; 0: no pause ended
    probe: ProbeClaim | None = None
    connections: ConnectionRequest | None = None


class ExchangeResult(msgspec.Struct, frozen=True, kw_only=True):
    grant: TokenGrant | None = None
    connections: int = 0  # connections that the process may open
    pause: Pause = Pause()
    probe_at: int | None = None  # when to claim the probe again; None: the process may send the message


def apply_exchange(
    state: ProviderState, exchange: Exchange, process: str, now: int
) -> tuple[ProviderState, ExchangeResult]:
    """Apply a process's exchange to the shared state; return the new state, and what the process is granted."""
    limits, pause, grant, connections, probe_at = exchange.limits, state.pause, None, 0, None
    for refusal in exchange.refusals:
        state = reduce_rate(state, limits.per_minute, refusal.attempted_at, refusal.reply, now)
        state = reduce_connections(state, limits.connections, refusal, process, now)
        refused_at = refusal.refused_at or now
        pause = begin_pause(pause, refusal.attempted_at, refused_at, closes_connection=refusal.closes_connection)
    if exchange.pause_ended_by:
        pause = end_pause(pause, exchange.pause_ended_by)
    if claim := exchange.probe:
        pause, probe_at = claim_probe(pause, process, now, is_critical=claim.is_critical)
    if exchange.tokens:
        state, grant = grant_tokens(state, limits, exchange.tokens, now)
    if request := exchange.connections:
        limit = current_connections(state, limits.connections, now)
        state, connections = lease_connections(state, limit, process, request.wanted, request.opened, now)
    state = replace(state, pause=pause)
    return state, ExchangeResult(grant=grant, connections=connections, pause=pause, probe_at=probe_at)


# -- warm-up -----------------------------------------------------------------------------------------------


def utc_day(now: int) -> int:
    """Return the number of the UTC day since 1970."""
    return now // DAY_MS


def warmup_starts_at(warmup: Warmup) -> int:
    return (datetime.date.fromisoformat(warmup.since).toordinal() - _EPOCH_DAY) * DAY_MS


def is_in_use(warmup: Warmup | None, now: int) -> bool:
    """Return whether the source address may be used: it may from the first day of its warm-up."""
    return warmup is None or now >= warmup_starts_at(warmup)


def daily_limit(warmup: Warmup | None, per_minute: int, now: int) -> int | None:
    """Return the limit of this UTC day; None after the warm-up.

    The limit grows geometrically from `start` on the first day to the volume of a day at the full rate on the last day.
    """
    if warmup is None:
        return None
    warmup_day = utc_day(now) - utc_day(warmup_starts_at(warmup))  # 0 on the first day
    if warmup_day >= warmup.days:
        return None
    if warmup_day < 0:
        return 0
    full = 24 * 60 * per_minute or FULL_DAILY_LIMIT
    if warmup.days == 1 or full <= warmup.start:
        return min(warmup.start, full)
    growth: float = (full / warmup.start) ** (warmup_day / (warmup.days - 1))
    return round(warmup.start * growth)


# -- rates -------------------------------------------------------------------------------------------------


def current_rate(state: ProviderState, per_minute: int, now: int) -> float:
    """Return the messages per minute that are permitted now; 0 without a configured rate."""
    if not state.reduced_at:
        return float(per_minute)
    steps = max(0, now - state.reduced_at) // QUIET_MS
    return min(float(per_minute), state.reduced_rate + steps * per_minute / RECOVERY_STEPS)


def to_provider_rate(key: ProviderKey, state: ProviderState, options: MxOptions, now: int) -> ProviderRate:
    limits, today = limits_of_source(options, key.provider, key.source), _with_day(state, now)
    return ProviderRate(
        key=key,
        per_minute=limits.per_minute,
        rate=current_rate(state, limits.per_minute, now),
        sent=today.sent,
        daily_limit=daily_limit(limits.warmup, limits.per_minute, now),
        deferrals=today.deferrals,
        last_reply=state.last_reply,
        last_reply_at=state.last_reply_at or None,
    )


def reduce_rate(state: ProviderState, per_minute: int, attempted_at: int, reply: str, now: int) -> ProviderState:
    """Return the state after the provider refused a message because it gets too many: the rate is halved.

    It is not halved again for a message that was attempted before the last reduction.
    """
    state = _with_day(state, now)
    anonymous_reply = _EMAIL_ADDRESS.sub("…", reply)[:REPLY_MAX]
    state = replace(state, deferrals=state.deferrals + 1, last_reply=anonymous_reply, last_reply_at=now)
    if not per_minute or attempted_at < state.reduced_at:
        return state
    return replace(state, reduced_rate=max(RATE_MIN, current_rate(state, per_minute, now) / 2), reduced_at=now)


def grant_tokens(
    state: ProviderState, limits: Limits, request: TokenRequest, now: int
) -> tuple[ProviderState, TokenGrant]:
    """Grant tokens; a message that gets none is assigned the time of its next attempt.

    In any minute at most the current rate is granted. Messages that were held before come first.
    """
    rate = current_rate(state, limits.per_minute, now)
    capacity, window_ms = max(1, int(rate)) if rate else None, _window_ms(rate)
    state = _count_request(_with_day(state, now), request, now, window_ms)
    day_limit = daily_limit(limits.warmup, limits.per_minute, now)
    left_in_window = None if capacity is None else capacity - sum(state.used.values())
    left_in_day = None if day_limit is None else day_limit - state.sent
    spread = _spread(state, rate, now)
    left_in_spread = spread and spread[0] - sum(
        count for at, count in state.used.items() if at * SLOT_MS > now - spread[1]
    )
    remainders = (left_in_window, left_in_day, left_in_spread)
    free = max(0, min((remainder for remainder in remainders if remainder is not None), default=UNLIMITED))
    returning = min(request.returning, free)
    reserved = int(capacity * RESERVED_SHARE) if capacity and state.backlog_until > now else 0
    fresh = max(0, min(request.fresh, free - returning - reserved))
    denied = request.returning + request.fresh - returning - fresh
    may_prefetch = capacity and returning + fresh and not denied and not reserved
    prefetched = min((capacity or 0) // PREFETCH_DIVISOR, (free - returning - fresh) // 10) if may_prefetch else 0
    grant = TokenGrant(
        tokens=returning + fresh + prefetched, returning=returning, fresh=fresh, second=now // SLOT_MS, rate=rate
    )
    state = _count_grant(state, grant, is_limited=capacity is not None)
    if not denied:
        return state, grant
    if left_in_day is not None and left_in_day <= grant.tokens:
        free_at, grant = (utc_day(now) + 1) * DAY_MS, replace(grant, reason="warmup")
    else:
        free_at = _next_free_at(state.used, capacity or 1, window_ms, now)
        if spread:
            free_at = max(free_at, _next_free_at(state.used, *spread, now))
    state, attempt_times = _next_attempt_times(
        state, limits, denied, max(state.backlog_until, free_at), request.reserves_attempt_times
    )
    return state, replace(grant, attempt_times=attempt_times)


def _window_ms(rate: float) -> int:
    """Return how long a granted token counts toward the rate: a minute, or longer if the rate is below one per minute.

    0 without a limit.
    """
    return int(MINUTE_MS * max(1.0, 1 / rate)) + SLOT_MS + TOKEN_VALID_MS if rate else 0


def _count_grant(state: ProviderState, grant: TokenGrant, *, is_limited: bool) -> ProviderState:
    if not grant.tokens:
        return state
    used = {**state.used, grant.second: state.used.get(grant.second, 0) + grant.tokens} if is_limited else state.used
    return replace(state, used=used, sent=state.sent + grant.tokens)


def _next_attempt_times(
    state: ProviderState, limits: Limits, count: int, start: int, reserves_attempt_times: bool
) -> tuple[ProviderState, tuple[int, ...]]:
    """Return the next attempt times, from `start` on, of messages that got no token.

    The times are spaced by the rate at that time if nothing is refused until then. `reserves_attempt_times`:
    later messages get later times.
    """
    attempt_times, at = list[int](), float(start)
    for _ in range(count):
        attempt_times.append(int(at))
        rate = current_rate(state, limits.per_minute, int(at)) or FULL_DAILY_LIMIT / (DAY_MS / MINUTE_MS)
        at += MINUTE_MS / rate / BACKLOG_SPEEDUP
    if reserves_attempt_times:
        state = replace(state, backlog_until=int(at))
    return state, tuple(attempt_times)


def _with_day(state: ProviderState, now: int) -> ProviderState:
    """Return the state with the counts of the current UTC day."""
    return state if state.day >= utc_day(now) else replace(state, day=utc_day(now), sent=0, deferrals=0)


def _count_request(state: ProviderState, request: TokenRequest, now: int, window_ms: int) -> ProviderState:
    """Return the state updated by a process's token use.

    Messages sent without a token are added, unused tokens subtracted, and tokens outside the rate window removed.
    """
    used, second = dict(state.used), now // SLOT_MS
    if request.critical:
        used[second] = used.get(second, 0) + request.critical
    sent = state.sent + request.critical
    for granted_in, count in request.unused.items():
        used[granted_in] = max(0, used.get(granted_in, 0) - count)
        if utc_day(granted_in * SLOT_MS) == state.day:
            sent = max(0, sent - count)
    counted = {at: count for at, count in used.items() if count and window_ms and at * SLOT_MS + window_ms > now}
    return replace(state, used=counted, sent=sent)


def _spread(state: ProviderState, rate: float, now: int) -> tuple[int, int] | None:
    """Return (count, ms): at most `count` tokens may be granted within `ms`, which spreads them evenly over a minute.

    None if all tokens of a minute may be granted at once, because no message was refused in the last week.
    """
    if not rate or not state.reduced_at or now - state.reduced_at >= SPREAD_MS:
        return None
    count = max(1, int(rate * SLOT_MS / MINUTE_MS))
    return count, int(count * MINUTE_MS / rate)


def _next_free_at(used: Mapping[int, int], capacity: int, window_ms: int, now: int) -> int:
    """Return when the next token becomes free if `capacity` tokens may be granted in any `window_ms`."""
    surplus = sum(count for second, count in used.items() if second * SLOT_MS + window_ms > now) - capacity
    for second, count in sorted(used.items()):
        if second * SLOT_MS + window_ms <= now:
            continue
        surplus -= count
        if surplus < 0:
            return max(now, second * SLOT_MS + window_ms)
    return now + SLOT_MS


# -- connections -------------------------------------------------------------------------------------------


def current_connections(state: ProviderState, limit: int, now: int) -> int:
    """Return how many connections may be open now; `limit` is the configured limit."""
    return min(limit, state.connection_limit) if now < _connections_reduced_until(state) else limit


def _connections_reduced_until(state: ProviderState) -> int:
    if not state.connections_reduced_at:
        return 0
    duration_ms = CONNECTIONS_REDUCED_MS << min(state.connection_reductions - 1, 10)
    return state.connections_reduced_at + min(duration_ms, CONNECTIONS_REDUCED_MAX_MS)


def reduce_connections(state: ProviderState, limit: int, refusal: RateRefusal, process: str, now: int) -> ProviderState:
    """Return the state after a refusal because of too many connections: as many are permitted as are open now.

    At most halves the limit, because a provider may also refuse for the connections of all its clients. The limit stays
    reduced for longer if the provider refuses again soon after it was raised.
    """
    if refusal.open_connections is None or not limit:
        return state
    opened = refusal.open_connections + sum(
        lease.opened for name, lease in state.connections.items() if lease.until > now and name != process
    )
    current, reduced_until = current_connections(state, limit, now), _connections_reduced_until(state)
    reductions = state.connection_reductions
    if now >= reduced_until:
        reductions = reductions + 1 if now < reduced_until + DAY_MS else 1
    return replace(
        state,
        connection_limit=max(1, min(current, max(opened, current // 2))),
        connections_reduced_at=now,
        connection_reductions=reductions,
    )


def lease_connections(
    state: ProviderState, limit: int, process: str, wanted: int, opened: int, now: int
) -> tuple[ProviderState, int]:
    """Return how many connections the process may open until its lease ends; `wanted` = 0 ends the lease.

    Processes that request connections share the limit evenly. `opened`: connections that the process still has open.
    """
    leases = {name: lease for name, lease in state.connections.items() if lease.until > now and name != process}
    if not wanted and not opened:
        return replace(state, connections=leases), 0
    free = max(0, limit - sum(lease.count for lease in leases.values()))
    share = max(1, limit // (1 + sum(1 for lease in leases.values() if lease.wanted)))
    is_scarce = any(lease.count < min(lease.wanted, share) for lease in leases.values())
    count = min(wanted, free, share) if is_scarce else min(wanted, free)
    lease = ConnectionLease(max(count, opened), wanted, now + CONNECTION_LEASE_MS, opened)
    return replace(state, connections=leases | {process: lease}), count
