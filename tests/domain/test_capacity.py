"""What a machine carries, from what was measured on it."""

import pytest
from msgspec.structs import replace

from heliograph.domain.operations.capacity import Measurements, estimate_capacity

QUICK = Measurements(
    syncs_per_s=10_000,
    signing_us=600,
    accept_us=200,
    accepted_per_s=4_000,
    hand_over_us=1_800,
    handed_over_per_s=500,
)


@pytest.mark.parametrize(
    ("changed", "limit", "per_s"),
    [
        ({}, "delivery", 350),  # 1 s / 2 ms, of which 70 %
        ({"accept_us": 2_200}, "accepting", 175),
        ({"syncs_per_s": 12}, "disk", 280),  # 12 × 100 / 3, of which 70 %
        ({"syncs_per_s": 15.1}, "delivery", 350),
    ],
)
def test_capacity_estimate_names_the_limiting_resource(changed: dict[str, float], limit: str, per_s: int) -> None:
    actual = estimate_capacity(replace(QUICK, **changed))
    assert (actual.limit, actual.per_s) == (limit, per_s)
    assert actual.advice


def test_a_day_is_ten_of_its_busiest_hours() -> None:
    actual = estimate_capacity(QUICK)
    assert (actual.per_hour, actual.per_day, actual.per_day_evenly) == (1_260_000, 12_600_000, 30_240_000)
