"""Codes over several channels: choice of channel and text, the fallback after a failure, and the price."""

from typing import Any

import msgspec
import pytest

from heliograph.accept.verify_send import send_due_codes
from heliograph.bootstrap import open_store
from heliograph.carriers.contract import Carrier, OutboundMessage
from heliograph.domain.delivery.content import EmailContent, SmsContent, WhatsappContent
from heliograph.domain.delivery.outcome import (
    Accepted,
    CarrierReport,
    Deferred,
    DueReport,
    Outcome,
    Refused,
    Report,
)
from heliograph.domain.limits import MINUTE_MS, VERIFICATION_MS
from heliograph.domain.refusals import (
    InvalidEmail,
    InvalidPhone,
    NoApprovedBrandDomain,
    RecipientSuppressed,
    UnsupportedChannel,
    VerificationEnded,
    VerificationNotFound,
    VerifyRateLimited,
)
from heliograph.domain.setup.records import Channel, Domain, LocaleParts, Template, VerifyLimits
from heliograph.domain.setup.snapshot import to_row
from heliograph.domain.verify.verification import CANCELED, RECEIPT_TIMEOUT_MS
from heliograph.domain.verify.verify_text import MAIL_TEXTS_BY_LANGUAGE, TEXT_BY_LANGUAGE, verify_mail
from heliograph.settings import Settings
from heliograph.storage import conversion
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from tests.accept.verify_helpers import KEY, PRICE, VerifyEnvironment, code_in_message
from tests.clocks import TestClock
from tests.setup_helpers import SET_UP, set_up

pytestmark = pytest.mark.anyio

PHONE, MAIL = "+447400123456", "Ada@Example.test"
CREDIT = 10 * PRICE
EXPENSIVE = 3 * PRICE
BOTH = ["whatsapp", "sms"]
REFUSE = Refused(detail={"text": "not on WhatsApp"})
UNSURE = Deferred(detail={"text": "no answer"}, uncertain=True)
DELIVERED, FAILED = Report(status="delivered"), Report(status="failed")
TEMPLATE = Template(
    id="tpl_code",
    team=KEY.team,
    channel="whatsapp",
    name="code",
    upstream_name="login_code",
    category="AUTHENTICATION",
    variables=("code",),
    body="{{customer.code}} is your code.",
    price=EXPENSIVE,
)
DOMAIN = Domain(id="dom_acme", team=KEY.team, name="acme.test", brand="Acme Bank", verified=True, approved=True)


class FakeCarrier(Carrier):
    def __init__(self, name: str) -> None:
        self.answer: Outcome = Accepted(carrier_id=name)
        self.messages: list[OutboundMessage] = []

    async def send_message(self, message: OutboundMessage) -> Outcome:
        self.messages.append(message)
        return self.answer


class FakeChannels:
    """A live team with all channels, and the messages that each carrier received."""

    def __init__(self, store: Store, clock: TestClock) -> None:
        self.store, self.clock = store, clock
        self.whatsapp, self.sms, self.email = FakeCarrier("whatsapp"), FakeCarrier("sms"), FakeCarrier("email")
        lines = {"whatsapp": self.whatsapp, "sms": self.sms, "email": self.email}
        self.verifying = VerifyEnvironment(store, clock, lines)

    async def set_up(self, *channels: Channel, domain: Domain = DOMAIN, **limits: object) -> "FakeChannels":
        verify = msgspec.convert(
            {"channels": channels or ("sms", "whatsapp", "email"), "min_interval_s": 0} | limits, VerifyLimits
        )
        rows = [to_row("template", TEMPLATE.id, TEMPLATE, KEY.team), to_row("domain", domain.id, domain, KEY.team)]
        await self.verifying.set_up(CREDIT, verify, rows)
        return self

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.whatsapp.messages), len(self.sms.messages)

    async def channel_of(self, id_: str) -> str:
        result = await self.store.verifications.get(1, id_)
        assert result
        return result.channel

    async def report(self, carrier: str, report: Report) -> None:
        await self.store.reports.store_by_carrier(carrier, [CarrierReport(carrier, report)])

    async def advance(self, ms: int) -> None:
        self.clock.forward(ms)
        await send_due_codes(self.verifying.context)

    async def charged(self) -> int:
        account = await self.store.ledger.get_account(1)
        assert account.held == 0
        return CREDIT - account.available


