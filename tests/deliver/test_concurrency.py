"""Windows of hand-overs: how many of each priority are claimed."""

from heliograph.deliver.concurrency import Windows
from heliograph.domain.delivery.lanes import SLOTS, SOON_S, WINDOW_FIRST, WINDOW_LEAST
from heliograph.domain.setup.records import Priority


def learned(**waited: float) -> dict[Priority, int]:
    """Return the room of each priority after 200 hand-overs of some, each of which waited so long."""
    windows = Windows(lambda lane: None)
    for queue, seconds in waited.items():
        for _ in range(200):
            windows.waited(queue.replace("_", "."), seconds)
    return windows.room("email")


def test_at_first_all_are_alike() -> None:
    assert learned() == {"critical": WINDOW_FIRST, "normal": WINDOW_FIRST, "bulk": WINDOW_FIRST}


def test_what_is_seldom_sent_has_no_smaller_window_than_what_is_less_urgent() -> None:
    """Else due critical ones wait while normal ones, whose window has grown, are handed over before them."""
    assert learned(email=0) == {"critical": SLOTS["email"], "normal": SLOTS["email"], "bulk": WINDOW_FIRST}
    assert learned(email_bulk=0) == dict.fromkeys(("critical", "normal", "bulk"), SLOTS["email"])


def test_what_waits_for_its_own_connections_keeps_its_own_window() -> None:
    assert learned(email=0, email_critical=2 * SOON_S)["critical"] == WINDOW_LEAST
    assert learned(email=2 * SOON_S)["critical"] == WINDOW_FIRST


def test_one_that_did_not_wait_opens_no_whole_window() -> None:
    windows = Windows(lambda lane: None)
    for _ in range(200):
        windows.waited("email.bulk", 0)
        windows.waited("email", 2 * SOON_S)
    rooms = []
    for _ in range(WINDOW_FIRST):
        windows.waited("email", 0)
        rooms.append(windows.room("email")["normal"])
    assert rooms == [*range(WINDOW_LEAST + 1, WINDOW_LEAST + WINDOW_FIRST), SLOTS["email"]]


def test_a_full_one_hears_of_the_room_that_a_less_urgent_one_makes() -> None:
    rung: list[str] = []
    windows = Windows(rung.append)
    for _ in range(WINDOW_FIRST):
        windows.enter("email.critical")
    assert windows.room("email")["critical"] == 0
    windows.waited("email", 2 * SOON_S)
    windows.leave("email")
    assert rung == []
    for _ in range(3):
        windows.waited("email.bulk", 0)
    assert rung == ["email"] and windows.room("email")["critical"] == 3
