"""The conversion guard: when it takes effect, which starts it rejects, and which it allows."""

import pytest

from heliograph.domain.limits import HOUR_MS
from heliograph.domain.refusals import VerifyRateLimited
from heliograph.domain.setup.records import VerifyLimits
from heliograph.domain.verify.conversion import Tally, areas, check_conversion, hour_of

PHONE = "+447400123456"
LIMITS = VerifyLimits()  # per_prefix_10m = 20, so the threshold is 200 starts
QUIET: Tally = {}
LOST: Tally = {0: [200, 0]}


def rejected_area(*tallies: Tally, limits: VerifyLimits = LIMITS, known: bool = False) -> str:
    """Return the area that is rejected; empty if the start is allowed."""
    try:
        check_conversion(limits, PHONE, tallies, is_known_phone=known)
    except VerifyRateLimited as refusal:
        return str((refusal.details or {})["place"])
    return ""


@pytest.mark.parametrize(
    ("phone", "expected"),
    [
        (PHONE, ("*", "GB", "+447400")),
        ("+18765550100", ("*", "JM", "+18765")),
        ("+9995550100", ("*", "?", "+9995")),
        ("+15005550006", ()),  # a magic number
        ("+15005551099", ()),
    ],
)
def test_phone_has_the_expected_areas(phone: str, expected: tuple[str, ...]) -> None:
    assert areas(phone) == expected


def test_timestamp_maps_to_the_start_of_its_hour() -> None:
    assert [hour_of(at) for at in (0, HOUR_MS - 1, HOUR_MS)] == [0, 0, HOUR_MS]


@pytest.mark.parametrize(
    ("everywhere", "country", "range_", "place"),
    [
        # Below the threshold in every area.
        (QUIET, QUIET, QUIET, ""),
        ({0: [199, 0]}, {0: [199, 0]}, {0: [199, 0]}, ""),
        ({0: [100, 0], HOUR_MS: [99, 0]}, QUIET, {0: [199, 0]}, ""),
        # The threshold is reached in one of the areas: each range has five attempts.
        (LOST, QUIET, QUIET, ""),
        (LOST, QUIET, {0: [4, 0]}, ""),
        (LOST, QUIET, {0: [5, 0]}, "+447400"),
        ({0: [100, 0], HOUR_MS: [100, 0]}, QUIET, {0: [2, 0], HOUR_MS: [3, 0]}, "+447400"),
        (QUIET, {0: [205, 25]}, {0: [5, 0]}, ""),  # 180 unverified starts, minus three for each verified one
        (QUIET, {0: [300, 25]}, {0: [5, 0]}, "+447400"),
        (QUIET, QUIET, LOST, "+447400"),
        # A verified start offsets three unverified ones: in the range for a day, in other areas within its hour.
        (LOST, QUIET, {0: [8, 1]}, ""),
        (LOST, QUIET, {0: [9, 1]}, "+447400"),
        (LOST, QUIET, {0: [8, 0], HOUR_MS: [0, 1]}, ""),
        ({0: [300, 25]}, QUIET, {0: [5, 0]}, "+447400"),
        ({0: [299, 25]}, QUIET, {0: [5, 0]}, ""),
        ({0: [200, 0], HOUR_MS: [100, 100]}, QUIET, {0: [5, 0]}, "+447400"),
        # A country with few verified starts is blocked for ranges without any.
        (LOST, LOST, QUIET, "GB"),
        (LOST, {0: [220, 20]}, QUIET, "GB"),
        (LOST, {0: [220, 22]}, QUIET, ""),
        (LOST, LOST, {0: [1, 1]}, ""),
        (LOST, {0: [199, 0]}, QUIET, ""),
    ],
)
def test_areas_with_low_conversion_are_refused(everywhere: Tally, country: Tally, range_: Tally, place: str) -> None:
    assert rejected_area(everywhere, country, range_) == place


@pytest.mark.parametrize(
    ("range_", "said"), [(LOST, "numbers starting with +447400 are rarely"), (QUIET, "numbers in GB are rarely")]
)
def test_conversion_refusal_names_the_area_and_retry_after(range_: Tally, said: str) -> None:
    with pytest.raises(VerifyRateLimited) as refusal:
        check_conversion(LIMITS, PHONE, [LOST, LOST, range_], is_known_phone=False)
    assert said in refusal.value.message
    assert (refusal.value.param, refusal.value.retry_after) == ("to", 600)


def test_phone_verified_recently_passes_the_conversion_check() -> None:
    assert rejected_area(LOST, LOST, LOST) == "+447400"
    assert rejected_area(LOST, LOST, LOST, known=True) == ""


@pytest.mark.parametrize(
    ("limits", "place"),
    [
        (VerifyLimits(conversion_guard=False), ""),
        (VerifyLimits(per_prefix_10m=0), ""),  # without the limit per prefix, the guard is off
        (VerifyLimits(per_prefix_10m=21), ""),
        (VerifyLimits(per_prefix_10m=1), "+447400"),
    ],
)
def test_team_limits_override_the_conversion_defaults(limits: VerifyLimits, place: str) -> None:
    assert rejected_area(LOST, LOST, LOST, limits=limits) == place
