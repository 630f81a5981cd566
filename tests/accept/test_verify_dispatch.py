"""Carrier calls within a verify request: which carriers are called, the response, and the price."""

import asyncio
from typing import Literal

import msgspec
import pytest

from heliograph.accept import verify_send
from heliograph.accept.verify_send import NO_CARRIER_MESSAGE
from heliograph.accept.verify_start import VerifyRequest, preview_verification
from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.domain.delivery.circuit import FAILURES_TO_OPEN
from heliograph.domain.delivery.content import SmsContent
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.refusals import InsufficientCredit, VerifyRateLimited
from heliograph.domain.setup.records import VerifyLimits
from heliograph.storage.store import Store
from tests.accept.verify_helpers import PRICE, VerifyEnvironment, code_in_message
from tests.clocks import TestClock

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]

PHONE = "+447400123456"
CREDIT = 10 * PRICE
WORDS = "unallocated number"

ACCEPT = Accepted(carrier_id="1")
REFUSE = Refused(detail={"text": WORDS})
DEFER = Deferred(detail={"text": "busy"})
AWAY = Deferred(detail={"text": "connection refused"}, unreachable=True)
UNSURE = Deferred(detail={"text": "no answer"}, uncertain=True)
BROKEN = OSError("broken")
SILENT: Literal["silent"] = "silent"
Answer = Outcome | Exception | Literal["silent"]


class FakeCarrier(Carrier):
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.messages: list[OutboundMessage] = []

    async def send_message(self, message: OutboundMessage) -> Outcome:
        self.messages.append(message)
        if self.answer == SILENT:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        assert not isinstance(self.answer, str)
        return self.answer


async def start_with_carriers(
    store: Store, clock: TestClock, *answers: Answer, **limits: object
) -> tuple[VerifyEnvironment, list[FakeCarrier]]:
    lines = [FakeCarrier(answer) for answer in answers]
    verifying = VerifyEnvironment(store, clock, {f"line-{number}": line for number, line in enumerate(lines)})
    await verifying.set_up(CREDIT, msgspec.convert(limits, VerifyLimits))
    return verifying, lines


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_send, "CARRIERS_TIMEOUT_S", 0.2)


@pytest.mark.usefixtures("short_wait")
@pytest.mark.parametrize(
    ("answers", "status", "error", "asked"),
    [
        ([ACCEPT, ACCEPT], "pending", None, 1),
        ([REFUSE, ACCEPT], "failed", WORDS, 1),
        ([Refused()], "failed", "The carrier refused the message.", 1),
        ([DEFER, ACCEPT], "pending", None, 2),
        ([AWAY, ACCEPT], "pending", None, 2),
        ([BROKEN, ACCEPT], "pending", None, 2),
        ([DEFER, REFUSE], "failed", WORDS, 2),
        ([AWAY, DEFER], "failed", "busy", 2),
        ([DEFER, AWAY, ACCEPT], "failed", "connection refused", 2),
        ([DEFER], "failed", "busy", 1),
        # A carrier that did not respond may have sent the code, so the code must work.
        ([SILENT, ACCEPT], "pending", None, 2),
        ([UNSURE, ACCEPT], "pending", None, 2),
        ([SILENT, SILENT, ACCEPT], "pending", None, 2),
        ([SILENT], "pending", None, 1),
        ([SILENT, REFUSE], "pending", None, 2),
        ([UNSURE, AWAY], "pending", None, 2),
        ([AWAY, SILENT], "pending", None, 2),
    ],
)
async def test_carrier_outcome_decides_the_verification_response(
    store: Store, clock: TestClock, answers: list[Answer], status: str, error: str | None, asked: int
) -> None:
    verifying, lines = await start_with_carriers(store, clock, *answers)
    started = await verifying.start(PHONE)
    assert (started.status, started.error_message) == (status, error)
    assert [len(line.messages) for line in lines] == [1] * asked + [0] * (len(lines) - asked)
    uses = await store.carrier_stats.read_recent(clock.now())
    assert [uses[f"line-{place}"].hour[:3] for place in range(asked)] == [
        (isinstance(item, Accepted), isinstance(item, Refused), not isinstance(item, Accepted | Refused))
        for item in answers[:asked]
    ]
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (CREDIT - (PRICE if status == "pending" else 0), 0)
    stored = await store.verifications.get(1, started.id)
    assert stored
    assert (stored.status, stored.error_message) == (status, error)
    checked = await verifying.check(started.id, code_in_message(lines[0].messages[0]))
    assert (checked.verified, checked.status) == (status == "pending", "verified" if status == "pending" else "failed")


