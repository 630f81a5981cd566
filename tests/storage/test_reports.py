"""Reports by carriers' own ids: parts of long messages, reports that come before the hand-over is recorded."""

import json
from functools import partial
from typing import Any

import pytest

from heliograph.domain.delivery.outcome import CarrierReport, Report
from heliograph.inbound.store.opt_outs import list_phones
from heliograph.storage.outbox import Claim
from heliograph.storage.outcomes import Change
from heliograph.storage.store import Store
from tests.storage.samples import PHONE, message

pytestmark = pytest.mark.anyio

DELIVERED, FAILED, SENT = (Report(status=status) for status in ("delivered", "failed", "sent"))


BOUNCED = Report(status="bounced", suppress="bounce", detail={"text": "550 5.1.1 no such user"})


async def mail(store: Store, clock: Any, *more: str) -> str:
    item = message(clock, "ada@example.com", *more)
    await store.messages.accept(item)
    return item.id


async def hand_over(store: Store, clock: Any, wanted: str = "sent") -> None:
    """One recipient more was taken by a carrier."""
    (claim,) = await store.outbox.claim("email", 1)
    change = Change(
        at=clock.now(),
        message=claim.message,
        position=claim.position,
        claim=claim.held,
        wanted=wanted,
        accepted=True,
        carrier="relay",
        carrier_id=f"{claim.message_id}/{claim.position}",
    )
    assert await store.outbox.record(change)


async def accepted(store: Store, clock: Any) -> str:
    item = message(clock, PHONE, channel="sms")
    await store.messages.accept(item)
    return item.id


async def handed(store: Store, clock: Any, *, carrier_id: str | None = None, parts: tuple[str, ...] = ()) -> str:
    """A message that carrier `c` took."""
    id_ = await accepted(store, clock)
    await record(store, clock, await claimed(store), carrier_id=carrier_id, parts=parts)
    return id_


async def claimed(store: Store) -> Claim:
    (claim,) = await store.outbox.claim("phone", 1)
    return claim


async def record(
    store: Store, clock: Any, claim: Claim, *, carrier_id: str | None = None, parts: tuple[str, ...] = ()
) -> None:
    change = Change(
        at=clock.now(),
        message=claim.message,
        position=claim.position,
        claim=claim.held,
        wanted="sent",
        accepted=True,
        carrier="c",
        carrier_id=carrier_id,
        parts=parts,
    )
    assert await store.outbox.record(change)


async def status(store: Store, id_: str) -> str:
    found = await store.messages.get(1, id_)
    assert found
    return found.status


async def told(store: Store, id_: str) -> list[str]:
    found = await store.messages.get(1, id_)
    assert found
    return [event.type for event in found.events]


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
async def test_receipts_of_parts_fold_into_one_state(
    store: Store, clock: Any, receipts: list[CarrierReport], expected: str
) -> None:
    id_ = await handed(store, clock, parts=("p1", "p2", "p3"))
    for receipt in receipts:
        assert await store.reports.by_carrier("c", [receipt]) == [True]
    assert await status(store, id_) == expected


async def test_receipts_of_parts_in_one_batch(store: Store, clock: Any) -> None:
    id_ = await handed(store, clock, parts=("p1", "p2"))
    await store.reports.by_carrier("c", [CarrierReport("p1", DELIVERED), CarrierReport("p2", DELIVERED)])
    assert await status(store, id_) == "delivered"
    assert (await told(store, id_)).count("sms.delivered") == 1


async def test_one_id_for_all_parts(store: Store, clock: Any) -> None:
    id_ = await handed(store, clock, parts=("p1", "p1"))
    assert await store.reports.by_carrier("c", [CarrierReport("p1", DELIVERED)]) == [True]
    assert await status(store, id_) == "delivered"


async def test_an_id_of_another_carrier_changes_nothing(store: Store, clock: Any) -> None:
    id_ = await handed(store, clock, carrier_id="7")
    long = await handed(store, clock, parts=("8", "9"))
    assert (
        await store.reports.by_carrier(
            "d", [CarrierReport("7", DELIVERED), CarrierReport("8", DELIVERED), CarrierReport("9", DELIVERED)]
        )
        == [False] * 3
    )
    await store.reports.apply_early()
    assert (await status(store, id_), await status(store, long)) == ("sent", "sent")


