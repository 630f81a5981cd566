"""States of messages: every pair of the transition table, and the status derived from recipients."""

from itertools import product
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.delivery.message_states import (
    STATES_BY_CHANNEL,
    TRANSITIONS,
    derive_message_status,
    furthest_status,
    is_final,
    transition_path,
)
from heliograph.domain.setup.records import Channel

CHANNELS = get_args(Channel)

# A report for any other pair is ignored.
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
ALL_STATES = sorted({state for states in STATES_BY_CHANNEL.values() for state in states})


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_state_transition_path_is_as_expected(channel: Channel) -> None:
    for current, expected in product(ALL_STATES, repeat=2):
        assert transition_path(channel, current, expected) == EXPECTED[channel].get((current, expected), ()), (
            current,
            expected,
        )


@pytest.mark.parametrize("channel", CHANNELS)
def test_every_step_is_in_the_table(channel: Channel) -> None:
    for current, expected in product(ALL_STATES, repeat=2):
        for step in transition_path(channel, current, expected):
            assert step in TRANSITIONS[channel][current]
            current = step


def test_a_late_receipt_counts_once() -> None:
    assert transition_path("sms", "failed", "delivered", late_receipt_used=True) == ()
    assert transition_path("whatsapp", "failed", "read", late_receipt_used=True) == ()
    assert transition_path("whatsapp", "delivered", "read", late_receipt_used=True) == ("read",)


def test_states_of_each_channel_are_the_specs() -> None:
    assert {channel: set(states) for channel, states in STATES_BY_CHANNEL.items()} == {
        "email": {"queued", "sending", "sent", "delivered", "bounced", "complained", "failed"},
        "sms": {"queued", "sending", "sent", "delivered", "failed"},
        "whatsapp": {"queued", "sending", "sent", "delivered", "read", "failed"},
    }


@pytest.mark.parametrize("status", ALL_STATES)
def test_final_states_are_as_documented(status: str) -> None:
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
def test_message_status_is_derived_from_its_recipients(channel: Channel, statuses: list[str], shown: str) -> None:
    assert derive_message_status(channel, frozenset(statuses)) == shown


@pytest.mark.parametrize(("channel", "statuses"), [("email", []), ("sms", ["read"]), ("email", ["lost"])])
def test_message_status_from_impossible_recipients_raises(channel: Channel, statuses: list[str]) -> None:
    with pytest.raises(ValueError, match="follows"):
        derive_message_status(channel, frozenset(statuses))


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
def test_message_status_never_regresses(channel: Channel, current: str, derived: str, kept: str) -> None:
    assert furthest_status(channel, current, derived) == kept


@settings(max_examples=80)
@given(st.sampled_from(CHANNELS), st.data())
def test_a_message_never_regresses_and_leaves_a_final_state_as_the_table_says(
    channel: Channel, data: st.DataObject
) -> None:
    recipients = ["queued"] * data.draw(st.integers(1, 3))
    displayed = "queued"
    for _ in range(data.draw(st.integers(0, 15))):
        item = data.draw(st.integers(0, len(recipients) - 1))
        steps = transition_path(channel, recipients[item], data.draw(st.sampled_from(ALL_STATES)))
        if steps and is_final(recipients[item]):
            assert steps[0] in TRANSITIONS[channel][recipients[item]]
        for step in steps:
            recipients[item] = step
            derived = derive_message_status(channel, frozenset(recipients))
            assert furthest_status(channel, displayed, derived) == derived
            displayed = derived
