"""The conversion guard: no more codes for numbers whose codes hardly ever come back (contract 8, SMS pumping).

Starts and verifications are counted by the hour in three places: the whole team, the country, and the number less its
last six digits, which is about what a network is given at once. Nothing is refused until one of them has lost many
starts within a day. Then each range gets a few tries a day, and as many more as its verified ones excuse.
"""

from collections.abc import Sequence

from heliograph.domain.delivery.magic_recipients import is_magic_phone
from heliograph.domain.limits import DAY_MS, HOUR_MS, SECOND_MS, VERIFICATION_MS
from heliograph.domain.phones.phone import country_of
from heliograph.domain.refusals import VerifyRateLimited
from heliograph.domain.setup.records import VerifyLimits

WINDOW_MS = DAY_MS + HOUR_MS  # of hours that begin in it: each counts for a day after its end
KNOWN_MS = 30 * DAY_MS  # a phone that verified within this time is nobody's invention
RANGE_DIGITS = 6  # that numbers of one range differ in

SAMPLE = 10  # times the team's own limit for numbers that begin alike: fewer starts prove nothing
TRIES = 5  # that a watched range may lose in a day
EXCUSED = 3  # unverified starts that a verified one makes up for
HOPELESS = 10  # a country where fewer than one start in so many is verified

EVERYWHERE, NOWHERE = "*", "?"

Tally = dict[int, list[int]]  # hour → [starts, verified] in one place


def hour_of(at: int) -> int:
    return at - at % HOUR_MS


def areas(phone: str) -> tuple[str, ...]:
    """List where a start is counted, from the widest place to
    the narrowest; simulator numbers and emails count nowhere.
    """
    if is_magic_phone(phone) or "@" in phone:
        return ()
    return EVERYWHERE, country_of(phone) or NOWHERE, phone[:-RANGE_DIGITS]


def check_conversion(limits: VerifyLimits, phone: str, tallies: Sequence[Tally], *, known: bool) -> None:
    """Refuse a start where codes get lost. `tallies` are the last day's, in the order of `places`."""
    enough = SAMPLE * limits.per_prefix_10m
    if known or not limits.conversion_guard or not enough or max(map(_lost, tallies), default=0) < enough:
        return
    _, in_country, in_range = map(_sums, tallies)
    _, country, range_ = areas(phone)
    if in_range[0] - in_range[1] >= TRIES + EXCUSED * in_range[1]:
        raise _refusal(f"numbers that begin with {range_}", range_)
    hopeless = in_country[0] - in_country[1] >= enough and in_country[1] * HOPELESS < in_country[0]
    if hopeless and not in_range[1]:
        raise _refusal(f"numbers in {country}", country)


def _lost(tally: Tally) -> int:
    """Count the starts that nothing excuses, by the hour: a good day before an attack must not pay for it."""
    return sum(max(0, starts - verified - EXCUSED * verified) for starts, verified in tally.values())


def _sums(tally: Tally) -> tuple[int, int]:
    return sum(starts for starts, _ in tally.values()), sum(verified for _, verified in tally.values())


def _refusal(where: str, area: str) -> VerifyRateLimited:
    return VerifyRateLimited(
        f"Codes for {where} are hardly ever entered, so no more are sent there now. {VerifyRateLimited.fix}",
        param="to",
        details={"place": area},
        retry_after=VERIFICATION_MS // SECOND_MS,  # by then every code that is out is entered or lost
    )