@pytest.mark.parametrize("ids", [{"carrier_id": "7"}, {"parts": ("7", "8")}])
async def test_a_report_before_the_record_of_its_hand_over(store: Store, clock: Any, ids: dict[str, Any]) -> None:
    id_ = await accepted(store, clock)
    claim = await claimed(store)
    reports = [CarrierReport("7", DELIVERED), CarrierReport("8", DELIVERED)]
    assert await store.reports.by_carrier("c", reports) == [False, False]
    await store.reports.apply_early()
    assert await status(store, id_) == "sending"
    await record(store, clock, claim, **ids)
    await store.reports.apply_early()
    assert await status(store, id_) == "delivered"
    await store.reports.apply_early()
    assert (await told(store, id_)).count("sms.delivered") == 1


async def test_an_early_report_is_forgotten_after_a_minute(store: Store, clock: Any) -> None:
    id_ = await accepted(store, clock)
    claim = await claimed(store)
    await store.reports.by_carrier("c", [CarrierReport("7", DELIVERED)])
    clock.forward(61_000)
    await record(store, clock, claim, carrier_id="7")
    await store.reports.apply_early()
    assert await status(store, id_) == "sent"


async def test_a_callback_without_a_time_is_taken_once(store: Store, clock: Any) -> None:
    id_ = await handed(store, clock, carrier_id="7")
    queued = Report(status="sent", detail={"text": "queued"})
    for report in (queued, DELIVERED, queued, DELIVERED, DELIVERED):
        assert await store.reports.by_carrier(
            "c", [CarrierReport("7", report), CarrierReport("7", report)], skip_known=True
        ) == [True, True]
    assert await told(store, id_) == ["sms.sent", "ignored", "sms.delivered"]
    await store.reports.by_carrier("c", [CarrierReport("7", DELIVERED)])  # one with a time: it is another one
    assert await told(store, id_) == ["sms.sent", "ignored", "sms.delivered", "ignored"]


@pytest.mark.parametrize("repeated", [False, True])
async def test_a_receipt_of_an_sms_keeps_the_sender_that_its_carrier_used(
    store: Store, clock: Any, repeated: bool
) -> None:
    id_ = await accepted(store, clock)
    claim = await claimed(store)
    change = Change(
        at=clock.now(),
        message=claim.message,
        position=claim.position,
        claim=claim.held,
        wanted="sent",
        accepted=True,
        carrier="c",
        carrier_id="7",
        detail={"sender": "+12025550123", "text": "accepted"},
    )
    assert await store.outbox.record(change)
    for _ in range(1 + repeated):
        report = Report(status="delivered", detail={"text": "DELIVRD"})
        await store.reports.by_carrier("c", [CarrierReport("7", report)], skip_known=True)
    clock.forward(1000)
    found = await store.messages.get(1, id_)
    assert found and found.recipients[0].detail
    assert json.loads(found.recipients[0].detail) == {"text": "DELIVRD", "sender": "+12025550123"}
    assert await told(store, id_) == ["sms.sent", "sms.delivered"]
    details = [json.loads(one.detail or "{}") for one in await store.events.feed(1, "", 10)]
    assert [one.get("sender") for one in details] == ["+12025550123"] * 2


async def test_an_id_that_a_carrier_uses_again_is_the_newest_message(store: Store, clock: Any) -> None:
    old, new = await handed(store, clock, carrier_id="7"), await handed(store, clock, carrier_id="7")
    await store.reports.by_carrier("c", [CarrierReport("7", DELIVERED)])
    assert (await status(store, old), await status(store, new)) == ("sent", "delivered")


async def test_a_mail_comes_back_to_its_own_recipient(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock, "bob@example.com")
    await hand_over(store, clock)
    await hand_over(store, clock)
    assert await store.reports.address_of(id_, 1) == "bob@example.com"
    await store.reports.by_recipient(id_, 1, BOUNCED)
    found = await store.messages.get(1, id_)
    assert found
    assert [one.status for one in found.recipients] == ["sent", "bounced"]
    assert [row.email for row in await store.suppressions.page(1, None, 9)] == ["bob@example.com"]


