"""The carrier and the sender id of a message."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.delivery.routing import builtin_simulator, candidate_carriers, choose_carrier, sender_id
from heliograph.domain.setup.records import CarrierRecord, Channel, SenderId, Team, TeamRecord
from heliograph.domain.setup.snapshot import Setup, apply_rows, to_row


def sms(id: str, **fields: Any) -> CarrierRecord:
    return CarrierRecord(id=id, channel="sms", kind="smpp", **fields)


def ids(carriers: list[CarrierRecord]) -> list[str]:
    return [carrier.id for carrier in carriers]


@pytest.mark.parametrize(
    ("country", "expected"),
    [
        ("GB", ["first", "a-world", "b-world", "uk"]),
        ("US", ["first", "a-world", "b-world"]),
        (None, ["first", "a-world", "b-world"]),
    ],
)
def test_candidate_carriers_are_sorted_and_filtered_by_country(country: str | None, expected: list[str]) -> None:
    carriers = [
        sms("uk", countries=("GB", "IE"), priority=20),
        sms("b-world"),
        sms("a-world"),
        sms("first", priority=1),
        sms("off", enabled=False, priority=0),
        CarrierRecord(id="mail", channel="email", kind="mx", priority=0),
    ]
    assert ids(candidate_carriers("sms", country, carriers)) == expected


def test_email_ignores_countries() -> None:
    mail = CarrierRecord(id="mail", channel="email", kind="mx", countries=("GB",))
    assert candidate_carriers("email", None, [mail]) == [mail]


@pytest.mark.parametrize("channel", ["email", "sms", "whatsapp"])
def test_a_channel_without_carriers_is_simulated(channel: Channel) -> None:
    others = [
        CarrierRecord(id=name, channel=name, kind="x") for name in ("email", "sms", "whatsapp") if name != channel
    ]
    assert candidate_carriers(channel, "GB", others) == [builtin_simulator(channel)]
    simulator = builtin_simulator(channel)
    assert (simulator.id, simulator.kind, simulator.channel) == (f"simulator-{channel}", "simulator", channel)


@pytest.mark.parametrize("carrier", [sms("off", enabled=False), sms("us", countries=("US",))])
def test_candidate_carriers_are_empty_when_none_serves_the_country(carrier: CarrierRecord) -> None:
    assert candidate_carriers("sms", "GB", [carrier]) == []


@pytest.mark.parametrize(
    ("deferrals", "open_circuits", "chosen"),
    [
        ({}, set(), "a"),
        ({"a": 1}, set(), "a"),
        ({"a": 2}, set(), "b"),
        ({"a": 2, "b": 1}, set(), "b"),
        ({"a": 2, "b": 2}, set(), "c"),
        ({"a": 2, "b": 2, "c": 2}, set(), "a"),  # all have deferred twice, so the first is used again
        ({"a": 4, "b": 2, "c": 2}, set(), "b"),
        ({}, {"a"}, "b"),
        ({"b": 2}, {"a"}, "c"),
        ({"a": 2}, {"b", "c"}, "a"),
        ({}, {"a", "b", "c"}, None),
    ],
)
def test_carrier_choice_skips_deferred_carriers_and_open_circuits(
    deferrals: dict[str, int], open_circuits: set[str], chosen: str | None
) -> None:
    carrier = choose_carrier([sms("a"), sms("b"), sms("c")], deferrals, open_circuits)
    assert (carrier.id if carrier else None) == chosen


def test_carrier_choice_without_candidates_is_none() -> None:
    assert choose_carrier([], {}, set()) is None


@pytest.mark.parametrize(("country", "value"), [("GB", "ACME"), ("DE", None), ("US", None), (None, None)])
def test_sender_id_is_chosen_by_country(country: str | None, value: str | None) -> None:
    team = Team(
        record=TeamRecord(ref=1, id="team_1", name="Acme"),
        sender_ids={
            "GB": SenderId(team="team_1", country="GB", value="ACME", approved=True),
            "DE": SenderId(team="team_1", country="DE", value="ACME"),
        },
    )
    assert sender_id(team, country) == value


def test_routes_are_updated_with_the_setup() -> None:
    item = sms("one")
    previous = apply_rows(Setup(), [to_row("carrier", item.id, item, None)], 1)
    assert ids(previous.routes["sms", "GB"]) == ["one"] == ids(previous.routes["sms", "GB"])
    after = apply_rows(previous, [to_row("carrier", item.id, replace(item, enabled=False), None)], 2)
    assert (ids(previous.routes["sms", "GB"]), after.routes["sms", "GB"]) == (["one"], [])
    assert after.routes["email", None] == [builtin_simulator("email")]
