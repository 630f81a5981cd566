"""The conversion guard in requests: it allows ordinary use and known phones, and rejects SMS pumping."""

import asyncio

import pytest

from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.refusals import VerifyRateLimited
from heliograph.domain.setup.records import VerifyLimits
from heliograph.storage.store import Store
from tests.accept.verify_helpers import PRICE, VerifyEnvironment, code_in_message
from tests.clocks import TestClock

pytestmark = pytest.mark.anyio

LIMIT = VerifyLimits().per_prefix_10m

# Twenty ranges with ten unverified starts each reach the threshold: ten times the limit per prefix.
RANGES = [f"+447{number}" for number in range(400, 420)]
MANY_NUMBERS = [f"{head}{number}" for head in ("+4474", "+3361", "+49151", "+39333", "+34611") for number in range(4)]


class Network(Carrier):
    def __init__(self) -> None:
        self.codes: dict[str, str] = {}

    async def send_message(self, message: OutboundMessage) -> Outcome:
        self.codes[message.address] = code_in_message(message)
        return Accepted(carrier_id=message.message_id)


class Team(VerifyEnvironment):
    """A team that verifies codes through a carrier whose messages can be read."""

    def __init__(self, store: Store, clock: TestClock) -> None:
        self.network = Network()
        super().__init__(store, clock, {"network": self.network})

    async def verify(self, phone: str) -> None:
        started = await self.start(phone)
        assert (await self.check(started.id, self.network.codes[phone])).verified

    async def lose(self, ranges: list[str], each: int) -> None:
        """Start verifications in these ranges of a million numbers concurrently; nobody enters the codes."""
        phones = [f"{range_}{place:02d}0000" for range_ in ranges for place in range(each)]
        await asyncio.gather(*(self.start(phone) for phone in phones))

    async def refused(self, phone: str) -> str:
        """Return the area that is blocked; empty if the start is allowed."""
        try:
            await self.start(phone)
        except VerifyRateLimited as refusal:
            return str((refusal.details or {}).get("place"))
        return ""


@pytest.fixture
async def acme(store: Store, clock: TestClock) -> Team:
    team = Team(store, clock)
    await team.set_up(1000 * PRICE)
    return team


async def test_ordinary_use_reaches_only_the_prefix_limit(acme: Team) -> None:
    """Nine prefixes of one range are used up to their limit; only that limit is ever reached."""
    for prefix in range(9):
        phones = [f"+447400{prefix:02d}{last:04d}" for last in range(LIMIT)]
        await asyncio.gather(*(acme.start(phone) for phone in phones))
        with pytest.raises(VerifyRateLimited, match="20 in 10 minutes for numbers with the same prefix"):
            await acme.start(f"+447400{prefix:02d}9999")


async def test_ranges_with_unverified_codes_are_blocked_one_by_one(acme: Team) -> None:
    await acme.verify("+447900000001")
    await acme.lose(MANY_NUMBERS, 10)
    some = MANY_NUMBERS[::7]
    assert [await acme.refused(f"{range_}990000") for range_ in some] == ["", "", ""]  # the verified start offsets 3
    assert [await acme.refused(f"{range_}990001") for range_ in some] == some
    assert await acme.refused("+15005550006") == ""  # a magic number
    assert await acme.refused("+447900000002") == ""  # a range where codes are entered


async def test_country_without_any_verified_code_is_blocked(acme: Team) -> None:
    await acme.lose(RANGES, 10)
    assert await acme.refused("+447900000002") == "GB"
    assert await acme.refused("+33612345678") == ""


async def test_a_phone_that_verified_before_passes(acme: Team, clock: TestClock) -> None:
    await acme.verify("+447400990000")
    clock.forward(29 * 24 * 3_600_000)
    await acme.lose(RANGES, 10)
    assert await acme.refused("+447400990001") == "+447400"
    assert await acme.refused("+447400990000") == ""


async def test_closed_range_has_its_attempts_again_after_a_day(acme: Team, clock: TestClock) -> None:
    await acme.lose(RANGES, 10)
    assert await acme.refused("+447400990000") == "+447400"
    clock.forward(25 * 3_600_000)
    assert await acme.refused("+447400990000") == ""


async def test_conversion_guard_can_be_disabled_per_team(store: Store, clock: TestClock) -> None:
    team = Team(store, clock)
    await team.set_up(1000 * PRICE, VerifyLimits(conversion_guard=False))
    await team.lose(RANGES, 10)
    assert await team.refused("+447400990000") == ""
