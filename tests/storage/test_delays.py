"""`email.delayed` is published once, five minutes after the first deferral, while the email is unfinished."""

from typing import Any

import msgspec
import pytest

from heliograph.domain.delivery.outcome import ProviderReport, Report
from heliograph.domain.ids import timestamp
from heliograph.domain.limits import DAY_MS, MINUTE_MS
from heliograph.storage.outcomes import RecipientUpdate, RetryPlan
from heliograph.storage.store import Store
from tests.storage.test_reports import accept_recipient, mail, told

pytestmark = pytest.mark.anyio

BUSY = {"carrier": "mx", "code": "451", "text": "451 4.7.1 greylisted, try again later"}


async def defer_email(store: Store, clock: Any, attempt: int = 1, wait_ms: int = MINUTE_MS) -> tuple[int, int]:
    """Defer the email; return the current time and the time of the next attempt."""
    (claim,) = await store.outbox.claim("email", 1)
    at = clock.now()
    again = RetryPlan(due_at=at + wait_ms, attempt=attempt, first_at=claim.first_at if attempt > 1 else at)
    change = RecipientUpdate(
        at=at,
        message=claim.message,
        position=claim.position,
        claim=claim.token,
        target_status=None,
        detail=BUSY,
        carrier="relay",
        retry=again,
    )
    assert await store.outbox.record(change)
    return at, again.due_at


async def delays(store: Store, id_: str) -> list[Any]:
    result = await store.messages.get(1, id_)
    assert result
    return [item for item in result.events if item.type == "email.delayed"]


async def test_delay_is_published_once_after_five_minutes(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    since, _ = await defer_email(store, clock)
    clock.forward(2 * MINUTE_MS)
    _, next_at = await defer_email(store, clock, 2, 10 * MINUTE_MS)
    await store.delays.publish_due()
    assert await delays(store, id_) == []
    clock.forward(3 * MINUTE_MS)
    for _ in range(2):
        await store.delays.publish_due()
    (event,) = await delays(store, id_)
    assert (event.status, event.previous_status) == ("sending", "sending")
    detail = msgspec.json.decode(event.detail)
    assert detail["text"] == BUSY["text"]
    assert detail["delay"] == {
        "since": timestamp(since),
        "next_attempt_at": timestamp(next_at),
        "gives_up_at": timestamp(since + 5 * DAY_MS),
    }
    clock.forward(20 * MINUTE_MS)
    await defer_email(store, clock, 3)
    clock.forward(20 * MINUTE_MS)
    await store.delays.publish_due()
    assert len(await delays(store, id_)) == 1
    result = await store.messages.get(1, id_)
    assert result and result.status == "sending"


@pytest.mark.parametrize("wanted", ["sent", "delivered", "bounced"])
async def test_delay_of_a_final_message_is_not_published(store: Store, clock: Any, wanted: str) -> None:
    id_ = await mail(store, clock)
    await defer_email(store, clock)
    clock.forward(2 * MINUTE_MS)
    await accept_recipient(store, clock, wanted)
    clock.forward(10 * MINUTE_MS)
    await store.delays.publish_due()
    assert await delays(store, id_) == []


@pytest.mark.parametrize("first", [False, True], ids=["handed over at once", "put off before"])
async def test_delay_reported_by_a_provider_is_published(store: Store, clock: Any, first: bool) -> None:
    id_ = await mail(store, clock)
    if first:
        await defer_email(store, clock)
        clock.forward(2 * MINUTE_MS)
    await accept_recipient(store, clock)
    said = {"carrier": "ses", "text": "421 4.4.1 unable to connect", "gives_up_at": "2026-08-05T14:40:02.669Z"}
    for at in ("1", "2"):
        report = Report(status="deferred", detail=said | {"at": at})
        await store.reports.store_by_provider("relay", [ProviderReport(tracking_id=id_, report=report)])
    clock.forward((3 if first else 5) * MINUTE_MS)
    for _ in range(2):
        await store.delays.publish_due()
    (event,) = await delays(store, id_)
    assert event.status == "sent"
    delay = msgspec.json.decode(event.detail)["delay"]
    assert (delay["next_attempt_at"], delay["gives_up_at"]) == (None, said["gives_up_at"])
    assert (await told(store, id_)).count("deferred") == 2 + first


async def test_delay_reported_and_delivered_in_time_is_not_published(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await accept_recipient(store, clock)
    for status in ("deferred", "delivered"):
        report = Report(status=status, detail={"carrier": "ses"})
        await store.reports.store_by_provider("relay", [ProviderReport(tracking_id=id_, report=report)])
    clock.forward(5 * MINUTE_MS)
    await store.delays.publish_due()
    assert await delays(store, id_) == []
