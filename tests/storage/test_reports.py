"""Reports by the carriers' ids: parts of long messages, and reports that arrive before the send is recorded."""

import json
from functools import partial
from typing import Any

import pytest

from heliograph.domain.delivery.outcome import CarrierReport, Report
from heliograph.inbound.store.opt_outs import add_opt_outs
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import RecipientUpdate
from heliograph.storage.store import Store
from tests.storage.samples import PHONE, message

pytestmark = pytest.mark.anyio

DELIVERED, FAILED, SENT = (Report(status=status) for status in ("delivered", "failed", "sent"))


BOUNCED = Report(status="bounced", suppress="bounce", detail={"text": "550 5.1.1 no such user"})


async def mail(store: Store, clock: Any, *more: str) -> str:
    item = message(clock, "ada@example.com", *more)
    await store.messages.accept(item)
    return item.id


async def accept_recipient(store: Store, clock: Any, target_status: str = "sent") -> None:
    """Record that a carrier accepted the message for one more recipient."""
    (claim,) = await store.outbox.claim("email", 1)
    change = RecipientUpdate(
        at=clock.now(),
        message=claim.message,
        position=claim.position,
        claim=claim.token,
        target_status=target_status,
        accepted=True,
        carrier="relay",
        carrier_id=f"{claim.message_id}/{claim.position}",
    )
    assert await store.outbox.record(change)


async def accepted(store: Store, clock: Any) -> str:
    item = message(clock, PHONE, channel="sms")
    await store.messages.accept(item)
    return item.id


async def accepted_message(
    store: Store, clock: Any, *, carrier_id: str | None = None, parts: tuple[str, ...] = ()
) -> str:
    """Return a message that carrier `c` accepted."""
    id_ = await accepted(store, clock)
    await record(store, clock, await claimed(store), carrier_id=carrier_id, parts=parts)
    return id_


async def claimed(store: Store) -> Claim:
    (claim,) = await store.outbox.claim("phone", 1)
    return claim


async def record(
    store: Store, clock: Any, claim: Claim, *, carrier_id: str | None = None, parts: tuple[str, ...] = ()
) -> None:
    change = RecipientUpdate(
        at=clock.now(),
        message=claim.message,
        position=claim.position,
        claim=claim.token,
        target_status="sent",
        accepted=True,
        carrier="c",
        carrier_id=carrier_id,
        parts=parts,
    )
    assert await store.outbox.record(change)


async def status(store: Store, id_: str) -> str:
    result = await store.messages.get(1, id_)
    assert result
    return result.status


async def told(store: Store, id_: str) -> list[str]:
    result = await store.messages.get(1, id_)
    assert result
    return [event.type for event in result.events]


@pytest.mark.parametrize(
    ("receipts", "expected"),
    [
        ([CarrierReport("p1", DELIVERED)], "sent"),
        ([CarrierReport("p1", DELIVERED), CarrierReport("p2", DELIVERED)], "sent"),
        ([CarrierReport("p1", DELIVERED), CarrierReport("p2", DELIVERED), CarrierReport("p3", DELIVERED)], "delivered"),
        ([CarrierReport("p3", DELIVERED), CarrierReport("p1", DELIVERED), CarrierReport("p2", DELIVERED)], "delivered"),
        ([CarrierReport("p1", DELIVERED)] * 3, "sent"),  # duplicates count once
        ([CarrierReport("p1", SENT), CarrierReport("p2", SENT), CarrierReport("p3", SENT)], "sent"),
        ([CarrierReport("p2", FAILED)], "failed"),
        ([CarrierReport("p1", DELIVERED), CarrierReport("p2", FAILED), CarrierReport("p3", DELIVERED)], "failed"),
        (
            [
                CarrierReport("p2", FAILED),
                CarrierReport("p1", DELIVERED),
                CarrierReport("p3", DELIVERED),
                CarrierReport("p2", DELIVERED),
            ],
            "delivered",
        ),  # late, once
        (
            [
                CarrierReport("p1", DELIVERED),
                CarrierReport("p1", FAILED),
                CarrierReport("p2", DELIVERED),
                CarrierReport("p3", DELIVERED),
            ],
            "delivered",
        ),
    ],
)
async def test_receipts_of_parts_are_combined_into_one_state(
    store: Store, clock: Any, receipts: list[CarrierReport], expected: str
) -> None:
    id_ = await accepted_message(store, clock, parts=("p1", "p2", "p3"))
    for receipt in receipts:
        assert await store.reports.store_by_carrier("c", [receipt]) == [True]
    assert await status(store, id_) == expected


async def test_receipts_of_parts_in_one_batch_are_combined(store: Store, clock: Any) -> None:
    id_ = await accepted_message(store, clock, parts=("p1", "p2"))
    await store.reports.store_by_carrier("c", [CarrierReport("p1", DELIVERED), CarrierReport("p2", DELIVERED)])
    assert await status(store, id_) == "delivered"
    assert (await told(store, id_)).count("sms.delivered") == 1


