"""The page of a message says whether it arrived, and if not why and what to do: one state after the other."""

from typing import Any

import pytest
from markupsafe import escape
from msgspec.structs import replace

from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.circuit import Circuit
from heliograph.domain.events import mark_simulated
from heliograph.domain.sending.send_options import ExtraFields
from heliograph.domain.setup.records import CarrierRecord, Domain, Key, TeamRecord
from heliograph.storage.outcomes import RecipientUpdate, RetryPlan
from heliograph.storage.setup import NewSuppression
from heliograph.storage.store import Store
from tests.dashboard.inside import PageResult, Pages, write_records
from tests.storage.samples import message
from tests.storage.test_idempotency import make_context

HERE = "/dashboard/teams/team_acme"
CONTENTS = {
    "email": b'{"from_name":"Acme","from_address":"a@acme.test","to":["a@example.com"],"subject":"Hello","text":"Hi"}',
    "sms": b'{"body":"Hi","sender_id":"ACME","encoding":"gsm7","segments":1,"parts":1}',
    "whatsapp": b'{"body":"Hi","template":"hi","language":"en","parameters":[]}',
}
NO_USER = {"host": "mx.example.com", "code": "550", "enhanced": "5.1.1", "text": "550 5.1.1 No such user <here>"}
FULL = {"host": "mx.example.com", "code": "452", "enhanced": "4.2.2", "text": "452 4.2.2 over quota"}
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme", mode="live")
    domain = Domain(id="dom_acme", team=record.id, name="acme.test", brand="Acme", verified=True, approved=True)
    key = Key(id="key_1", team=record.id, name="Shop", hash="x")
    await write_records(
        store,
        ("team", record.id, record, record.id),
        ("domain", domain.id, domain, record.id),
        ("key", key.id, key, record.id),
    )
    return Pages(make_context(store, clock))


class SentMessage:
    """A message whose outcomes the test records."""

    def __init__(self, pages: Pages, store: Store, clock: Any) -> None:
        self.pages, self.store, self.clock, self.id = pages, store, clock, ""

    async def accept(self, *to: str, channel: str = "email", **more: Any) -> None:
        item = message(self.clock, *to, channel=channel, **more)
        await self.store.messages.accept(replace(item, content=CONTENTS[channel]))
        self.id = item.id

    async def record_outcome(self, status: str | None, detail: dict[str, Any], to: str = "", **more: Any) -> None:
        for claim in await self.store.outbox.claim("email", 9) + await self.store.outbox.claim("phone", 9):
            if to and claim.given_address != to:
                continue
            later = RetryPlan(due_at=self.clock.now() + 60_000, attempt=1) if status is None else None
            change = RecipientUpdate(
                at=self.clock.now(), message=claim.message, position=claim.position, target_status=status
            )
            change = replace(change, claim=claim.token, retry=later, detail=detail, **more)
            assert await self.store.outbox.record(change)

    async def page(self, who: str = "owner") -> PageResult:
        return await self.pages.get(f"{HERE}/messages/{self.id}", who)


@pytest.fixture
async def sent(pages: Pages, store: Store, clock: Any) -> SentMessage:
    return SentMessage(pages, store, clock)


@pytest.mark.parametrize(
    ("channel", "wanted", "detail", "said"),
    [
        ("email", "delivered", {"text": "250 OK"}, ["Delivered", "mail server accepted the email"]),
        ("sms", "delivered", {"carrier": "smpp"}, ["Delivered", "delivery to the phone"]),
        ("whatsapp", "read", {"carrier": "cloud_api"}, ["Delivered and read"]),
        ("email", "sent", {"text": "250 queued"}, ["Sent, not confirmed yet", "The relay accepted the email"]),
        ("email", "complained", {"text": "feedback report: abuse"}, ["marked as spam", "feedback report: abuse"]),
        (
            "email",
            "failed",
            {"text": "554 5.7.1 listed at zen.spamhaus.org", "code": "554", "enhanced": "5.7.1"},
            ["Not delivered", "on a blocklist", "554 5.7.1 listed"],
        ),
        (
            "email",
            "failed",
            FULL | {"expired": True},
            [
                "Not delivered: retries exhausted",
                "The mailbox is full. We stopped retrying after 5 days",
                "452 4.2.2 over quota",
            ],
        ),
        (
            "sms",
            "failed",
            {"carrier": "smpp", "code": "0x0000000b", "text": "invalid destination address (ESME_RINVDSTADR)"},
            ["not a valid phone number", "0x0000000b invalid destination address (ESME_RINVDSTADR)"],
        ),
        (
            "sms",
            "failed",
            {"carrier": "smpp", "state": "EXPIRED", "text": "expired before it could be delivered"},
            ["could not be delivered in time", "EXPIRED expired before"],
        ),
        ("sms", "failed", {"carrier": "twilio", "code": "canceled", "text": "canceled"}, ["The message was canceled"]),
        (
            "whatsapp",
            "failed",
            {"carrier": "cloud_api", "code": "131026", "text": "no WhatsApp", "said": "Message undeliverable"},
            ["can't receive WhatsApp", "131026 Message undeliverable", "Send an SMS instead"],
        ),
    ],
)
async def test_message_page_explains_each_status(
    sent: SentMessage, channel: str, wanted: str, detail: dict[str, Any], said: list[str]
) -> None:
    to = "ada@example.com" if channel == "email" else "+4915112345678"
    await sent.accept(to, channel=channel)
    await sent.record_outcome(wanted, detail)
    page = await sent.page()
    assert page.status == 200
    for words in said:
        assert words in page.text