@pytest.fixture
async def lines(store: Store, clock: TestClock) -> FakeChannels:
    return await FakeChannels(store, clock).set_up()


async def test_code_sent_by_whatsapp_verifies(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE, "whatsapp")
    assert (started.channel, started.status, started.to) == ("whatsapp", "pending", PHONE)
    content = msgspec.json.decode(lines.whatsapp.messages[0].content, type=WhatsappContent)
    code = content.body[:6]
    assert (content.template, content.parameters, content.button) == ("login_code", [code], code)
    assert await lines.charged() == EXPENSIVE
    assert (await lines.verifying.check(started.id, code)).verified


async def test_code_is_sent_in_the_requested_language(lines: FakeChannels) -> None:
    template = msgspec.structs.replace(
        TEMPLATE, locales={"de": LocaleParts(body="{{customer.code}} gilt.", language="de", upstream_name="kode")}
    )
    await set_up(lines.store, rows=[to_row("template", template.id, template, KEY.team)])
    lines.whatsapp.answer = REFUSE
    started = await lines.verifying.start(PHONE, BOTH, "de-AT")
    result = msgspec.json.decode(lines.whatsapp.messages[0].content, type=WhatsappContent)
    assert (result.template, result.language, result.body[6:]) == ("kode", "de", " gilt.")
    second_result = await lines.verifying.resend(started.id)
    assert second_result.id == started.id
    for message in lines.sms.messages:
        assert "Ihr Code ist" in msgspec.json.decode(message.content, type=SmsContent).body
    assert len(lines.sms.messages) == 2
    await lines.verifying.start(MAIL, "email", "fr-CA")
    assert "est votre code" in msgspec.json.decode(lines.email.messages[0].content, type=EmailContent).subject


async def test_next_channel_sends_the_code_in_the_same_language(lines: FakeChannels) -> None:
    await lines.verifying.start(PHONE, BOTH, "de")
    await lines.advance(RECEIPT_TIMEOUT_MS)
    (message,) = lines.sms.messages
    assert "Ihr Code ist" in msgspec.json.decode(message.content, type=SmsContent).body


async def test_code_sent_by_email_verifies(lines: FakeChannels) -> None:
    started = await lines.verifying.start(MAIL, "email")
    assert (started.channel, started.status, started.to) == ("email", "pending", MAIL)
    (message,) = lines.email.messages
    assert (message.address, message.original_address) == ("ada@example.test", MAIL)
    content = msgspec.json.decode(message.content, type=EmailContent)
    assert (content.from_address, content.from_name, content.to) == ("no-reply@acme.test", "Acme Bank", [MAIL])
    code = content.subject.partition(" ")[0]
    assert content.subject == f"{code} is your Acme Bank code"
    assert code in (content.text or "")
    assert code in (content.html or "")
    assert await lines.charged() == PRICE
    stored = await lines.store.verifications.get(1, started.id)
    assert stored
    assert (stored.to, stored.phone) == (MAIL, "ada@example.test")
    assert (await lines.verifying.check(started.id, code)).verified


@pytest.mark.parametrize("language", TEXT_BY_LANGUAGE)
def test_code_mail_exists_in_every_language_of_the_sms(language: str) -> None:
    mail = verify_mail({}, language, "Acme", "042042")
    assert set(MAIL_TEXTS_BY_LANGUAGE) == set(TEXT_BY_LANGUAGE)
    assert "042042" in mail.subject
    assert "Acme" in mail.subject
    assert "{" not in mail.summary + mail.footer
    assert "10" in mail.summary


def test_text_of_the_platform_is_used_in_code_mails() -> None:
    mail = verify_mail({"cs": "Kod {{code}}"}, "cs", "Acme", "042042")
    assert (mail.summary, mail.footer) == ("Kod 042042", "")