async def test_a_mail_comes_back_before_the_record_of_its_hand_over(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    for report in (BOUNCED, FAILED):  # the first one counts
        await store.reports.by_recipient(id_, 0, report)
    await store.reports.apply_early()
    assert await status(store, id_) == "sending"
    clock.forward(600_000)
    await store.upkeep.purge()
    await hand_over(store, clock, "delivered")
    await store.reports.apply_early()
    await store.reports.apply_early()
    assert (await told(store, id_)) == ["email.sent", "email.delivered", "email.bounced"]


async def test_an_early_return_is_forgotten_after_an_hour(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await store.reports.by_recipient(id_, 0, BOUNCED)
    clock.forward(3_600_001)
    await store.upkeep.purge()
    await hand_over(store, clock)
    await store.reports.apply_early()
    assert await status(store, id_) == "sent"


@pytest.mark.parametrize(
    ("later_ms", "now"),
    [(0, "failed"), (890_000, "failed"), (900_000, "bounced"), (4 * 86_400_000, "bounced"), (6 * 86_400_000, "failed")],
)
async def test_a_domain_that_reports_call_absent_counts_the_second_time(
    store: Store, clock: Any, later_ms: int, now: str
) -> None:
    gone = Report(status="bounced", suppress="bounce", absent=True)
    first, second = await mail(store, clock), await mail(store, clock)
    await hand_over(store, clock)
    await hand_over(store, clock)
    await store.reports.by_recipient(first, 0, gone)
    assert await status(store, first) == "failed"
    clock.forward(later_ms)
    await store.reports.by_recipient(second, 0, gone)
    assert await status(store, second) == now
    assert bool(await store.suppressions.page(1, None, 9)) is (now == "bounced")


@pytest.mark.parametrize(("id_", "position"), [("eml_unknown", 0), (None, 1)])
async def test_a_place_that_is_none_changes_nothing(store: Store, clock: Any, id_: str | None, position: int) -> None:
    known = await mail(store, clock)
    assert await store.reports.address_of(id_ or known, position) is None
    await store.reports.by_recipient(id_ or known, position, BOUNCED)
    await hand_over(store, clock)
    await store.reports.apply_early()
    assert await status(store, known) == "sent"


async def test_a_mail_that_comes_back_for_another_reason_failed_after_all(store: Store, clock: Any) -> None:
    """Told to webhooks, nothing suppressed, no money moved."""
    id_ = await mail(store, clock)
    await hand_over(store, clock, "delivered")
    before = await store.ledger.account(1)
    await store.reports.by_recipient(id_, 0, Report(status="failed", detail={"text": "552 mailbox full"}))
    assert await told(store, id_) == ["email.sent", "email.delivered", "email.failed"]
    assert (await status(store, id_), await store.suppressions.page(1, None, 9)) == ("failed", [])
    assert await store.ledger.account(1) == before


async def test_who_complains_about_what_failed_is_suppressed(store: Store, clock: Any) -> None:
    item = message(clock)
    await store.messages.accept(item)
    await hand_over(store, clock, "failed")
    complaint = Report(status="complained", detail={}, suppress="complaint")
    await store.reports.by_carrier("relay", [CarrierReport(f"{item.id}/0", complaint)])
    found = await store.suppressions.get(1, "ada@example.com")
    assert found and found.reason == "complaint"
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
        ({"reason": "opted_out"}, None),  # our own word, because they are listed
    ],
)
async def test_a_carrier_that_says_stop_is_believed(store: Store, clock: Any, detail: Any, listed: str | None) -> None:
    await handed(store, clock, carrier_id="one")
    await store.reports.by_carrier("c", [CarrierReport("one", Report(status="failed", detail=detail))])
    found = await store.opt_outs.find(1, PHONE)
    assert [(one.channel, one.reason) for one in found] == ([("sms", listed)] if listed else [])


async def test_who_wants_no_marketing_may_want_nothing_later(store: Store) -> None:
    for reason, kept in (("marketing", "marketing"), ("text", "text"), ("marketing", "text"), ("manual", "text")):
        rows = [(1, PHONE, "sms", reason, 5)]
        await store.database.write(partial(list_phones, rows=rows, publisher=store.setup.publisher))
        assert [one.reason for one in await store.opt_outs.find(1, PHONE)] == [kept]
