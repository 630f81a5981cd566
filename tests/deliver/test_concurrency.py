"""Concurrency limits: how many messages of each priority may be claimed."""

from heliograph.deliver.concurrency import ConcurrencyLimiter
from heliograph.domain.delivery.lanes import (
    CONCURRENCY_MAX_BY_LANE,
    CONCURRENCY_MIN,
    CONCURRENCY_START,
    CONNECTION_WAIT_MAX_S,
)
from heliograph.domain.setup.records import Priority


def learned(**waited: float) -> dict[Priority, int]:
    """Return the free slots of each priority after 200 sends that each waited for this time."""
    windows = ConcurrencyLimiter(lambda lane: None)
    for queue, seconds in waited.items():
        for _ in range(200):
            windows.adapt(queue.replace("_", "."), seconds)
    return windows.free_capacity("email")


def test_new_queues_have_equal_limits() -> None:
    assert learned() == {"critical": CONCURRENCY_START, "normal": CONCURRENCY_START, "bulk": CONCURRENCY_START}


def test_rarely_used_queue_has_no_smaller_limit_than_a_less_urgent_one() -> None:
    """Otherwise urgent messages would wait while normal ones, whose limit has grown, are sent first."""
    assert learned(email=0) == {
        "critical": CONCURRENCY_MAX_BY_LANE["email"],
        "normal": CONCURRENCY_MAX_BY_LANE["email"],
        "bulk": CONCURRENCY_START,
    }
    assert learned(email_bulk=0) == dict.fromkeys(("critical", "normal", "bulk"), CONCURRENCY_MAX_BY_LANE["email"])


def test_queue_that_waits_for_its_own_connections_keeps_its_limit() -> None:
    assert learned(email=0, email_critical=2 * CONNECTION_WAIT_MAX_S)["critical"] == CONCURRENCY_MIN
    assert learned(email=2 * CONNECTION_WAIT_MAX_S)["critical"] == CONCURRENCY_START


def test_single_send_without_queueing_does_not_open_the_full_limit() -> None:
    windows = ConcurrencyLimiter(lambda lane: None)
    for _ in range(200):
        windows.adapt("email.bulk", 0)
        windows.adapt("email", 2 * CONNECTION_WAIT_MAX_S)
    rooms = []
    for _ in range(CONCURRENCY_START):
        windows.adapt("email", 0)
        rooms.append(windows.free_capacity("email")["normal"])
    assert rooms == [*range(CONCURRENCY_MIN + 1, CONCURRENCY_MIN + CONCURRENCY_START), CONCURRENCY_MAX_BY_LANE["email"]]


def test_full_queue_is_woken_by_capacity_of_a_less_urgent_queue() -> None:
    rung: list[str] = []
    windows = ConcurrencyLimiter(rung.append)
    for _ in range(CONCURRENCY_START):
        windows.count_started("email.critical")
    assert windows.free_capacity("email")["critical"] == 0
    windows.adapt("email", 2 * CONNECTION_WAIT_MAX_S)
    windows.count_finished("email")
    assert rung == []
    for _ in range(3):
        windows.adapt("email.bulk", 0)
    assert rung == ["email"] and windows.free_capacity("email")["critical"] == 3