async def test_receipt_with_one_id_for_all_parts_applies_to_all(store: Store, clock: Any) -> None:
    id_ = await accepted_message(store, clock, parts=("p1", "p1"))
    assert await store.reports.store_by_carrier("c", [CarrierReport("p1", DELIVERED)]) == [True]
    assert await status(store, id_) == "delivered"


async def test_report_with_an_id_of_another_carrier_changes_nothing(store: Store, clock: Any) -> None:
    id_ = await accepted_message(store, clock, carrier_id="7")
    long = await accepted_message(store, clock, parts=("8", "9"))
    assert (
        await store.reports.store_by_carrier(
            "d", [CarrierReport("7", DELIVERED), CarrierReport("8", DELIVERED), CarrierReport("9", DELIVERED)]
        )
        == [False] * 3
    )
    await store.reports.apply_early_reports()
    assert (await status(store, id_), await status(store, long)) == ("sent", "sent")


@pytest.mark.parametrize("ids", [{"carrier_id": "7"}, {"parts": ("7", "8")}])
async def test_report_before_the_send_is_recorded_is_applied_later(
    store: Store, clock: Any, ids: dict[str, Any]
) -> None:
    id_ = await accepted(store, clock)
    claim = await claimed(store)
    reports = [CarrierReport("7", DELIVERED), CarrierReport("8", DELIVERED)]
    assert await store.reports.store_by_carrier("c", reports) == [False, False]
    await store.reports.apply_early_reports()
    assert await status(store, id_) == "sending"
    await record(store, clock, claim, **ids)
    await store.reports.apply_early_reports()
    assert await status(store, id_) == "delivered"
    await store.reports.apply_early_reports()
    assert (await told(store, id_)).count("sms.delivered") == 1


async def test_early_report_without_a_message_is_dropped_after_a_minute(store: Store, clock: Any) -> None:
    id_ = await accepted(store, clock)
    claim = await claimed(store)
    await store.reports.store_by_carrier("c", [CarrierReport("7", DELIVERED)])
    clock.forward(61_000)
    await record(store, clock, claim, carrier_id="7")
    await store.reports.apply_early_reports()
    assert await status(store, id_) == "sent"


async def test_callback_without_a_time_is_applied_once(store: Store, clock: Any) -> None:
    id_ = await accepted_message(store, clock, carrier_id="7")
    queued = Report(status="sent", detail={"text": "queued"})
    for report in (queued, DELIVERED, queued, DELIVERED, DELIVERED):
        assert await store.reports.store_by_carrier(
            "c", [CarrierReport("7", report), CarrierReport("7", report)], skip_known=True
        ) == [True, True]
    assert await told(store, id_) == ["sms.sent", "ignored", "sms.delivered"]
    await store.reports.store_by_carrier("c", [CarrierReport("7", DELIVERED)])  # differs by its time
    assert await told(store, id_) == ["sms.sent", "ignored", "sms.delivered", "ignored"]


@pytest.mark.parametrize("repeated", [False, True])
async def test_sms_receipt_keeps_the_sender_that_its_carrier_used(store: Store, clock: Any, repeated: bool) -> None:
    id_ = await accepted(store, clock)
    claim = await claimed(store)
    change = RecipientUpdate(
        at=clock.now(),
        message=claim.message,
        position=claim.position,
        claim=claim.token,
        target_status="sent",
        accepted=True,
        carrier="c",
        carrier_id="7",
        detail={"sender": "+12025550123", "text": "accepted"},
    )
    assert await store.outbox.record(change)
    for _ in range(1 + repeated):
        report = Report(status="delivered", detail={"text": "DELIVRD"})
        await store.reports.store_by_carrier("c", [CarrierReport("7", report)], skip_known=True)
    clock.forward(1000)
    result = await store.messages.get(1, id_)
    assert result and result.recipients[0].detail
    assert json.loads(result.recipients[0].detail) == {"text": "DELIVRD", "sender": "+12025550123"}
    assert await told(store, id_) == ["sms.sent", "sms.delivered"]
    details = [json.loads(item.detail or "{}") for item in await store.events.feed(1, "", 10)]
    assert [item.get("sender") for item in details] == ["+12025550123"] * 2


async def test_report_with_a_reused_carrier_id_applies_to_the_newest_message(store: Store, clock: Any) -> None:
    old, new = (
        await accepted_message(store, clock, carrier_id="7"),
        await accepted_message(store, clock, carrier_id="7"),
    )
    await store.reports.store_by_carrier("c", [CarrierReport("7", DELIVERED)])
    assert (await status(store, old), await status(store, new)) == ("sent", "delivered")


async def test_bounce_applies_to_its_own_recipient(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock, "bob@example.com")
    await accept_recipient(store, clock)
    await accept_recipient(store, clock)
    assert await store.reports.recipient_address(id_, 1) == "bob@example.com"
    await store.reports.store_by_recipient(id_, 1, BOUNCED)
    result = await store.messages.get(1, id_)
    assert result
    assert [item.status for item in result.recipients] == ["sent", "bounced"]
    assert [row.email for row in await store.suppressions.list_page(1, None, 9)] == ["bob@example.com"]


