"""Reports by carriers' own ids: parts of long messages, reports that come before the hand-over is recorded."""

from typing import Any

import pytest

from heliograph.rules.outcome import Report
from heliograph.storage.store import Change, Claim, Store
from tests.storage.samples import PHONE, message

pytestmark = pytest.mark.anyio

DELIVERED, FAILED, SENT = (Report(status=status) for status in ("delivered", "failed", "sent"))


async def accepted(store: Store, clock: Any) -> str:
    item = message(clock, PHONE, channel="sms")
    await store.accept(item)
    return item.id


async def handed(store: Store, clock: Any, *, carrier_id: str | None = None, parts: tuple[str, ...] = ()) -> str:
    """A message that carrier `c` took."""
    id_ = await accepted(store, clock)
    await record(store, clock, await claimed(store), carrier_id=carrier_id, parts=parts)
    return id_


async def claimed(store: Store) -> Claim:
    (claim,) = await store.claim("phone", 1)
    return claim


async def record(
    store: Store, clock: Any, claim: Claim, *, carrier_id: str | None = None, parts: tuple[str, ...] = ()
) -> None:
    change = Change(
        at=clock.now(),
        message=claim.message,
        position=claim.position,
        claim=(claim.key, claim.epoch),
        wanted="sent",
        accepted=True,
        carrier="c",
        carrier_id=carrier_id,
        parts=parts,
    )
    assert await store.record(change)


async def status(store: Store, id_: str) -> str:
    found = await store.message(1, id_)
    assert found
    return found.status


async def told(store: Store, id_: str) -> list[str]:
    found = await store.message(1, id_)
    assert found
    return [event[1] for event in found.events]


@pytest.mark.parametrize(
    ("receipts", "expected"),
    [
        ([("p1", DELIVERED)], "sent"),
        ([("p1", DELIVERED), ("p2", DELIVERED)], "sent"),
        ([("p1", DELIVERED), ("p2", DELIVERED), ("p3", DELIVERED)], "delivered"),
        ([("p3", DELIVERED), ("p1", DELIVERED), ("p2", DELIVERED)], "delivered"),
        ([("p1", DELIVERED)] * 3, "sent"),  # duplicates count once
        ([("p1", SENT), ("p2", SENT), ("p3", SENT)], "sent"),
        ([("p2", FAILED)], "failed"),
        ([("p1", DELIVERED), ("p2", FAILED), ("p3", DELIVERED)], "failed"),
        ([("p2", FAILED), ("p1", DELIVERED), ("p3", DELIVERED), ("p2", DELIVERED)], "delivered"),  # late, once
        ([("p1", DELIVERED), ("p1", FAILED), ("p2", DELIVERED), ("p3", DELIVERED)], "delivered"),
    ],
)
async def test_receipts_of_parts_fold_into_one_state(
    store: Store, clock: Any, receipts: list[tuple[str, Report]], expected: str
) -> None:
    id_ = await handed(store, clock, parts=("p1", "p2", "p3"))
    for receipt in receipts:
        assert await store.report("c", [receipt]) == [True]
    assert await status(store, id_) == expected


async def test_receipts_of_parts_in_one_batch(store: Store, clock: Any) -> None:
    id_ = await handed(store, clock, parts=("p1", "p2"))
    await store.report("c", [("p1", DELIVERED), ("p2", DELIVERED)])
    assert await status(store, id_) == "delivered"
    assert (await told(store, id_)).count("sms.delivered") == 1


async def test_an_id_of_another_carrier_changes_nothing(store: Store, clock: Any) -> None:
    id_ = await handed(store, clock, carrier_id="7")
    long = await handed(store, clock, parts=("8", "9"))
    assert await store.report("d", [("7", DELIVERED), ("8", DELIVERED), ("9", DELIVERED)], early=True) == [False] * 3
    await store.apply_early_reports()
    assert (await status(store, id_), await status(store, long)) == ("sent", "sent")


@pytest.mark.parametrize("ids", [{"carrier_id": "7"}, {"parts": ("7", "8")}])
async def test_a_report_before_the_record_of_its_hand_over(store: Store, clock: Any, ids: dict[str, Any]) -> None:
    id_ = await accepted(store, clock)
    claim = await claimed(store)
    reports = [("7", DELIVERED), ("8", DELIVERED)]
    assert await store.report("c", reports, early=True) == [False, False]
    await store.apply_early_reports()
    assert await status(store, id_) == "sending"
    await record(store, clock, claim, **ids)
    await store.apply_early_reports()
    assert await status(store, id_) == "delivered"
    await store.apply_early_reports()
    assert (await told(store, id_)).count("sms.delivered") == 1


async def test_an_early_report_is_forgotten_after_a_minute(store: Store, clock: Any) -> None:
    id_ = await accepted(store, clock)
    claim = await claimed(store)
    await store.report("c", [("7", DELIVERED)], early=True)
    clock.forward(61_000)
    await record(store, clock, claim, carrier_id="7")
    await store.apply_early_reports()
    assert await status(store, id_) == "sent"


async def test_an_id_that_a_carrier_uses_again_is_the_newest_message(store: Store, clock: Any) -> None:
    old, new = await handed(store, clock, carrier_id="7"), await handed(store, clock, carrier_id="7")
    await store.report("c", [("7", DELIVERED)])
    assert (await status(store, old), await status(store, new)) == ("sent", "delivered")
