"""Ids of a clock: unique, ordered, and with their time, however many are generated in a millisecond."""

import threading

import pytest

from heliograph.domain.ids import ulid_ms
from heliograph.runtime.clock import Clock


class Still(Clock):
    """A clock that stays at one millisecond."""

    def now(self) -> int:
        return 1_763_200_000_000


@pytest.mark.parametrize("clock", [Still(), Clock()], ids=["one millisecond", "as time passes"])
def test_new_ids_increase(clock: Clock) -> None:
    created = [clock.new_id("eml_") for _ in range(5000)]
    assert created == sorted(set(created))
    assert {len(id_) for id_ in created} == {30}


def test_new_ids_contain_their_time() -> None:
    """Steps of up to 32 random bits exhaust 40 bits after some 500 ids; then the next millisecond is used."""
    clock = Still()
    times = [ulid_ms(clock.new_id("eml_")[4:]) for _ in range(5000)]
    assert times[0] == clock.now()
    assert times[-1] - times[0] < 100


def test_another_thread_makes_no_id_in_the_middle_of_one() -> None:
    """The event loop and the writer thread generate ids concurrently; they once shared random numbers."""
    created: list[str] = []

    class Switched(Clock):
        """A clock with which the interpreter switches threads in the middle of an id."""

        other: threading.Thread | None = None

        def now(self) -> int:
            if self.other is None:
                self.other = threading.Thread(target=lambda: created.append(self.new_id("evt_")))
                self.other.start()
                self.other.join(0.1)
            return 1_763_200_000_000

    clock = Switched()
    clock._pool = [1, 2, 3, 4, 5]
    created.append(clock.new_id("eml_"))
    assert clock.other
    clock.other.join()
    assert [id_[:4] for id_ in created] == ["eml_", "evt_"] and created[0][4:] < created[1][4:]