async def test_bounce_before_the_send_is_recorded_is_applied_later(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    for report in (BOUNCED, FAILED):  # the first one counts
        await store.reports.store_by_recipient(id_, 0, report)
    await store.reports.apply_early_reports()
    assert await status(store, id_) == "sending"
    clock.forward(600_000)
    await store.maintenance.purge()
    await accept_recipient(store, clock, "delivered")
    await store.reports.apply_early_reports()
    await store.reports.apply_early_reports()
    assert (await told(store, id_)) == ["email.sent", "email.delivered", "email.bounced"]


async def test_early_bounce_without_a_message_is_dropped_after_an_hour(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await store.reports.store_by_recipient(id_, 0, BOUNCED)
    clock.forward(3_600_001)
    await store.maintenance.purge()
    await accept_recipient(store, clock)
    await store.reports.apply_early_reports()
    assert await status(store, id_) == "sent"


@pytest.mark.parametrize(
    ("later_ms", "now"),
    [(0, "failed"), (890_000, "failed"), (900_000, "bounced"), (4 * 86_400_000, "bounced"), (6 * 86_400_000, "failed")],
)
async def test_nonexistent_domain_in_reports_bounces_at_the_second_report(
    store: Store, clock: Any, later_ms: int, now: str
) -> None:
    gone = Report(status="bounced", suppress="bounce", absent=True)
    first, second = await mail(store, clock), await mail(store, clock)
    await accept_recipient(store, clock)
    await accept_recipient(store, clock)
    await store.reports.store_by_recipient(first, 0, gone)
    assert await status(store, first) == "failed"
    clock.forward(later_ms)
    await store.reports.store_by_recipient(second, 0, gone)
    assert await status(store, second) == now
    assert bool(await store.suppressions.list_page(1, None, 9)) is (now == "bounced")


@pytest.mark.parametrize(("id_", "position"), [("eml_unknown", 0), (None, 1)])
async def test_report_with_an_invalid_position_changes_nothing(
    store: Store, clock: Any, id_: str | None, position: int
) -> None:
    known = await mail(store, clock)
    assert await store.reports.recipient_address(id_ or known, position) is None
    await store.reports.store_by_recipient(id_ or known, position, BOUNCED)
    await accept_recipient(store, clock)
    await store.reports.apply_early_reports()
    assert await status(store, known) == "sent"


async def test_bounce_for_another_reason_fails_the_recipient(store: Store, clock: Any) -> None:
    """The event is published; nothing is suppressed, and no money moves."""
    id_ = await mail(store, clock)
    await accept_recipient(store, clock, "delivered")
    before = await store.ledger.get_account(1)
    await store.reports.store_by_recipient(id_, 0, Report(status="failed", detail={"text": "552 mailbox full"}))
    assert await told(store, id_) == ["email.sent", "email.delivered", "email.failed"]
    assert (await status(store, id_), await store.suppressions.list_page(1, None, 9)) == ("failed", [])
    assert await store.ledger.get_account(1) == before


async def test_complaint_about_a_failed_message_suppresses_the_address(store: Store, clock: Any) -> None:
    item = message(clock)
    await store.messages.accept(item)
    await accept_recipient(store, clock, "failed")
    complaint = Report(status="complained", detail={}, suppress="complaint")
    await store.reports.store_by_carrier("relay", [CarrierReport(f"{item.id}/0", complaint)])
    result = await store.suppressions.get(1, "ada@example.com")
    assert result and result.reason == "complaint"
    assert await status(store, item.id) == "failed"


@pytest.mark.parametrize(
    ("detail", "listed"),
    [
        ({"carrier": "twilio", "code": "21610"}, "carrier"),
        ({"carrier": "twilio", "code": "30003"}, None),
        ({"carrier": "smpp", "err": "451", "reason": "opted_out"}, "carrier"),
        ({"carrier": "smpp", "err": "451"}, None),
        ({"carrier": "cloud_api", "code": "131050"}, "marketing"),
        ({"carrier": "cloud_api", "code": "131049"}, None),
        ({"reason": "opted_out"}, None),  # our own reason, because the phone is on the opt-out list
    ],
)
async def test_carrier_report_of_an_opt_out_suppresses_the_number(
    store: Store, clock: Any, detail: Any, listed: str | None
) -> None:
    await accepted_message(store, clock, carrier_id="one")
    await store.reports.store_by_carrier("c", [CarrierReport("one", Report(status="failed", detail=detail))])
    result = await store.opt_outs.find(1, PHONE)
    assert [(item.channel, item.reason) for item in result] == ([("sms", listed)] if listed else [])


async def test_marketing_suppression_is_widened_by_a_later_opt_out(store: Store) -> None:
    for reason, retained in (("marketing", "marketing"), ("text", "text"), ("marketing", "text"), ("manual", "text")):
        rows = [(1, PHONE, "sms", reason, 5)]
        await store.database.write(partial(add_opt_outs, rows=rows, publisher=store.setup.publisher))
        assert [item.reason for item in await store.opt_outs.find(1, PHONE)] == [retained]
