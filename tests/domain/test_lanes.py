"""Priority order of due messages: the most urgent first, but one in 20 for each waiting priority."""

from collections import Counter

import pytest

from heliograph.domain.delivery.lanes import (
    CONCURRENCY_MIN,
    CONNECTION_WAIT_MAX_S,
    LANE_AND_PRIORITY_BY_QUEUE,
    PRIORITIES,
    next_concurrency,
    queue_name,
    schedule_priorities,
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
        assert Counter(schedule_priorities(turn, 20, dict.fromkeys(waiting, MANY))) == of_20


def test_priority_rotation_continues_from_claim_to_claim() -> None:
    waiting: dict[Priority, int] = dict.fromkeys(PRIORITIES, MANY)
    one_by_one = [selected for turn in range(100) for selected in schedule_priorities(turn, 1, waiting)]
    assert one_by_one == schedule_priorities(0, 100, waiting)


def test_lane_share_left_over_goes_to_the_most_urgent() -> None:
    assert schedule_priorities(0, 10, {"critical": 2, "normal": 1, "bulk": 1}) == [
        "critical",
        "critical",
        "normal",
        "bulk",
    ]


def test_every_queue_is_of_one_lane_and_priority() -> None:
    assert [queue_name(lane, priority) for lane, priority in LANE_AND_PRIORITY_BY_QUEUE.values()] == list(
        LANE_AND_PRIORITY_BY_QUEUE
    )
    assert LANE_AND_PRIORITY_BY_QUEUE["email"] == ("email", "normal")  # rows older than priorities


@pytest.mark.parametrize(
    ("window", "slots", "waited_s", "then"),
    [
        (20, 200, 0.0, 21),
        (20, 200, CONNECTION_WAIT_MAX_S, 21),
        (20, 200, 2 * CONNECTION_WAIT_MAX_S, 19),
        (200, 200, 0.0, 200),
        (CONCURRENCY_MIN, 200, 2 * CONNECTION_WAIT_MAX_S, CONCURRENCY_MIN),
        (2, 2, 2 * CONNECTION_WAIT_MAX_S, 2),
    ],
)
def test_concurrency_limit_follows_the_wait_for_connections(
    window: int, slots: int, waited_s: float, then: int
) -> None:
    assert next_concurrency(window, slots, waited_s) == then
