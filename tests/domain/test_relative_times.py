import pytest

from heliograph.domain.sending.relative_times import resolve_relative_time

NOW = 1_794_735_000_000  # 2026-11-15T09:30:00Z


@pytest.mark.parametrize(
    ("words", "time"),
    [
        ("in 1 min", "2026-11-15T09:31:00.000Z"),
        ("in a minute", "2026-11-15T09:31:00.000Z"),
        ("In 90 seconds", "2026-11-15T09:31:30.000Z"),
        ("in an hour", "2026-11-15T10:30:00.000Z"),
        ("in  2 hours", "2026-11-15T11:30:00.000Z"),
        ("in 3 days", "2026-11-18T09:30:00.000Z"),
        ("in 1 week", "2026-11-22T09:30:00.000Z"),
        ("2026-11-15T10:00:00Z", "2026-11-15T10:00:00Z"),
        ("tomorrow at 9am", "tomorrow at 9am"),
        ("in 1 month", "in 1 month"),
        ("in -1 min", "in -1 min"),
        ("in 9999 weeks", "2218-07-05T09:30:00.000Z"),
        ("in 10000 weeks", "in 10000 weeks"),
        ("in 1 min or so", "in 1 min or so"),
    ],
)
def test_relative_time_is_resolved(words: str, time: str) -> None:
    assert resolve_relative_time(words, NOW) == time
