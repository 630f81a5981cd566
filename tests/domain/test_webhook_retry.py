"""The meaning of an endpoint's response, and when an event is sent again."""

from itertools import pairwise

import pytest

from heliograph.webhooks.policy.retry import (
    FAILING_DAYS,
    Verdict,
    classify_response,
    has_failed_too_long,
    next_attempt,
    retry_after_s,
)

S, M, H, D = 1000, 60_000, 3_600_000, 86_400_000
FIRST = 1_793_491_200_000
STEPS = [5 * S, 5 * M, 30 * M, 2 * H, 5 * H, 10 * H, 14 * H, 20 * H, 24 * H]  # contract 10
DATE = "Sun, 15 Nov 2026 09:30:00 GMT"


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        *((status, "delivered") for status in (200, 201, 202, 204, 206, 299)),
        *(
            (status, "failed")
            for status in (None, 100, 101, 199, 300, 301, 302, 307, 308, 400, 401, 404, 408, 409, 411)
        ),
        *((status, "failed") for status in (422, 429, 500, 502, 503, 504, 599)),
        (410, "gone"),
    ],
)
def test_webhook_response_status_is_classified(status: int | None, meaning: Verdict) -> None:
    assert classify_response(status) == meaning


@pytest.mark.parametrize(
    ("status", "value", "date", "seconds"),
    [
        (429, "7", None, 7),
        (503, "120", None, 120),
        (429, "0", None, 0),
        (429, "9" * 4000, None, 999_999_999),
        (429, "Sun, 15 Nov 2026 09:31:30 GMT", DATE, 90),
        (429, "Sunday, 15-Nov-26 09:31:30 GMT", DATE, 90),
        (429, "Sun, 15 Nov 2026 09:29:00 GMT", DATE, 0),
        (429, "Sun, 15 Nov 2026 09:31:30 GMT", None, None),  # no Date header to compare with
        (429, "Sun, 15 Nov 2026 09:31:30 -0000", DATE, 90),
        *((429, value, DATE, None) for value in (None, "", "-1", "1.5", "+3", "soon", "٣", "7 s", "1e3")),
        *((status, "7", None, None) for status in (200, 302, 404, 410, 500)),
    ],
)
def test_webhook_retry_after_header_is_parsed(
    status: int, value: str | None, date: str | None, seconds: int | None
) -> None:
    assert retry_after_s(status, value, date) == seconds


def attempt_offsets(jitter: float, retry_after: int | None = None) -> list[int]:
    """Return the times of all attempts of an event that always fails at once, as ms after the first."""
    times = [FIRST]
    while (attempt_at := next_attempt(len(times), FIRST, times[-1], jitter, retry_after)) is not None:
        times.append(attempt_at)
    return [attempt_at - FIRST for attempt_at in times]


@pytest.mark.parametrize("jitter", [-1.0, -0.5, 0.0, 1.0])
def test_webhook_has_ten_attempts_within_three_days(jitter: float) -> None:
    waits = [later - earlier for earlier, later in pairwise(attempt_offsets(jitter))]
    assert waits == [round(step * (1 + jitter / 5)) for step in STEPS]


@pytest.mark.parametrize("attempt", range(1, 10))
@pytest.mark.parametrize(("wish", "wait"), [(0, 0), (7, 7 * S), (3600, H), (86_400, D), (86_401, D), (10**9, D)])
def test_retry_after_replaces_the_step_up_to_a_day(attempt: int, wish: int, wait: int) -> None:
    assert next_attempt(attempt, FIRST, FIRST + 9, 1.0, wish) == FIRST + 9 + wait


def test_short_retry_after_delays_do_not_shorten_the_three_days() -> None:
    assert attempt_offsets(0.0, 1) == [*(n * S for n in range(10)), 9 * S + D, 9 * S + 2 * D, 9 * S + 3 * D]
    assert attempt_offsets(-1.0, 86_400)[-1] == 10 * D - D  # long Retry-After delays: still ten attempts


def test_webhook_attempt_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="from 1"):
        next_attempt(0, FIRST, FIRST, 0.0)


def test_webhook_is_disabled_after_five_days_of_failures() -> None:
    assert FAILING_DAYS == 5
    assert not has_failed_too_long(FIRST, FIRST + 5 * D - 1)
    assert has_failed_too_long(FIRST, FIRST + 5 * D)
