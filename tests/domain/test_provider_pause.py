"""Pause after a provider's refusal: its length, its end, and which process sends first."""

from heliograph.domain.delivery.provider_pause import (
    MEMORY_MS,
    PROBE_LEASE_MS,
    PROBE_WAIT_MS,
    REPEATED_PAUSE_MS,
    Pause,
    begin_pause,
    claim_probe,
    end_pause,
)

NOON = 1_796_126_400_000


def paused(
    pause: Pause | None = None, attempted_at: int = NOON - 500, now: int = NOON, *, closes: bool = False
) -> Pause:
    return begin_pause(pause or Pause(), attempted_at, now, closes_connection=closes)


def test_messages_under_way_neither_lengthen_nor_end_the_pause() -> None:
    pause = paused()
    assert paused(pause, NOON - 300, NOON + 100).until == NOON + 100 + PROBE_WAIT_MS
    assert end_pause(pause, NOON - 300) == pause
    assert paused(pause, NOON + 1000, NOON + 1500).until == NOON + 1500 + REPEATED_PAUSE_MS
    assert end_pause(pause, NOON + 1000) == Pause(refused_at=NOON)


def test_a_refusal_that_is_reported_late_does_not_shorten_the_pause() -> None:
    pause = paused(closes=True)
    late = paused(pause, NOON - 2000, NOON - 1000)
    assert (late.refused_at, late.until, late.critical_until) == (NOON, pause.until, pause.critical_until)


def test_one_process_sends_first_and_another_one_if_that_does_not_end() -> None:
    pause, now = paused(), NOON + PROBE_WAIT_MS
    assert claim_probe(pause, "a", NOON, is_critical=False) == (pause, now)
    pause, wait_until = claim_probe(pause, "a", now, is_critical=False)
    assert wait_until is None
    assert claim_probe(pause, "b", now, is_critical=True)[1] == now + PROBE_WAIT_MS
    assert claim_probe(pause, "a", now, is_critical=True)[1] is None
    assert claim_probe(pause, "b", now + PROBE_LEASE_MS, is_critical=False)[1] is None
    assert claim_probe(end_pause(pause, now), "b", now, is_critical=False)[1] is None


def test_critical_messages_wait_at_least_a_minute_after_each_421() -> None:
    pause, now = Pause(), NOON
    for expected in [(60, 60), (60, 60), (120, 60), (240, 64), (480, 256), (600, 600)]:
        pause = paused(pause, now, now, closes=True)
        assert waits(pause) == expected
        now = pause.until


def test_the_next_pause_begins_one_step_below_the_last_for_a_week() -> None:
    pause, now = Pause(), NOON
    for _ in range(5):
        pause = paused(pause, now, now)
        now = pause.until
    assert waits(pause) == (480, 256)
    assert waits(paused(end_pause(pause, now), now + 1000, now + 1000)) == (240, 64)
    for expected in [(240, 64), (120, 16), (60, 4), (1, 1), (1, 1)]:  # the first message after each pause is accepted
        pause = paused(end_pause(pause, now), now + 1000, now + 1000)
        assert waits(pause) == expected
        now = pause.until
    pause = Pause(refused_at=NOON, refusals=5)
    assert waits(paused(pause, NOON + MEMORY_MS - 1, NOON + MEMORY_MS - 1)) == (600, 600)
    assert waits(paused(pause, NOON + MEMORY_MS, NOON + MEMORY_MS)) == (1, 1)


def waits(pause: Pause) -> tuple[int, int]:
    """Return the seconds that other and critical messages wait after the last refusal."""
    return (pause.until - pause.refused_at) // 1000, (pause.critical_until - pause.refused_at) // 1000