async def test_country_without_a_carrier_is_refused(store: Store, clock: TestClock) -> None:
    verifying, (line,) = await start_with_carriers(store, clock, ACCEPT)
    await verifying.serve_only("line-0", "FR")
    started = await verifying.start(PHONE)
    assert (started.status, started.error_message) == ("failed", NO_CARRIER_MESSAGE)
    assert line.messages == []
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (CREDIT, 0)


async def test_carrier_with_an_open_circuit_is_skipped(store: Store, clock: TestClock) -> None:
    verifying, lines = await start_with_carriers(store, clock, AWAY, ACCEPT, min_interval_s=0, per_phone_10m=0)
    for _ in range(FAILURES_TO_OPEN + 3):
        assert (await verifying.start(PHONE)).status == "pending"
    assert [len(line.messages) for line in lines] == [FAILURES_TO_OPEN, FAILURES_TO_OPEN + 3]
    lines[1].answer = AWAY
    for _ in range(FAILURES_TO_OPEN):
        assert (await verifying.start(PHONE)).error_message == "connection refused"
    assert (await verifying.start(PHONE)).error_message == NO_CARRIER_MESSAGE
    account = await store.ledger.get_account(1)
    assert (account.available, account.held) == (CREDIT - (FAILURES_TO_OPEN + 3) * PRICE, 0)


async def test_carrier_error_that_quotes_the_text_does_not_reveal_the_code(store: Store, clock: TestClock) -> None:
    class Parrot(FakeCarrier):
        async def send_message(self, message: OutboundMessage) -> Outcome:
            self.messages.append(message)
            return Refused(detail={"text": f"not allowed: {message.content.decode()}"})

    parrot = Parrot(REFUSE)
    verifying = VerifyEnvironment(store, clock, {"parrot": parrot})
    await verifying.set_up(CREDIT)
    error = (await verifying.start(PHONE)).error_message or ""
    assert error.startswith("not allowed: ")
    assert code_in_message(parrot.messages[0]) not in error


async def test_the_text_in_the_teams_language_with_the_line_for_browsers(store: Store, clock: TestClock) -> None:
    verifying, (line,) = await start_with_carriers(store, clock, ACCEPT, language="de", webotp="acme.test")
    await verifying.start(PHONE)
    content = msgspec.json.decode(line.messages[0].content, type=SmsContent)
    first, last = content.body.splitlines()
    code = first.removeprefix("Acme: Ihr Code ist ")[:6]
    assert last == f"@acme.test #{code}"
    assert (content.encoding, content.parts, content.platform_sender) == ("gsm7", 1, True)


async def test_dry_run_checks_every_limit(store: Store, clock: TestClock) -> None:
    verifying, _ = await start_with_carriers(store, clock, ACCEPT, min_interval_s=30)

    async def preview(phone: str) -> None:
        await preview_verification(verifying.context, verifying.caller, VerifyRequest(to=phone))

    await preview(PHONE)
    await verifying.start(PHONE)
    with pytest.raises(VerifyRateLimited, match="one in 30 s"):
        await preview(PHONE)
    for last in range(CREDIT // PRICE - 1):
        await verifying.start(f"+44740098765{last}")
    with pytest.raises(InsufficientCredit):
        await preview("+447400765432")
    assert (await store.ledger.get_account(1)).available == 0
