"""Conversion guard: sends no more codes to numbers whose codes are rarely entered (contract 8, SMS pumping).

A start is a verification whose code was sent; it is verified once the code is entered. Starts and verified starts are
counted per hour in three areas: the whole team, the country, and the number range, which is the number without its last
six digits. Nothing is rejected until one area has many unverified starts within a day. After that, each range is
allowed a few unverified starts per day, plus ATTEMPTS_PER_VERIFIED for each verified start.
"""

from collections.abc import Sequence

from heliograph.domain.delivery.magic_recipients import is_magic_phone
from heliograph.domain.limits import DAY_MS, HOUR_MS, SECOND_MS, VERIFICATION_MS
from heliograph.domain.phones.phone import country_of
from heliograph.domain.refusals import VerifyRateLimited
from heliograph.domain.setup.records import VerifyLimits

# Hours that start within this time count, so that each hour counts for a day after its end.
WINDOW_MS = DAY_MS + HOUR_MS
KNOWN_PHONE_MS = 30 * DAY_MS  # the guard does not apply to phones that were verified within this time
RANGE_DIGITS = 6  # number of final digits in which the numbers of a range differ

SAMPLE_FACTOR = 10  # the guard acts after this many times `per_prefix_10m` unverified starts in an area
FREE_ATTEMPTS = 5  # unverified starts per day that a number range may have without a verified one
ATTEMPTS_PER_VERIFIED = 3  # additional unverified starts that each verified start allows in its area
MIN_VERIFIED_DIVISOR = 10  # a country is blocked if fewer than one in this many starts is verified

ALL_AREAS, UNKNOWN_COUNTRY = "*", "?"

Tally = dict[int, list[int]]  # hour → [starts, verified] of one area


def hour_of(at: int) -> int:
    return at - at % HOUR_MS


def areas(phone: str) -> tuple[str, ...]:
    """Return the areas in which a verification of `phone` is counted: team, country and number range, in this order.

    Empty for simulator numbers and email addresses.
    """
    if is_magic_phone(phone) or "@" in phone:
        return ()
    return ALL_AREAS, country_of(phone) or UNKNOWN_COUNTRY, phone[:-RANGE_DIGITS]


def check_conversion(limits: VerifyLimits, phone: str, tallies: Sequence[Tally], *, is_known_phone: bool) -> None:
    """Reject verifications of phones in ranges or countries where codes are rarely entered (SMS pumping).

    `tallies`: last day's counters, ordered as `areas(phone)`.
    """
    threshold = SAMPLE_FACTOR * limits.per_prefix_10m
    if (
        is_known_phone
        or not limits.conversion_guard
        or not threshold
        or max(map(_excess_unverified_starts, tallies), default=0) < threshold
    ):
        return
    _, in_country, in_range = map(_totals, tallies)
    _, country, range_ = areas(phone)
    if in_range[0] - in_range[1] >= FREE_ATTEMPTS + ATTEMPTS_PER_VERIFIED * in_range[1]:
        raise _refusal(f"numbers starting with {range_}", range_)
    country_blocked = (
        in_country[0] - in_country[1] >= threshold and in_country[1] * MIN_VERIFIED_DIVISOR < in_country[0]
    )
    if country_blocked and not in_range[1]:
        raise _refusal(f"numbers in {country}", country)


def _excess_unverified_starts(tally: Tally) -> int:
    """Return the number of unverified starts beyond those that verified starts of the same hour allow.

    Each hour is counted separately, so that the verified starts of a good day do not allow a later attack.
    """
    return sum(max(0, starts - verified - ATTEMPTS_PER_VERIFIED * verified) for starts, verified in tally.values())


def _totals(tally: Tally) -> tuple[int, int]:
    return sum(starts for starts, _ in tally.values()), sum(verified for _, verified in tally.values())


def _refusal(description: str, area: str) -> VerifyRateLimited:
    return VerifyRateLimited(
        f"Codes sent to {description} are rarely entered, so no more codes are sent there for now. "
        f"{VerifyRateLimited.fix}",
        param="to",
        details={"place": area},
        retry_after=VERIFICATION_MS // SECOND_MS,  # by then every outstanding code has been entered or has expired
    )