@pytest.mark.both_databases
async def test_queued_message_with_paused_delivery_names_the_pause(sent: SentMessage, store: Store) -> None:
    await sent.accept("ada@example.com", status="queued")
    assert "Waiting to be sent The message is in the queue" in (await sent.page()).text
    await write_records(store, ("platform", "platform", replace(store.setup.current.platform, paused=True), None))
    assert "Delivery is paused on this instance" in (await sent.page()).text


async def test_message_page_shows_tags_and_metadata(sent: SentMessage) -> None:
    await sent.accept(extra_fields=ExtraFields(tags={"kind": "receipt"}, metadata={"order": 4711}, priority="critical"))
    shown = await sent.page()
    assert "Priority Critical" in shown.text and '"order": 4711' in shown.text
    assert f'<a href="{HERE}/messages?tag=kind%3Areceipt">kind: receipt</a>' in shown.html


async def test_deferred_message_shows_next_attempt(sent: SentMessage) -> None:
    await sent.accept("ada@example.com")
    await sent.record_outcome(None, FULL | {"next_attempt_at": "2030-01-02T03:04:05.000Z"})
    page = await sent.page()
    for words in ("Not delivered yet", "The mailbox is full.", "452 4.2.2 over quota", "No action is needed"):
        assert words in page.text
    assert 'datetime="2030-01-02T03:04:05.000Z"' in page.html


async def test_resending_bounced_message_shows_warning(sent: SentMessage, store: Store) -> None:
    await sent.accept("gone@example.com")
    await sent.record_outcome("bounced", NO_USER, suppress="bounce")
    page = await sent.page()
    for words in (
        "Not delivered: bounced",
        "This mailbox doesn't exist.",
        "Response from mx.example.com",
        "550 5.1.1 No such user",
    ):
        assert words in page.text
    assert "&lt;here&gt;" in page.html  # the peer's reply is escaped
    # The address is suppressed now: a send would be refused, so the page links to the list and has no button.
    assert "gone@example.com was added to your suppression list" in page.text
    assert f"{HERE}/suppressions/remove?email=gone%40example.com" in page.html
    assert "Send again" not in page.text
    assert "Remove from list" not in (await sent.page("viewer")).text
    await store.suppressions.remove(1, "gone@example.com", COMMAND_LINE.audit_entry(0, "x", "y"))
    page = await sent.page()
    assert "is not on the suppression list" in page.text
    assert "Send again anyway" in page.text
    assert "This mailbox doesn&#39;t exist. Resending will probably fail again." in page.html


async def test_resending_temporary_failure_shows_no_warning(sent: SentMessage) -> None:
    await sent.accept("ada@example.com")
    await sent.record_outcome("failed", FULL | {"expired": True})
    page = await sent.page()
    assert '<button class="main">Send again</button>' in page.html


async def test_message_page_names_suppressed_recipient(sent: SentMessage, store: Store, clock: Any) -> None:
    await sent.accept("ada@example.com")
    entry = COMMAND_LINE.audit_entry(clock.now(), "suppression.add", "ada@example.com", team="team_acme")
    await store.suppressions.add(NewSuppression(1, "ada@example.com", "ada@example.com", "manual"), entry)
    await sent.record_outcome("delivered", {"text": "250 OK"})
    assert "ada@example.com was added to your suppression list" in (await sent.page()).text


