"""A real store, real simulators, and messages as the accept endpoints store them."""

from collections.abc import Awaitable, Callable

import pytest

from heliograph.carriers.contract import Carrier, Carriers
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.carriers.sms.simulator import SmsSimulator
from heliograph.carriers.whatsapp.simulator import WhatsappSimulator
from heliograph.domain.delivery.lanes import LANE_BY_CHANNEL
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import Acceptance, AcceptedRecipient, AcceptState, Decision
from heliograph.domain.setup import records
from heliograph.storage.setup import NewTeam
from heliograph.storage.store import Store, make_store
from tests.clocks import TestClock
from tests.setup_helpers import set_up

CREDIT = 1_000_000
TEAMS = (1, 2)
SIMULATORS: dict[str, Callable[[int], Carrier]] = {
    "email": EmailSimulator,
    "sms": SmsSimulator,
    "whatsapp": WhatsappSimulator,
}

Send = Callable[..., Awaitable[str]]
ReadTimeline = Callable[[str], Awaitable[list[str]]]


@pytest.fixture
async def store(store: Store) -> Store:
    """Return a store on each database, with two teams."""
    await set_up(store, new_teams=[NewTeam(ref, CREDIT) for ref in TEAMS])
    return store


@pytest.fixture
def other(store: Store, clock: TestClock) -> Store:
    """Return the store of another process on the same database."""
    return make_store(store.database, store.local_files, clock, "seat/1")


@pytest.fixture
def carriers() -> Carriers:
    def make(record: records.CarrierRecord) -> Carrier:
        assert record.kind == "simulator", "only simulators here"
        return SIMULATORS[record.channel](1)

    return Carriers(make)


@pytest.fixture
def send(store: Store, clock: TestClock) -> Send:
    async def accept(
        channel: records.Channel, *addresses: str, team: int = 1, price: int = 0, status: str = "sending"
    ) -> str:
        def decide(state: AcceptState) -> Decision:
            pricing.hold(state.account, price)
            recipients = [AcceptedRecipient(address, address, "to") for address in addresses]
            return Decision(response=b"{}", recipients=recipients, price=price)

        message = Acceptance(
            id=clock.new_id("msg_"),
            team=team,
            channel=channel,
            lane=LANE_BY_CHANNEL[channel],
            status=status,
            sandbox=False,
            key_id="key",
            created_at=clock.now(),
            content=b"{}",
            decide=decide,
        )
        await store.messages.accept(message)
        return message.id

    return accept


@pytest.fixture
def timeline(store: Store) -> ReadTimeline:
    """Return a message's timeline; checks that published events are numbered from 1."""

    async def read(id_: str) -> list[str]:
        message = await store.messages.get(1, id_)
        assert message
        sequences = [event.sequence for event in message.events if event.sequence is not None]
        assert sequences == list(range(1, len(sequences) + 1))
        return [event.type.rpartition(".")[2] for event in message.events]

    return read
