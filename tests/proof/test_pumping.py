"""SMS pumping: 50,000 numbers that never verify among 1,000 real users, through the real rules and a real store.

The users come over a day and a half, the attack over the last day, by a clock that the test moves. `make proof` alone
runs it; tests/accept/test_conversion_guard.py asks for each decision of the guard.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from heliograph.accept.verify_start import VerificationRecord
from heliograph.bootstrap import open_store
from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.domain.delivery.outcome import Accepted, Outcome
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.domain.refusals import VerifyRateLimited
from heliograph.domain.setup.records import VerifyLimits
from heliograph.runtime.clock import Clock
from heliograph.settings import Settings
from tests.accept.verify_helpers import PRICE, VerifyEnvironment, code_in_message
from tests.proof.size import report

PUMPED, USERS = 50_000, 1_000
DAY = DAY_MS // MINUTE_MS  # minutes: the clock's step
WARM = DAY // 2  # users before the attack begins
SPENT_MAX = 0.01  # of what the attack would cost without limits
BLOCKED_MAX = 0.01  # of the users

# Where the users are, with their weights; `?` is any digit.
USERS_FROM = {
    "+1415???????": 8,
    "+1212???????": 9,
    "+1713???????": 8,
    "+447?????????": 20,
    "+4915?????????": 8,
    "+4917?????????": 7,
    "+336????????": 7,
    "+337????????": 5,
    "+919?????????": 10,
    "+55119????????": 8,
    "+3725???????": 4,
    "+452???????": 4,
    "+23480????????": 2,
}


def ranges(head: str, count: int) -> list[str]:
    """Ranges of a million numbers each, here and there."""
    width = len(str(count)) + 1
    return [f"{head}{place:0{width}d}" for place in random.Random(head).sample(range(10**width), count)]


ABROAD = (
    *("+220", "+223", "+231", "+243", "+249", "+251", "+252", "+260", "+263", "+373", "+592", "+880", "+94", "+961"),
    *("+967", "+972", "+977", "+992", "+994", "+995", "+996", "+998", "+62", "+216"),
)
AT_HOME = ("+4474", "+336", "+49151", "+9198", "+55119", "+23480")  # where users are
AMONG_USERS = "20 ranges among users"
SHAPES = {
    "one range": ["+2207"],
    "300 ranges of a country": ranges("+994", 300),
    AMONG_USERS: ranges("+447", 20),
    "60 ranges in 30 countries": [each for head in (*ABROAD, *AT_HOME) for each in ranges(head, 2)],
}


class HandClock(Clock):
    def __init__(self) -> None:
        super().__init__()
        self.minute = 29_891_520 + 25  # 25 minutes past an hour: nothing begins when a count does

    def now(self) -> int:
        return self.minute * MINUTE_MS

    def team_now(self, team: int) -> int:
        return self.now()


class Network(Carrier):
    """Takes everything; the last text of each phone can be read."""

    def __init__(self) -> None:
        self.codes: dict[str, str] = {}
        self.taken = 0

    async def send_message(self, message: OutboundMessage) -> Outcome:
        self.taken += 1
        self.codes[message.address] = code_in_message(message)
        return Accepted(carrier_id=str(self.taken))


class User(msgspec.Struct):
    """75 % enter the first code, 15 % the second or third, 10 % none of up to three."""

    phone: str
    loses: int  # codes that do not arrive or are not read
    tries: int = 3
    blocked: bool = False


def make_user(chance: random.Random) -> User:
    (pattern,) = chance.choices(list(USERS_FROM), list(USERS_FROM.values()))
    fate = chance.random()
    loses = 0 if fate < 0.75 else chance.randint(1, 2) if fate < 0.9 else 3
    phone = "".join(str(chance.randrange(10)) if digit == "?" else digit for digit in pattern)
    return User(phone, loses, tries=chance.randint(1, 3) if loses == 3 else 3)


class World:
    def __init__(self, verifying: VerifyEnvironment, network: Network, clock: HandClock, chance: random.Random) -> None:
        self.verifying, self.network, self.clock, self.chance = verifying, network, clock, chance
        self.due: dict[int, list[User | tuple[User, str]]] = defaultdict(list)  # by minute: starts and checks
        self.pumped = 0  # that were sent

    async def live(self, users: list[User], attack: list[str]) -> None:
        first = self.clock.minute
        for user in users:
            self.due[first + self.chance.randrange(WARM + DAY)].append(user)
        pumped = self._by_minute(attack)
        while self.clock.minute < first + WARM + DAY or self.due:
            tasks = [self._user(entry) for entry in self.due.pop(self.clock.minute, [])]
            if self.clock.minute >= first + WARM:
                tasks += [self._pump(phone) for phone in next(pumped, [])]
            self.chance.shuffle(tasks)
            await asyncio.gather(*tasks)
            self.clock.minute += 1

    def _by_minute(self, attack: list[str]) -> Iterator[list[str]]:
        for minute in range(DAY):
            yield attack[minute * len(attack) // DAY : (minute + 1) * len(attack) // DAY]

    async def _start(self, phone: str) -> VerificationRecord | None:
        try:
            return await self.verifying.start(phone)
        except VerifyRateLimited:
            return None

    async def _pump(self, phone: str) -> None:
        if await self._start(phone):
            self.pumped += 1

    async def _user(self, entry: User | tuple[User, str]) -> None:
        """Start, and enter the code a minute later or start again a little later."""
        if isinstance(entry, tuple):
            user, id_ = entry
            assert (await self.verifying.check(id_, self.network.codes[user.phone])).verified
            return
        user, soon = entry, self.clock.minute + 1
        started = await self._start(user.phone)
        user.tries -= 1
        if started is None:
            user.blocked = True
        elif user.loses == 0:
            self.due[soon].append((user, started.id))
        elif user.tries:
            user.loses -= 1
            self.due[soon + self.chance.randrange(3)].append(user)


async def simulate(folder: Path, shape: str, limits: VerifyLimits, pumped: int, users: int) -> tuple[float, float]:
    """The shares of the attack that was paid for and of the users that were ever refused."""
    chance, clock, network = random.Random(shape), HandClock(), Network()
    settings = Settings(database=f"sqlite:///{folder / 'heliograph.db'}", data=folder)
    credit = 10 * (pumped + users) * PRICE
    async with open_store(settings, clock, "seat/0") as store:
        verifying = VerifyEnvironment(store, clock, {"network": network})
        await verifying.set_up(credit, limits)
        world = World(verifying, network, clock, chance)
        people = [make_user(chance) for _ in range(users)]
        attack = [f"{chance.choice(SHAPES[shape])}{chance.randrange(10**6):06d}" for _ in range(pumped)]
        await world.live(people, attack)
        account = await store.ledger.get_account(1)
    assert (credit - account.available, account.held) == (network.taken * PRICE, 0)
    return world.pumped / pumped, sum(user.blocked for user in people) / users


@pytest.mark.anyio
@pytest.mark.parametrize("shape", SHAPES)
async def test_pumping_does_not_pay_and_users_get_their_codes(tmp_path: Path, shape: str) -> None:
    spent, blocked = await simulate(tmp_path, shape, VerifyLimits(), PUMPED, USERS)
    report("pumping", f"{shape}: {spent:.2%} of the attack was paid for, {blocked:.2%} of the users were refused")
    assert spent <= SPENT_MAX
    assert blocked <= BLOCKED_MAX


@pytest.mark.anyio
async def test_pumping_pays_without_the_guard(tmp_path: Path) -> None:
    spent, _ = await simulate(tmp_path, AMONG_USERS, VerifyLimits(conversion_guard=False), 1_000, 20)
    assert spent > 0.9