async def test_simulated_sandbox_message_is_marked(sent: SentMessage) -> None:
    await sent.accept("delivered@simulator.test", sandbox=True)
    await sent.record_outcome("delivered", mark_simulated({"text": "250 OK (simulator)"}))
    page = await sent.page()
    for words in ("Delivered (simulated)", "Nothing was actually sent", "is a test recipient", "Sent in the sandbox"):
        assert words in page.text
    assert 'class="box plain"' in page.html  # not green: no real message was sent


async def test_multiple_recipients_have_one_row_each(sent: SentMessage) -> None:
    await sent.accept("ada@example.com", "gone@example.com", "full@example.com")
    await sent.record_outcome("delivered", {"text": "250 OK"}, "ada@example.com")
    for claim_to, status, detail in (("gone@example.com", "bounced", NO_USER), ("full@example.com", None, FULL)):
        sent.clock.forward(10**9)
        await sent.store.outbox.release_own()
        await sent.record_outcome(status, detail, claim_to)
    page = await sent.page()
    assert "1 of 3 recipients did not get this message." in page.text
    for words in ("Delivered ada@example.com", "Bounced gone@example.com", "Sending full@example.com"):
        assert words in page.text
    assert page.html.count('class="timeline"') == 3


async def test_dead_letter_message_page_names_hold_and_retry(sent: SentMessage, store: Store) -> None:
    await sent.accept("ada@example.com")
    await sent.record_outcome("failed", {"reason": "quarantined", "text": "3 workers died"})
    assert "Processing this message failed repeatedly, so it is held." in (await sent.page()).text
    assert "/dashboard/operator/queues" in (await sent.page("operator")).html
    (letter,) = await store.dead_letters.list_page()
    await store.dead_letters.retry([letter.key], COMMAND_LINE.audit_entry(0, "deadletter.retry", ""))
    assert "An operator queued the message again." in (await sent.page()).text


async def test_timeline_shows_full_replies(sent: SentMessage) -> None:
    long = "451 4.7.1 " + "Please come back later." * 20
    await sent.accept("ada@example.com")
    await sent.record_outcome(None, {"host": "mx.example.com", "code": "451", "text": long})
    page = await sent.page()
    assert f'<p class="reply">{long}</p>' in page.html
    assert "<table" not in page.html.partition('id="moving"')[2].partition('id="content"')[0]


SIDES = [
    (NO_USER, "Recipient's side"),
    ({"carrier": "smtp", "code": "550", "text": "550 relaying denied by policy"}, "Our carrier's side"),
    ({"code": "550", "enhanced": "5.7.26", "text": "550 5.7.26 DMARC"}, "Your side"),
    ({"reason": "quarantined", "text": "3 workers died"}, "Our side"),
]


@pytest.mark.parametrize(("detail", "side"), SIDES)
async def test_explanation_names_responsible_side(sent: SentMessage, detail: dict[str, Any], side: str) -> None:
    await sent.accept("ada@example.com")
    await sent.record_outcome("failed", detail)
    assert f'<span class="whose">{escape(side)}</span>' in (await sent.page()).html.partition('class="aspects"')[0]


async def test_message_waiting_for_unreachable_carrier_says_so(sent: SentMessage, store: Store, clock: Any) -> None:
    relay = CarrierRecord(id="our-relay", channel="email", kind="smtp", options={"host": "relay.test"})
    await write_records(store, ("carrier", relay.id, relay, None))
    for _ in range(2):
        await sent.accept("ada@example.com")
        due = clock.now() + 60_000
        for claim in await store.outbox.claim("email", 9):
            change = RecipientUpdate(at=clock.now(), message=claim.message, position=claim.position, target_status=None)
            later = RetryPlan(due_at=due, attempt=0, held_at=clock.now())
            detail = {"reason": "out_of_reach", "text": "no carrier can be reached"}
            await store.outbox.record(replace(change, claim=claim.token, detail=detail, retry=later))
    assert "Waiting for our" not in (await sent.page()).text  # it is there again
    await store.circuits.replace(relay.id, None, Circuit(id=relay.id, since=clock.now(), until=due))
    page = await sent.page()
    for words in (
        "Waiting for our mail relay our-relay Our carrier's side",
        "2 messages of this team are queued for it",
    ):
        assert words in page.text
    assert "Contact your operator" in page.text and "/dashboard/operator" not in page.html.partition("<main")[2]
    assert "/dashboard/operator/carriers/our-relay" in (await sent.page("operator")).html
