"""Rates per mailbox provider: tokens, reduction and recovery, warm-up, shares of connections."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.domain.delivery.provider_rates import (
    CONNECTION_LEASE_MS,
    QUIET_MS,
    RATE_MIN,
    Limits,
    ProviderState,
    RateRefusal,
    TokenRequest,
    current_connections,
    current_rate,
    daily_limit,
    grant_tokens,
    is_in_use,
    lease_connections,
    reduce_connections,
    reduce_rate,
)
from heliograph.domain.limits import DAY_MS, HOUR_MS, MINUTE_MS
from heliograph.domain.setup.source_options import Warmup

NOON = 1_796_126_400_000 // DAY_MS * DAY_MS + 12 * HOUR_MS
FROM = "2026-12-01"
FIRST_DAY = 1_796_083_200_000  # 2026-12-01 UTC


def granted(state: ProviderState, limits: Limits, now: int, **request: int) -> tuple[ProviderState, int]:
    state, grant = grant_tokens(state, limits, TokenRequest(**request), now)  # type: ignore[arg-type]
    return state, grant.tokens


# -- tokens ------------------------------------------------------------------------------------------------


@given(
    per_minute=st.integers(1, 300),
    requests=st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=60
    ),
)
def test_no_minute_has_more_tokens_than_the_rate(per_minute: int, requests: list[tuple[int, int, int]]) -> None:
    state, now, limits = ProviderState(), NOON, Limits(per_minute=per_minute)
    grants: list[tuple[int, int]] = []
    for pause_ms, fresh, returning in requests:
        now += pause_ms
        state, tokens = granted(state, limits, now, fresh=fresh, returning=returning)
        grants.append((now, tokens))
    for start, _ in grants:
        assert sum(tokens for at, tokens in grants if start <= at < start + MINUTE_MS) <= per_minute


@given(st.integers(1, 300), st.integers(0, 400), st.integers(0, 400))
def test_every_message_gets_a_token_or_a_time_to_return(per_minute: int, fresh: int, returning: int) -> None:
    request = TokenRequest(fresh=fresh, returning=returning)
    _, grant = grant_tokens(ProviderState(), Limits(per_minute=per_minute), request, NOON)
    assert grant.fresh + grant.returning + len(grant.attempt_times) == fresh + returning
    assert grant.fresh + grant.returning <= grant.tokens <= per_minute
    assert all(at >= NOON + MINUTE_MS for at in grant.attempt_times)
    assert list(grant.attempt_times) == sorted(grant.attempt_times)


def test_messages_that_waited_come_first() -> None:
    request = TokenRequest(fresh=5, returning=5)
    _, grant = grant_tokens(ProviderState(), Limits(per_minute=7), request, NOON)
    assert (grant.returning, grant.fresh) == (5, 2)


def test_new_messages_leave_room_while_others_wait() -> None:
    limits = Limits(per_minute=100)
    state, _ = granted(ProviderState(), limits, NOON, fresh=300)
    state, tokens = granted(state, limits, NOON + 63_000, fresh=100)
    assert tokens == 80
    assert granted(state, limits, NOON + 63_000, returning=100)[1] == 20


def test_a_backlog_is_sent_at_the_rate() -> None:
    """A thousand messages at a hundred a minute: each returns when it is told to, or is new."""
    limits, state, now = Limits(per_minute=100), ProviderState(), NOON
    waiting = Counter({NOON: 1000})
    sent: list[int] = []
    attempts = 0
    while waiting:
        now = min(waiting)
        count = waiting.pop(now)
        attempts += count
        kind = {"fresh": count} if now == NOON else {"returning": count}
        state, grant = grant_tokens(state, limits, TokenRequest(**kind), now)  # type: ignore[arg-type]
        sent += [now] * (count - len(grant.attempt_times))
        waiting.update(grant.attempt_times)
        unused = grant.tokens - grant.fresh - grant.returning
        state, _ = grant_tokens(state, limits, TokenRequest(unused={grant.second: unused}), now)
    assert sent[-1] - NOON < 10.5 * MINUTE_MS
    assert attempts < 1000 + 1.1 * 900  # the first attempts, and hardly more than one return of each


def test_critical_messages_count_and_may_exceed_the_rate() -> None:
    limits = Limits(per_minute=10)
    state, tokens = granted(ProviderState(), limits, NOON, fresh=1, critical=15)
    assert tokens == 0
    assert sum(state.used.values()) == 15
    assert granted(state, limits, NOON + 63_000, fresh=1)[1] == 1


def test_unused_tokens_are_given_back() -> None:
    limits = Limits(per_minute=600)
    state, grant = grant_tokens(ProviderState(), limits, TokenRequest(fresh=1), NOON)
    assert grant.tokens == 11
    state, _ = grant_tokens(state, limits, TokenRequest(unused={grant.second: 10}), NOON + 2000)
    assert (sum(state.used.values()), state.sent) == (1, 1)


# -- reduction ---------------------------------------------------------------------------------------------


def test_a_refusal_halves_the_rate_for_ten_minutes_and_it_recovers_by_tenths() -> None:
    state = reduce_rate(ProviderState(), 600, NOON, "421 too many messages", NOON)
    assert current_rate(state, 600, NOON + QUIET_MS - 1) == 300
    assert [current_rate(state, 600, NOON + QUIET_MS * steps) for steps in range(7)] == [
        *(300, 360, 420, 480, 540, 600, 600)
    ]


def test_for_a_week_after_a_refusal_the_tokens_of_a_minute_are_spread_over_it() -> None:
    state, limits = reduce_rate(ProviderState(), 600, NOON, "slow down", NOON), Limits(per_minute=600)
    assert granted(state, limits, NOON, fresh=50)[1] == 5
    assert granted(state, limits, NOON + 7 * DAY_MS - 1, fresh=50)[1] == 10
    assert granted(state, limits, NOON + 7 * DAY_MS, fresh=50)[1] >= 50


@given(st.integers(1, 2000), st.integers(0, HOUR_MS))
def test_a_backlog_after_a_refusal_returns_at_the_recovering_rate(per_minute: int, later_ms: int) -> None:
    limits, now = Limits(per_minute=per_minute), NOON + later_ms
    state = reduce_rate(ProviderState(), per_minute, NOON, "slow down", NOON)
    _, grant = grant_tokens(state, limits, TokenRequest(fresh=per_minute), now)
    for at, after in itertools.pairwise(grant.attempt_times):
        assert (after - at) * current_rate(state, per_minute, at) == pytest.approx(MINUTE_MS / 1.05, rel=0.1, abs=2000)


def test_a_second_refusal_halves_only_if_it_was_attempted_after_the_first() -> None:
    state = reduce_rate(ProviderState(), 600, NOON - 1000, "slow down", NOON)
    state = reduce_rate(state, 600, NOON - 1000, "slow down", NOON + 500)
    assert current_rate(state, 600, NOON + 500) == 300
    state = reduce_rate(state, 600, NOON + 600, "slow down", NOON + 900)
    assert current_rate(state, 600, NOON + 900) == 150
    assert state.deferrals == 3


def test_the_kept_reply_has_no_address() -> None:
    state = reduce_rate(ProviderState(), 600, NOON, "450 <ada@example.com> receives too much, bob@x.test", NOON)
    assert state.last_reply == "450 <…> receives too much, …"


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.integers(0, 3 * HOUR_MS), st.booleans()), max_size=40),
)
def test_the_rate_never_exceeds_the_configured_one_nor_stays_reduced(
    per_minute: int, steps: list[tuple[int, bool]]
) -> None:
    state, now = ProviderState(), NOON
    for pause_ms, is_refused in steps:
        before = current_rate(state, per_minute, now)
        now += pause_ms
        rate = current_rate(state, per_minute, now)
        assert before <= rate <= per_minute
        if is_refused:
            state = reduce_rate(state, per_minute, now, "slow down", now)
            assert RATE_MIN <= current_rate(state, per_minute, now) <= max(RATE_MIN, rate / 2)
    assert current_rate(state, per_minute, now + 10 * QUIET_MS) == per_minute


# -- warm-up -----------------------------------------------------------------------------------------------


def test_a_warm_up_grows_from_its_start_to_a_day_at_the_full_rate() -> None:
    warmup = Warmup(since=FROM, days=30, start=50)
    limits = [daily_limit(warmup, 600, FIRST_DAY + day * DAY_MS) for day in range(-1, 31)]
    assert (limits[0], limits[1], limits[30], limits[31]) == (0, 50, 1440 * 600, None)
    assert not is_in_use(warmup, FIRST_DAY - 1)
    assert is_in_use(warmup, FIRST_DAY)
    assert daily_limit(warmup, 0, FIRST_DAY + 29 * DAY_MS) == 10_000


@given(st.integers(2, 365), st.integers(1, 1000), st.integers(1, 10_000))
def test_a_warm_up_grows_geometrically(days: int, start: int, per_minute: int) -> None:
    warmup = Warmup(since=FROM, days=days, start=start)
    limits = [daily_limit(warmup, per_minute, FIRST_DAY + day * DAY_MS) or 0 for day in range(days)]
    assert limits == sorted(limits)
    assert (limits[0], limits[-1]) == (start, 1440 * per_minute)
    factor = (1440 * per_minute / start) ** (1 / (days - 1))
    assert all(abs(after - before * factor) <= 1 + factor for before, after in itertools.pairwise(limits))


def test_above_the_daily_limit_messages_wait_for_the_next_day() -> None:
    limits = Limits(per_minute=600, warmup=Warmup(since=FROM, days=30, start=50))
    state, grant = grant_tokens(ProviderState(), limits, TokenRequest(fresh=60), FIRST_DAY + HOUR_MS)
    assert (grant.tokens, grant.reason, len(grant.attempt_times)) == (50, "warmup", 10)
    assert grant.attempt_times[0] == FIRST_DAY + DAY_MS
    second_day = FIRST_DAY + DAY_MS + HOUR_MS
    assert granted(state, limits, second_day, returning=1000)[1] == daily_limit(limits.warmup, 600, second_day)


def test_unused_tokens_of_yesterday_do_not_count_today() -> None:
    limits = Limits(warmup=Warmup(since=FROM, days=30, start=50))
    state, grant = grant_tokens(ProviderState(), limits, TokenRequest(fresh=10), FIRST_DAY + DAY_MS - 100)
    state, _ = grant_tokens(state, limits, TokenRequest(fresh=2, unused={grant.second: 5}), FIRST_DAY + DAY_MS + 100)
    assert state.sent == 2


# -- connections -------------------------------------------------------------------------------------------


def test_processes_share_the_connections_evenly() -> None:
    state, first = lease_connections(ProviderState(), 10, "a", 10, 0, NOON)
    state, second = lease_connections(state, 10, "b", 10, 0, NOON)
    assert (first, second) == (10, 0)
    state, first = lease_connections(state, 10, "a", 10, 8, NOON)  # eight are still open
    state, second = lease_connections(state, 10, "b", 10, 0, NOON)
    assert (first, second) == (5, 2)
    state, first = lease_connections(state, 10, "a", 10, 5, NOON)
    state, second = lease_connections(state, 10, "b", 10, 2, NOON)
    assert (first, second) == (5, 5)


def test_connections_of_a_dead_process_are_free_after_its_lease() -> None:
    state, _ = lease_connections(ProviderState(), 10, "a", 10, 0, NOON)
    assert lease_connections(state, 10, "b", 10, 0, NOON + CONNECTION_LEASE_MS - 1)[1] == 0
    assert lease_connections(state, 10, "b", 10, 0, NOON + CONNECTION_LEASE_MS)[1] == 10


@pytest.mark.parametrize("limit", [1, 3])
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5)), max_size=30))
def test_all_processes_together_never_exceed_the_limit(limit: int, requests: list[tuple[str, int]]) -> None:
    state, opened = ProviderState(), Counter[str]()
    for process, wanted in requests:
        state, count = lease_connections(state, limit, process, wanted, opened[process], NOON)
        opened[process] = count  # opens and closes as many as it may
        assert opened.total() <= limit


def refused_connection(state: ProviderState, opened: int, now: int, limit: int = 10) -> ProviderState:
    refusal = RateRefusal(attempted_at=now, reply="421 Too many connections", open_connections=opened)
    return reduce_connections(state, limit, refusal, "a", now)


def test_a_refused_connection_limits_them_to_those_open_in_all_processes() -> None:
    state, _ = lease_connections(ProviderState(), 10, "b", 4, 2, NOON)
    state = refused_connection(state, 5, NOON)
    assert current_connections(state, 10, NOON) == 7
    assert current_connections(state, 6, NOON) == 6  # configured since


def test_one_refusal_at_most_halves_the_connections() -> None:
    state, limits = ProviderState(), list[int]()
    for _ in range(5):
        state = refused_connection(state, 0, NOON)
        limits.append(current_connections(state, 10, NOON))
    assert limits == [5, 2, 1, 1, 1]


def test_reduced_connections_last_an_hour_and_longer_if_refused_again_afterwards() -> None:
    state, now, hours = ProviderState(), NOON, list[int]()
    for _ in range(7):
        state = refused_connection(refused_connection(state, 8, now), 8, now)
        begin = now
        while current_connections(state, 10, now) < 10:
            now += HOUR_MS
        hours.append((now - begin) // HOUR_MS)
    assert hours == [1, 2, 4, 8, 16, 24, 24]
    state = refused_connection(state, 8, now + DAY_MS)
    assert current_connections(state, 10, now + DAY_MS + HOUR_MS) == 10


def test_a_refusal_of_messages_leaves_the_connections() -> None:
    refusal = RateRefusal(attempted_at=NOON, reply="421 slow down")
    assert reduce_connections(ProviderState(), 10, refusal, "a", NOON) == ProviderState()