@pytest.mark.parametrize(
    ("to", "channel", "refusal"),
    [
        (PHONE, "email", InvalidEmail),
        ("Ada <a@example.test>", "email", InvalidEmail),
        (None, "email", InvalidEmail),
        (MAIL, "whatsapp", InvalidPhone),
        (MAIL, ["email", "sms"], InvalidPhone),
        (PHONE, ["sms", "email"], InvalidEmail),
        (PHONE, "call", UnsupportedChannel),
    ],
)
async def test_channel_that_cannot_reach_the_recipient_is_refused(
    lines: FakeChannels, to: str, channel: str | list[str], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        await lines.verifying.start(to, channel)
    assert await lines.charged() == 0


async def test_channel_not_enabled_by_the_operator_is_refused(store: Store, clock: TestClock) -> None:
    lines = await FakeChannels(store, clock).set_up("sms")
    for channel in ("whatsapp", "email", BOTH):
        with pytest.raises(UnsupportedChannel):
            await lines.verifying.start(PHONE, channel)


async def test_code_mail_needs_a_domain_and_an_unsuppressed_address(store: Store, clock: TestClock) -> None:
    lines = await FakeChannels(store, clock).set_up(domain=msgspec.structs.replace(DOMAIN, approved=False))
    with pytest.raises(NoApprovedBrandDomain):
        await lines.verifying.start(MAIL, "email")
    await set_up(store, rows=[to_row("domain", DOMAIN.id, DOMAIN, KEY.team)])
    await store.suppressions.add(NewSuppression(1, "ada@example.test", MAIL, "bounce"), SET_UP)
    with pytest.raises(RecipientSuppressed):
        await lines.verifying.start("ADA@example.test", "email")
    assert lines.email.messages == []


async def test_code_mail_has_recipient_limits_but_no_number_limits(store: Store, clock: TestClock) -> None:
    lines = await FakeChannels(store, clock).set_up(countries=["FR"], per_prefix_10m=1, per_phone_10m=2)
    for address in ("a@example.test", "b@example.test", "c@example.test"):
        assert (await lines.verifying.start(address, "email")).status == "pending"
    await lines.verifying.start("d@example.test", "email")
    with pytest.raises(VerifyRateLimited):
        await lines.verifying.start("D@example.test", "email")


# -- one channel after the other --------------------------------------------------------------------------------------


async def test_refused_code_is_sent_by_the_next_channel_at_once(lines: FakeChannels) -> None:
    lines.whatsapp.answer = REFUSE
    started = await lines.verifying.start(PHONE, BOTH)
    assert (started.channel, started.status, started.error_message) == ("sms", "pending", None)
    assert lines.counts == (1, 1)
    assert code_in_message(lines.whatsapp.messages[0]) == code_in_message(lines.sms.messages[0])
    assert await lines.charged() == EXPENSIVE
    await lines.advance(RECEIPT_TIMEOUT_MS)
    assert lines.counts == (1, 1)


async def test_code_refused_by_every_channel_fails_and_is_free(lines: FakeChannels) -> None:
    lines.whatsapp.answer, lines.sms.answer = REFUSE, Refused(detail={"text": "no such number"})
    started = await lines.verifying.start(PHONE, BOTH)
    assert (started.channel, started.status, started.error_message) == ("sms", "failed", "no such number")
    assert await lines.charged() == 0


@pytest.mark.parametrize("answer", [Accepted(carrier_id="whatsapp"), UNSURE])
async def test_code_without_a_receipt_is_sent_by_the_next_channel(lines: FakeChannels, answer: Outcome) -> None:
    lines.whatsapp.answer = answer
    started = await lines.verifying.start(PHONE, BOTH)
    assert (started.channel, started.status) == ("whatsapp", "pending")
    await lines.advance(RECEIPT_TIMEOUT_MS // 2)
    assert lines.counts == (1, 0)
    await lines.advance(RECEIPT_TIMEOUT_MS // 2)
    await lines.advance(RECEIPT_TIMEOUT_MS)
    assert lines.counts == (1, 1)
    assert await lines.channel_of(started.id) == "sms"
    code = code_in_message(lines.sms.messages[0])
    assert code == code_in_message(lines.whatsapp.messages[0])
    assert await lines.charged() == EXPENSIVE
    assert (await lines.verifying.check(started.id, code)).verified


@pytest.mark.parametrize("status", ["delivered", "read"])
async def test_delivery_receipt_prevents_the_next_channel(lines: FakeChannels, status: str) -> None:
    started = await lines.verifying.start(PHONE, BOTH)
    await lines.report("whatsapp", Report(status="sent"))
    await lines.report("whatsapp", Report(status=status))
    await lines.advance(VERIFICATION_MS - 1)
    assert lines.counts == (1, 0)
    assert await lines.channel_of(started.id) == "whatsapp"


async def test_receipt_before_the_send_is_recorded_is_applied(lines: FakeChannels) -> None:
    await lines.report("whatsapp", DELIVERED)
    await lines.verifying.start(PHONE, BOTH)
    await lines.store.reports.apply_early_reports()
    await lines.advance(RECEIPT_TIMEOUT_MS)
    assert lines.counts == (1, 0)


async def test_failure_receipt_sends_the_code_by_the_next_channel_at_once(lines: FakeChannels) -> None:
    await lines.verifying.start(PHONE, BOTH)
    await lines.report("whatsapp", FAILED)
    await lines.advance(0)
    assert lines.counts == (1, 1)


@pytest.mark.parametrize(
    ("report", "after_ms", "expected"),
    [(DELIVERED, RECEIPT_TIMEOUT_MS, (1, 0)), (FAILED, 9_000, (1, 1)), (FAILED, 0, (1, 0))],
)
async def test_simulated_report_time_decides_when_the_next_channel_starts(
    lines: FakeChannels, report: Report, after_ms: int, expected: tuple[int, int]
) -> None:
    lines.whatsapp.answer = Accepted(carrier_id="1", reports=[DueReport(9_000, report)])
    await lines.verifying.start(PHONE, BOTH)
    await lines.advance(after_ms)
    assert lines.counts == expected


@pytest.mark.parametrize("end", ["verified", "exhausted", "canceled", "expired"])
@pytest.mark.both_databases
async def test_ended_verification_sends_no_fallback(lines: FakeChannels, end: str) -> None:
    started = await lines.verifying.start(PHONE, BOTH)
    code = code_in_message(lines.whatsapp.messages[0])
    if end == "verified":
        await lines.verifying.check(started.id, code)
    elif end == "exhausted":
        for _ in range(5):
            await lines.verifying.check(started.id, "wrong")
    elif end == "canceled":
        await lines.verifying.cancel(started.id)
    await lines.advance(VERIFICATION_MS if end == "expired" else RECEIPT_TIMEOUT_MS)
    assert lines.counts == (1, 0)


async def test_refusal_by_the_next_channel_keeps_the_sent_code_valid(lines: FakeChannels) -> None:
    lines.sms.answer = REFUSE
    started = await lines.verifying.start(PHONE, BOTH)
    await lines.advance(RECEIPT_TIMEOUT_MS)
    assert lines.counts == (1, 1)
    assert (await lines.verifying.check(started.id, code_in_message(lines.whatsapp.messages[0]))).verified
    assert await lines.charged() == EXPENSIVE


async def test_fallback_code_is_sent_by_one_process_only(lines: FakeChannels, settings: Settings) -> None:
    started = await lines.verifying.start(PHONE, BOTH)
    lines.clock.forward(RECEIPT_TIMEOUT_MS)
    async with open_store(settings, lines.clock, "seat/1") as other:
        assert [item.id for item in await other.verifications.claim_codes(other.owner, 10)] == [started.id]
        await lines.advance(0)
        assert lines.counts == (1, 0)
        await other.outbox.release_own()  # the process died and has restarted
    await lines.advance(0)
    assert lines.counts == (1, 1)
    assert (await lines.verifying.check(started.id, code_in_message(lines.sms.messages[0]))).verified


async def test_revoked_key_sends_no_fallback_code(lines: FakeChannels) -> None:
    await lines.verifying.start(PHONE, BOTH)
    await set_up(lines.store, rows=[to_row("key", KEY.id, None, KEY.team)])
    await lines.advance(RECEIPT_TIMEOUT_MS)
    await lines.advance(RECEIPT_TIMEOUT_MS)
    assert lines.counts == (1, 0)


# -- again, and called back -------------------------------------------------------------------------------------------


async def test_resent_verification_has_the_same_code(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE)
    lines.clock.forward(60_000)
    second_result = await lines.verifying.resend(started.id)
    assert second_result == started
    first, second = map(code_in_message, lines.sms.messages)
    assert first == second
    assert await lines.charged() == PRICE
    assert (await lines.verifying.check(started.id, second)).verified


@pytest.mark.both_databases
async def test_resend_uses_the_last_channel_and_those_after_it(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE, BOTH)
    await lines.verifying.resend(started.id)
    assert lines.counts == (2, 0)
    await lines.advance(RECEIPT_TIMEOUT_MS)
    assert lines.counts == (2, 1)
    await lines.verifying.resend(started.id)
    await lines.advance(RECEIPT_TIMEOUT_MS)
    assert lines.counts == (2, 2)


async def test_validity_of_a_code_message_ends_with_the_code(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE)
    await lines.advance(9 * MINUTE_MS)
    await lines.verifying.resend(started.id)
    assert [message.seconds_left for message in lines.sms.messages] == [600, 60]


async def test_refused_resend_leaves_the_first_code_valid(lines: FakeChannels) -> None:
    """Only a failed verification has an `error_message` (spec 2.5)."""
    started = await lines.verifying.start(PHONE)
    lines.sms.answer = REFUSE
    for record in (await lines.verifying.resend(started.id), await lines.verifying.read(started.id)):
        assert (record.status, record.error_message) == ("pending", None)
    assert (await lines.verifying.check(started.id, code_in_message(lines.sms.messages[0]))).verified


@pytest.mark.parametrize(
    ("limits", "resends"),
    [
        ({"min_interval_s": 30}, 0),
        ({"per_phone_10m": 3}, 2),
        ({"per_phone_day": 4}, 3),
        ({"per_prefix_10m": 2}, 1),
    ],
)
async def test_resend_has_the_limits_of_a_start(
    store: Store, clock: TestClock, limits: dict[str, Any], resends: int
) -> None:
    lines = await FakeChannels(store, clock).set_up(**limits)
    started = await lines.verifying.start(PHONE)
    for _ in range(resends):
        await lines.verifying.resend(started.id)
    for another in (lines.verifying.resend(started.id), lines.verifying.start(PHONE)):
        with pytest.raises(VerifyRateLimited):
            await another
    assert len(lines.sms.messages) == 1 + resends


async def test_resend_counts_for_the_pumping_guard(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE)
    await lines.verifying.resend(started.id)
    lines.sms.answer = REFUSE
    await lines.verifying.resend(started.id)
    now = lines.clock.now()
    tallies = await lines.store.database.read(lambda tx: conversion.read_tallies(tx, {(1, PHONE): now}))
    assert [sum(starts for starts, _ in tally.values()) for tally in tallies.values()] == [2, 2, 2]


async def test_resend_needs_a_pending_verification(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE)
    await lines.verifying.cancel(started.id)
    with pytest.raises(VerificationEnded):
        await lines.verifying.resend(started.id)
    with pytest.raises(VerificationNotFound):
        await lines.verifying.resend("vrf_none")
    expired = await lines.verifying.start(PHONE)
    lines.clock.forward(VERIFICATION_MS)
    with pytest.raises(VerificationEnded):
        await lines.verifying.resend(expired.id)


async def test_code_of_a_replaced_master_secret_is_not_resent(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE)
    lines.verifying.context = msgspec.structs.replace(lines.verifying.context, code_key=b"another")
    with pytest.raises(VerificationEnded):
        await lines.verifying.resend(started.id)


async def test_canceled_verification_is_invalid_and_still_charged(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE)
    for _ in range(2):
        canceled = await lines.verifying.cancel(started.id)
        assert (canceled.status, canceled.error_message) == ("failed", CANCELED)
    checked = await lines.verifying.check(started.id, code_in_message(lines.sms.messages[0]))
    assert (checked.verified, checked.status) == (False, "failed")
    assert await lines.charged() == PRICE


async def test_ended_verification_cannot_be_canceled(lines: FakeChannels) -> None:
    started = await lines.verifying.start(PHONE)
    await lines.verifying.check(started.id, code_in_message(lines.sms.messages[0]))
    assert (await lines.verifying.cancel(started.id)).status == "verified"
    with pytest.raises(VerificationNotFound):
        await lines.verifying.cancel("vrf_none")
