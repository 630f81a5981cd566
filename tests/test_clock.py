"""Ids of a clock: unique, in order and of their time, however many are made in a millisecond."""

import pytest

from heliograph.rules.ids import ulid_ms
from heliograph.runtime.clock import Clock


class Still(Clock):
    """Stands still at one millisecond."""

    def now(self) -> int:
        return 1_763_200_000_000


@pytest.mark.parametrize("clock", [Still(), Clock()], ids=["one millisecond", "as time passes"])
def test_ids_increase(clock: Clock) -> None:
    made = [clock.new_id("eml_") for _ in range(5000)]
    assert made == sorted(set(made))
    assert {len(id_) for id_ in made} == {30}


def test_ids_have_their_time() -> None:
    """Steps of up to 32 random bits fill 40 after some five hundred: then the next millisecond begins."""
    clock = Still()
    times = [ulid_ms(clock.new_id("eml_")[4:]) for _ in range(5000)]
    assert times[0] == clock.now()
    assert times[-1] - times[0] < 100
