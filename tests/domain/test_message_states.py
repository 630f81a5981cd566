"""The states of a message: every pair of the table, and what a message shows of its recipients."""

from itertools import product
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.delivery.message_states import MOVES, STATES, derive, is_final, move, never_regress
from heliograph.domain.setup.records import Channel

CHANNELS = get_args(Channel)

# Every pair that is not here is ignored.
EVERYWHERE = {
    ("queued", "sending"): ("sending",),
    ("queued", "sent"): ("sending", "sent"),
    ("queued", "delivered"): ("sending", "sent", "delivered"),
    ("queued", "failed"): ("failed",),
    ("sending", "sent"): ("sent",),
    ("sending", "delivered"): ("sent", "delivered"),
    ("sending", "failed"): ("failed",),
    ("sent", "delivered"): ("delivered",),
    ("sent", "failed"): ("failed",),
}
LATE = {("failed", "delivered"): ("delivered",)}
EXPECTED: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {
    "email": EVERYWHERE
    | {
        ("queued", "bounced"): ("sending", "bounced"),
        ("queued", "complained"): ("sending", "sent", "delivered", "complained"),
        ("sending", "bounced"): ("bounced",),
        ("sending", "complained"): ("sent", "delivered", "complained"),
        ("sent", "bounced"): ("bounced",),
        ("sent", "complained"): ("delivered", "complained"),
        ("delivered", "bounced"): ("bounced",),
        ("delivered", "failed"): ("failed",),
        ("delivered", "complained"): ("complained",),
    },
    "sms": EVERYWHERE | LATE,
    "whatsapp": EVERYWHERE
    | LATE
    | {
        ("queued", "read"): ("sending", "sent", "delivered", "read"),
        ("sending", "read"): ("sent", "delivered", "read"),
        ("sent", "read"): ("delivered", "read"),
        ("delivered", "read"): ("read",),
        ("failed", "read"): ("delivered", "read"),
    },
}
ALL_STATES = sorted({state for states in STATES.values() for state in states})


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_pair(channel: Channel) -> None:
    for current, wanted in product(ALL_STATES, repeat=2):
        assert move(channel, current, wanted) == EXPECTED[channel].get((current, wanted), ()), (
            current,
            wanted,
        )


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_step_is_in_the_table(channel: Channel) -> None:
    for current, wanted in product(ALL_STATES, repeat=2):
        for step in move(channel, current, wanted):
            assert step in MOVES[channel][current]
            current = step


def test_a_late_receipt_counts_once() -> None:
    assert move("sms", "failed", "delivered", late_used=True) == ()
    assert move("whatsapp", "failed", "read", late_used=True) == ()
    assert move("whatsapp", "delivered", "read", late_used=True) == ("read",)


def test_states_of_each_channel_are_the_specs() -> None:
    assert {channel: set(states) for channel, states in STATES.items()} == {
        "email": {"queued", "sending", "sent", "delivered", "bounced", "complained", "failed"},
        "sms": {"queued", "sending", "sent", "delivered", "failed"},
        "whatsapp": {"queued", "sending", "sent", "delivered", "read", "failed"},
    }


@pytest.mark.parametrize("status", ALL_STATES)
def test_final(status: str) -> None:
    assert is_final(status) == (status not in {"queued", "sending", "sent"})


@pytest.mark.parametrize(
    ("channel", "statuses", "shown"),
    [
        ("email", ["delivered", "queued", "sending"], "queued"),
        ("email", ["sent", "sending", "complained"], "sending"),
        ("email", ["sent", "bounced"], "sent"),
        ("email", ["failed", "bounced", "delivered", "complained"], "complained"),
        ("email", ["failed", "bounced", "delivered"], "delivered"),
        ("email", ["failed", "bounced"], "bounced"),
        ("email", ["failed"], "failed"),
        ("sms", ["delivered"], "delivered"),
        ("whatsapp", ["read"], "read"),
    ],
)
def test_derived_status(channel: Channel, statuses: list[str], shown: str) -> None:
    assert derive(channel, frozenset(statuses)) == shown


@pytest.mark.parametrize(("channel", "statuses"), [("email", []), ("sms", ["read"]), ("email", ["lost"])])
def test_no_status_follows(channel: Channel, statuses: list[str]) -> None:
    with pytest.raises(ValueError, match="follows"):
        derive(channel, frozenset(statuses))


@pytest.mark.parametrize(
    ("channel", "current", "derived", "kept"),
    [
        ("email", "sending", "queued", "sending"),
        ("email", "delivered", "sent", "delivered"),
        ("email", "delivered", "failed", "failed"),
        ("sms", "delivered", "failed", "delivered"),
        ("sms", "failed", "delivered", "delivered"),
        ("email", "delivered", "bounced", "bounced"),
        ("email", "delivered", "complained", "complained"),
        ("email", "bounced", "delivered", "bounced"),
        ("whatsapp", "read", "delivered", "read"),
        ("email", "sent", "sent", "sent"),
    ],
)
def test_never_regress(channel: Channel, current: str, derived: str, kept: str) -> None:
    assert never_regress(channel, current, derived) == kept


@settings(max_examples=80)
@given(st.sampled_from(CHANNELS), st.data())
def test_a_message_never_regresses_and_leaves_a_final_state_as_the_table_says(
    channel: Channel, data: st.DataObject
) -> None:
    recipients = ["queued"] * data.draw(st.integers(1, 3))
    shown = "queued"
    for _ in range(data.draw(st.integers(0, 15))):
        one = data.draw(st.integers(0, len(recipients) - 1))
        steps = move(channel, recipients[one], data.draw(st.sampled_from(ALL_STATES)))
        if steps and is_final(recipients[one]):
            assert steps[0] in MOVES[channel][recipients[one]]
        for step in steps:
            recipients[one] = step
            derived = derive(channel, frozenset(recipients))
            assert never_regress(channel, shown, derived) == derived
            shown = derived
