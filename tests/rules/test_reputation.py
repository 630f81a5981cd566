"""When a team's bounces and complaints warn, and when they pause it."""

import pytest

from heliograph.rules.limits import DAY_MS, HOUR_MS
from heliograph.rules.reputation import Hour, hour_of, judge, recent

NOW = 400 * DAY_MS


@pytest.mark.parametrize(
    ("sends", "bounces", "complaints", "standing"),
    [
        (0, 0, 0, "ok"),
        (199, 199, 199, "ok"),  # too few to mean anything
        (200, 0, 0, "ok"),
        (200, 9, 0, "ok"),
        (200, 10, 0, "warn"),  # 5 %
        (200, 19, 0, "warn"),
        (200, 20, 0, "pause"),  # 10 %
        (1000, 49, 0, "ok"),
        (1000, 50, 0, "warn"),
        (1000, 99, 0, "warn"),
        (1000, 100, 0, "pause"),
        (1001, 0, 1, "ok"),
        (1000, 0, 1, "warn"),  # 0.1 %
        (1000, 0, 4, "warn"),
        (1000, 0, 5, "pause"),  # 0.5 %
        (200, 0, 1, "pause"),
        (1000, 50, 5, "pause"),  # the worse of the two
        (10**18, 5 * 10**16 - 1, 0, "ok"),  # no rounding
    ],
)
def test_the_rates(sends: int, bounces: int, complaints: int, standing: str) -> None:
    assert judge(sends, bounces, complaints) == standing


def test_the_window_is_the_newest_thousand_sends() -> None:
    hours = [Hour(at=NOW - n * HOUR_MS, sends=400, bounces=n) for n in range(1, 10)]
    assert recent(hours, NOW) == Hour(at=NOW - 3 * HOUR_MS, sends=1200, bounces=1 + 2 + 3)


def test_the_window_ends_after_seven_days() -> None:
    inside, outside = Hour(at=NOW - 7 * DAY_MS, sends=3), Hour(at=NOW - 7 * DAY_MS - 1, sends=500, complaints=9)
    assert recent([outside, inside], NOW) == inside
    assert recent([outside], NOW) == Hour(at=NOW)


def test_a_resumed_team_starts_anew() -> None:
    bad, good = Hour(at=NOW - 2 * HOUR_MS, sends=300, bounces=300), Hour(at=NOW - HOUR_MS, sends=10, complaints=1)
    assert recent([bad, good], NOW, resumed_at=NOW - HOUR_MS) == good


def test_an_hour_begins_at_its_full_hour() -> None:
    assert [hour_of(at) for at in (0, HOUR_MS - 1, HOUR_MS, NOW + 5)] == [0, 0, HOUR_MS, NOW]
