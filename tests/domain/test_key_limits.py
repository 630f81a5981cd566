"""Limits of restricted keys: rolling windows that are never exceeded, shared counts, and returned spend."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.limits import DAY_MS, HOUR_MS, SECOND_MS
from heliograph.domain.refusals import KeyLimitReached
from heliograph.domain.sending import key_limits
from heliograph.domain.sending.key_limits import USES_MAX, count_use, limit_states, refund_spend
from heliograph.domain.sending.pricing import Account
from heliograph.domain.setup.records import Key, KeyRestrictions

NOW = 1_794_735_000_000


def account() -> Account:
    return Account(team=1, available=0, held=0, month="", used=0)


def key(id_: Any = "k", counts_as: Any = "", **restrictions: Any) -> Key:
    limits = KeyRestrictions(**restrictions)
    return Key(id=id_, team="team_a", name="k", hash="", restrictions=limits, counts_as=counts_as)


def refused(team: Account, limited: Key, recipients: int = 1, spend: int = 0, now: int = NOW) -> KeyLimitReached | None:
    """Count a send; return the refusal, which must have changed nothing."""
    before = team.key_uses
    try:
        count_use(team, limited, recipients, spend, now)
    except KeyLimitReached as refusal:
        assert team.key_uses == before
        return refusal
    return None


@pytest.mark.parametrize(("name", "window"), [("per_hour", HOUR_MS), ("per_day", DAY_MS)])
def test_limit_is_reached_exactly_and_frees_with_the_oldest_use(name: str, window: int) -> None:
    team, limited = account(), key(**{name: 3})
    assert refused(team, limited, 2) is None
    assert refused(team, limited, 1, now=NOW + 5 * SECOND_MS) is None
    refusal = refused(team, limited, 1, now=NOW + 10 * SECOND_MS)
    assert refusal and refusal.details == {"limit": name}
    assert refusal.retry_after == window // SECOND_MS - 10
    assert refused(team, limited, 1, now=NOW + window - 1)
    assert refused(team, limited, 2, now=NOW + window) is None
    assert refused(team, limited, 1, now=NOW + window)


def test_retry_after_waits_until_enough_uses_have_left() -> None:
    team, limited = account(), key(per_hour=3)
    for second in range(3):
        count_use(team, limited, 1, 0, NOW + second * SECOND_MS)
    refusal = refused(team, limited, 2, now=NOW + 10 * SECOND_MS)
    assert refusal and refusal.retry_after == 3600 + 1 - 10
    never = refused(team, limited, 4, now=NOW + 10 * SECOND_MS)
    assert never and never.retry_after == 3600


def test_longest_wait_of_several_limits_is_returned() -> None:
    team, limited = account(), key(per_hour=1, per_day=1, spend_per_day=10)
    count_use(team, limited, 1, 10, NOW)
    refusal = refused(team, limited, 1, 1, now=NOW + HOUR_MS)
    assert refusal and refusal.retry_after == (DAY_MS - HOUR_MS) // SECOND_MS


@pytest.mark.parametrize("name", ["per_hour", "per_day", "spend_per_day"])
def test_limit_of_zero_permits_nothing(name: str) -> None:
    assert refused(account(), key(**{name: 0}), 1, 0)


def test_spend_limit_permits_free_messages_and_is_not_exceeded_by_a_cent() -> None:
    team, limited = account(), key(spend_per_day=100)
    assert refused(team, limited, 1, 60) is None
    assert refused(team, limited, 1, 41)
    assert refused(team, limited, 1, 40) is None
    assert refused(team, limited, 50, 0) is None
    assert refused(team, limited, 1, 1)


def test_failed_send_gives_back_its_spend_and_not_its_count() -> None:
    team, limited = account(), key(per_day=2, spend_per_day=100)
    count_use(team, limited, 1, 60, NOW)
    count_use(team, limited, 1, 40, NOW + 1)
    refund_spend(team, limited.id, NOW, 60)
    states = limit_states(team, limited, NOW + 2)
    assert (states["spend_per_day"].left, states["per_day"].left) == (60, 0)
    refund_spend(team, limited.id, NOW, -60)  # retried
    assert limit_states(team, limited, NOW + 2)["spend_per_day"].left == 0


def test_spend_of_a_send_that_was_not_counted_is_not_given_back() -> None:
    team, limited = account(), key(spend_per_day=100)
    count_use(team, limited, 1, 60, NOW)
    refund_spend(team, limited.id, NOW - 1, 60)
    refund_spend(team, "other", NOW, 60)
    assert limit_states(team, limited, NOW)["spend_per_day"].left == 40


def test_rotated_keys_share_one_count() -> None:
    team, old, new = account(), key("old", per_day=3), key("new", counts_as="old", per_day=3)
    count_use(team, old, 2, 0, NOW)
    count_use(team, new, 1, 0, NOW + 1)
    assert refused(team, old, now=NOW + 2) and refused(team, new, now=NOW + 2)
    assert limit_states(team, old, NOW) == limit_states(team, new, NOW)
    assert refused(team, key("other", per_day=3), now=NOW + 2) is None


def test_limit_state_has_the_rest_and_the_time_at_which_it_frees() -> None:
    team, limited = account(), key(per_hour=5, spend_per_day=100)
    assert limit_states(team, limited, NOW)["per_hour"].frees_at is None
    count_use(team, limited, 2, 30, NOW)
    states = limit_states(team, limited, NOW + 1)
    assert (states["per_hour"].left, states["per_hour"].frees_at) == (3, NOW + HOUR_MS)
    assert (states["spend_per_day"].left, states["spend_per_day"].frees_at) == (70, NOW + DAY_MS)
    assert limit_states(team, limited, NOW + HOUR_MS)["per_hour"].left == 5


def test_unrestricted_key_and_key_without_limits_are_not_counted() -> None:
    team = account()
    count_use(team, Key(id="k", team="team_a", name="k", hash=""), 1, 1, NOW)
    count_use(team, key(recipients=("*",)), 1, 1, NOW)
    assert team.key_uses == ""


def test_uses_older_than_a_day_are_removed() -> None:
    team, limited = account(), key(per_day=5)
    count_use(team, key("other", per_day=5), 1, 0, NOW)
    count_use(team, limited, 1, 0, NOW + 2 * DAY_MS)
    assert "other" not in team.key_uses


def test_uses_of_a_busy_key_stay_few_and_are_never_freed_early() -> None:
    team, limited = account(), key(per_day=10**9)
    times = [NOW + number * 20 * SECOND_MS for number in range(3 * USES_MAX)]
    for at in times:
        count_use(team, limited, 1, 0, at)
    assert team.key_uses.count("[") < USES_MAX + 5
    for now in (times[-1], times[-1] + HOUR_MS, NOW + DAY_MS):
        expected = sum(at > now - DAY_MS for at in times)
        assert expected <= 10**9 - limit_states(team, limited, now)["per_day"].left <= expected + 18


@settings(max_examples=60, database=None)
@given(
    st.lists(st.tuples(st.integers(0, 2 * HOUR_MS), st.integers(1, 5), st.integers(0, 50), st.booleans()), max_size=80),
    st.integers(1, 20),
    st.integers(1, 200),
)
def test_no_window_ever_exceeds_a_limit(steps: list[tuple[int, int, int, bool]], per_hour: int, spend: int) -> None:
    team, now, accepted = account(), NOW, list[tuple[int, int, int]]()
    tokens = [key("a", per_hour=per_hour, spend_per_day=spend), key("b", "a", per_hour=per_hour, spend_per_day=spend)]
    for wait, recipients, price, is_second in steps:
        now += wait
        if refused(team, tokens[is_second], recipients, price, now) is None:
            accepted.append((now, recipients, price))
        hour = sum(count for at, count, _ in accepted if at > now - HOUR_MS)
        day = sum(cost for at, _, cost in accepted if at > now - DAY_MS)
        assert hour <= per_hour and day <= spend


def test_windows_name_every_limit() -> None:
    assert key_limits.WINDOW_MS.keys() == key_limits.PERIODS.keys() <= set(KeyRestrictions.__struct_fields__)
