"""Each magic recipient of contract 13: its outcome at the send, and its later reports."""

import pytest

from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.carriers.email.simulator import EmailSimulator
from heliograph.carriers.sms.simulator import SmsSimulator
from heliograph.carriers.whatsapp.simulator import WhatsappSimulator
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused

pytestmark = pytest.mark.anyio

STEP_MS = 7
CARRIERS: dict[str, Carrier] = {
    "email": EmailSimulator(STEP_MS),
    "sms": SmsSimulator(STEP_MS),
    "whatsapp": WhatsappSimulator(STEP_MS),
}


async def send(channel: str, address: str, attempt: int = 0) -> Outcome:
    message = OutboundMessage(message_id="msg_1", address=address, content=b"{}", attempt=attempt)
    return await CARRIERS[channel].send_message(message)


@pytest.mark.parametrize(
    ("channel", "address", "attempt", "later"),
    [
        ("email", "delivered@simulator.test", 0, ["delivered"]),
        ("email", "delivered+label@simulator.test", 0, ["delivered"]),
        ("email", "anyone@example.com", 0, ["delivered"]),
        ("email", "asyncbounce@simulator.test", 0, ["delivered", "bounced"]),
        ("email", "complained@simulator.test", 0, ["delivered", "complained"]),
        ("email", "softbounce@simulator.test", 2, ["delivered"]),
        ("email", "suppressed@example.com", 0, ["delivered"]),
        ("sms", "+15005550006", 0, ["delivered"]),
        ("sms", "+15005551000", 0, ["delivered"]),
        ("sms", "+447700900123", 0, ["delivered"]),
        ("sms", "+15005550004", 0, ["failed"]),
        ("sms", "+15005550005", 0, ["delivered"]),
        ("sms", "+15005550009", 0, ["delivered"]),
        ("whatsapp", "+15005550006", 0, ["delivered", "read"]),
        ("whatsapp", "+15005551099", 0, ["delivered", "read"]),
        ("whatsapp", "+447700900123", 0, ["delivered", "read"]),
        ("whatsapp", "+15005550004", 0, ["failed"]),
        ("whatsapp", "+15005550005", 0, ["delivered"]),
        ("whatsapp", "+15005550009", 0, ["read"]),
    ],
)
async def test_accepting_address_is_accepted_and_reported(
    channel: str, address: str, attempt: int, later: list[str]
) -> None:
    outcome = await send(channel, address, attempt)
    assert isinstance(outcome, Accepted)
    assert [(after, report.status) for after, report in outcome.reports] == [(STEP_MS, s) for s in later]
    assert all("simulator" in report.detail["text"] for _, report in outcome.reports)
    assert outcome.detail["carrier"] == "simulator"


@pytest.mark.parametrize(
    ("channel", "address", "bounced", "words"),
    [
        ("email", "bounced@simulator.test", True, "550 5.1.1"),
        ("email", "failed@simulator.test", False, "554 5.7.1"),
        ("sms", "+15005550001", False, "invalid number"),
        ("sms", "+15005550007", False, "no route"),
        ("whatsapp", "+15005550001", False, "invalid number"),
        ("whatsapp", "+15005550007", False, "no route"),
    ],
)
async def test_refusing_address_is_refused(channel: str, address: str, bounced: bool, words: str) -> None:
    outcome = await send(channel, address)
    assert isinstance(outcome, Refused)
    assert outcome.bounced == bounced
    assert words in outcome.detail["text"]
    assert outcome.detail["carrier"] == "simulator"


@pytest.mark.parametrize("attempt", [0, 1])
async def test_soft_bounce_address_is_deferred_twice(attempt: int) -> None:
    outcome = await send("email", "softbounce@simulator.test", attempt)
    assert isinstance(outcome, Deferred)
    assert outcome.retry_after_ms == STEP_MS
    assert outcome.detail["code"] == "451"


@pytest.mark.parametrize(
    ("address", "reason"),
    [("asyncbounce@simulator.test", "bounce"), ("complained@simulator.test", "complaint")],
)
async def test_last_simulated_report_alone_suppresses(address: str, reason: str) -> None:
    outcome = await send("email", address)
    assert isinstance(outcome, Accepted)
    assert [report.suppress for _, report in outcome.reports] == [None, reason]


async def test_every_recipient_has_its_own_carrier_id() -> None:
    first = await send("email", "a@example.com")
    second = await send("email", "b@example.com")
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert first.carrier_id != second.carrier_id
