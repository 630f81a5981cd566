"""Whose turn it is among what is due: the most urgent's, and one in 20 each waiting priority's."""

from collections import Counter

import pytest

from heliograph.domain.delivery.lanes import (
    PRIORITIES,
    QUEUES,
    SOON_S,
    WINDOW_LEAST,
    next_window,
    queue_of,
    take_turns,
)
from heliograph.domain.setup.records import Priority

MANY = 1000


@pytest.mark.parametrize(
    ("waiting", "of_20"),
    [
        (("critical", "normal", "bulk"), {"critical": 18, "normal": 1, "bulk": 1}),
        (("critical", "bulk"), {"critical": 19, "bulk": 1}),
        (("critical", "normal"), {"critical": 19, "normal": 1}),
        (("normal", "bulk"), {"normal": 19, "bulk": 1}),
        (("bulk",), {"bulk": 20}),
        ((), {}),
    ],
)
def test_each_waiting_priority_gets_one_of_any_20(waiting: tuple[Priority, ...], of_20: dict[str, int]) -> None:
    for turn in range(40):
        assert Counter(take_turns(turn, 20, dict.fromkeys(waiting, MANY))) == of_20


def test_turns_go_on_from_claim_to_claim() -> None:
    waiting: dict[Priority, int] = dict.fromkeys(PRIORITIES, MANY)
    one_by_one = [taken for turn in range(100) for taken in take_turns(turn, 1, waiting)]
    assert one_by_one == take_turns(0, 100, waiting)


def test_what_one_leaves_over_goes_to_the_most_urgent() -> None:
    assert take_turns(0, 10, {"critical": 2, "normal": 1, "bulk": 1}) == ["critical", "critical", "normal", "bulk"]


def test_every_queue_is_of_one_lane_and_priority() -> None:
    assert [queue_of(lane, priority) for lane, priority in QUEUES.values()] == list(QUEUES)
    assert QUEUES["email"] == ("email", "normal")  # rows from before there were priorities


@pytest.mark.parametrize(
    ("window", "slots", "waited_s", "then"),
    [
        (20, 200, 0.0, 21),
        (20, 200, SOON_S, 21),
        (20, 200, 2 * SOON_S, 19),
        (200, 200, 0.0, 200),
        (WINDOW_LEAST, 200, 2 * SOON_S, WINDOW_LEAST),
        (2, 2, 2 * SOON_S, 2),
    ],
)
def test_as_much_is_claimed_as_gets_a_connection_soon(window: int, slots: int, waited_s: float, then: int) -> None:
    assert next_window(window, slots, waited_s) == then
