"""When a deferred message is attempted again."""

from itertools import pairwise

import pytest

from heliograph.domain.delivery.retry import hold_until, next_attempt
from heliograph.domain.setup.records import Channel

S, M, H, D = 1000, 60_000, 3_600_000, 86_400_000
FIRST = 1_793_491_200_000
EMAIL = [1 * M, 5 * M, 15 * M, 30 * M, 1 * H, 2 * H, 4 * H]
PHONE = [2 * S, 10 * S, 30 * S, 2 * M, 10 * M]


@pytest.mark.parametrize(("channel", "steps"), [("email", EMAIL), ("sms", PHONE), ("whatsapp", PHONE)])
def test_retry_steps_follow_the_schedule_of_the_channel(channel: Channel, steps: list[int]) -> None:
    for attempt, step in enumerate(steps, start=1):
        now = FIRST + attempt
        assert next_attempt(channel, attempt, FIRST, now, 0.0) == now + step


def attempt_offsets(channel: Channel, jitter: float) -> list[int]:
    """Return the times of all attempts of a message that is always deferred at once, as ms after the first."""
    times = [FIRST]
    while (at := next_attempt(channel, len(times), FIRST, times[-1], jitter)) is not None:
        times.append(at)
    return [at - FIRST for at in times]


@pytest.mark.parametrize("jitter", [-1.0, 0.0, 1.0])
def test_email_is_retried_every_four_hours_for_five_days(jitter: float) -> None:
    times = attempt_offsets("email", jitter)
    assert 5 * D - 4.4 * H <= times[-1] <= 5 * D
    gaps = {later - earlier for earlier, later in pairwise(times[7:])}
    assert gaps == {round(4 * H * (1 + jitter / 10))}


@pytest.mark.parametrize("channel", ["sms", "whatsapp"])
def test_phone_message_has_five_retries_in_15_minutes(channel: Channel) -> None:
    assert attempt_offsets(channel, 0.0) == [0, 2 * S, 12 * S, 42 * S, 162 * S, 762 * S]
    assert attempt_offsets(channel, 1.0)[-1] <= 15 * M


@pytest.mark.parametrize(("jitter", "wait"), [(-1.0, 54_000), (-0.5, 57_000), (0.0, 60_000), (1.0, 66_000)])
def test_retry_jitter_is_at_most_a_tenth(jitter: float, wait: int) -> None:
    assert next_attempt("email", 1, FIRST, FIRST, jitter) == FIRST + wait


@pytest.mark.parametrize(
    ("now", "wish", "at"),
    [
        (0, 200, 200),
        (0, 0, 0),
        (0, -5, 0),
        (5 * M, 20 * M, 15 * M),  # cut to the window
        (15 * M - 1, 1, 15 * M),
        (15 * M, 1, None),
        (16 * M, 0, None),
    ],
)
def test_retry_after_of_the_carrier_replaces_the_step(now: int, wish: int, at: int | None) -> None:
    result = next_attempt("sms", 9, FIRST, FIRST + now, 1.0, retry_after_ms=wish)
    assert result == (None if at is None else FIRST + at)


def test_retry_window_is_inclusive() -> None:
    assert next_attempt("sms", 1, FIRST, FIRST + 15 * M - 2 * S, 0.0) == FIRST + 15 * M
    assert next_attempt("sms", 1, FIRST, FIRST + 15 * M - 2 * S + 1, 0.0) is None


def test_retry_attempt_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="from 1"):
        next_attempt("email", 0, FIRST, FIRST, 0.0)


@pytest.mark.parametrize(
    ("channel", "now", "until", "at"),
    [
        ("sms", 0, 5 * S, 5 * S),
        ("sms", 14 * M, 16 * M, 15 * M),  # cut to the window
        ("sms", 15 * M, 16 * M, None),
        ("email", 4 * 24 * 60 * M, 4 * 24 * 60 * M + M, 4 * 24 * 60 * M + M),
        ("email", 5 * 24 * 60 * M, 6 * 24 * 60 * M, None),
    ],
)
def test_hold_during_our_outage_has_the_retry_window(channel: Channel, now: int, until: int, at: int | None) -> None:
    result = hold_until(channel, FIRST, FIRST + now, FIRST + until)
    assert result == (None if at is None else FIRST + at)
