"""Reports of mail providers: matched to recipients, applied once, in any order, also before the send is recorded."""

from typing import Any

import pytest

from heliograph.domain.delivery.outcome import ProviderReport, Report
from heliograph.storage.store import Store
from tests.storage.test_reports import accept_recipient, mail, told

pytestmark = pytest.mark.anyio

ADA, BOB = "ada@example.com", "bob@example.com"
DELIVERED = Report(status="delivered", detail={"carrier": "postmark", "at": "1"})
BOUNCED = Report(status="bounced", suppress="bounce", detail={"carrier": "postmark", "text": "550 5.1.1 no such user"})
COMPLAINED = Report(status="complained", suppress="complaint", detail={"carrier": "postmark"})
DEFERRED = Report(status="deferred", detail={"carrier": "postmark", "text": "451 4.7.1 later"})
UNSUBSCRIBED = Report(status="unsubscribed", detail={"carrier": "postmark"})


async def states(store: Store, id_: str) -> list[str]:
    result = await store.messages.get(1, id_)
    assert result
    return [recipient.status for recipient in result.recipients]


async def take(store: Store, *reports: ProviderReport, carrier: str = "relay", once: str = "") -> list[str]:
    return list(await store.reports.store_by_provider(carrier, reports, replay_id=once))


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"tracking_id": "OWN", "address": ADA}, "taken"),
        ({"tracking_id": "OWN", "address": "Ada@EXAMPLE.com"}, "taken"),
        ({"carrier_ids": ("other", "OWN/0"), "address": ADA}, "taken"),
        ({"carrier_ids": ("OWN/0",)}, "taken"),
        ({"message_id": "OWN", "address": ADA}, "taken"),
        ({"tracking_id": "eml_01J8ZQ4V6N7M8K9P0R1S2T3V4W", "message_id": "OWN", "address": ADA}, "taken"),
        ({"tracking_id": "OWN", "address": "eve@example.com"}, "nobody"),
        ({"tracking_id": "OWN"}, "nobody"),  # matches one of two recipients, but the address is missing
        ({"address": ADA}, "nobody"),
        ({"tracking_id": "eml_01J8ZQ4V6N7M8K9P0R1S2T3V4W", "address": ADA}, "nobody"),
        ({"carrier_ids": ("unknown",), "address": ADA}, "nobody"),
    ],
)
async def test_provider_event_is_matched_to_its_recipient(
    store: Store, clock: Any, given: dict[str, Any], taken: str
) -> None:
    id_ = await mail(store, clock, BOB)
    await accept_recipient(store, clock)
    await accept_recipient(store, clock)
    own: dict[str, Any] = {
        name: tuple(item.replace("OWN", id_) for item in value)
        if isinstance(value, tuple)
        else value.replace("OWN", id_)
        for name, value in given.items()
    }
    assert await take(store, ProviderReport(**own, report=DELIVERED)) == [taken]
    assert await states(store, id_) == (["delivered", "sent"] if taken == "taken" else ["sent", "sent"])


async def test_provider_event_of_another_carrier_changes_nothing(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await accept_recipient(store, clock)
    assert await take(store, ProviderReport(tracking_id=id_, address=ADA, report=BOUNCED), carrier="other") == [
        "nobody"
    ]
    assert await states(store, id_) == ["sent"]


async def test_provider_bounce_suppresses_only_its_recipient(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock, BOB)
    await accept_recipient(store, clock)
    await accept_recipient(store, clock)
    reports = [ProviderReport(tracking_id=id_, address=address, report=DELIVERED) for address in (ADA, BOB)]
    assert await take(store, *reports) == ["taken", "taken"]  # the same text about two recipients
    assert await take(store, ProviderReport(tracking_id=id_, address=BOB, report=BOUNCED)) == ["taken"]
    assert await states(store, id_) == ["delivered", "bounced"]
    assert await store.suppressions.get(1, ADA) is None
    assert await store.suppressions.get(1, BOB)


@pytest.mark.parametrize(
    ("order", "ends"),
    [
        ((DEFERRED, DELIVERED, COMPLAINED), "complained"),
        ((COMPLAINED, DELIVERED, DEFERRED), "complained"),
        ((BOUNCED, DEFERRED, DELIVERED), "bounced"),
        ((UNSUBSCRIBED, DEFERRED), "sent"),
    ],
)
async def test_provider_events_repeated_or_reordered_are_applied_once(
    store: Store, clock: Any, order: tuple[Report, ...], ends: str
) -> None:
    id_ = await mail(store, clock)
    await accept_recipient(store, clock)
    reports = [ProviderReport(tracking_id=id_, address=ADA, report=report) for report in order]
    await take(store, *reports)
    before = await told(store, id_)
    for _ in range(2):
        assert set(await take(store, *reports, *reversed(reports))) == {"known"}
    assert await told(store, id_) == before
    assert await states(store, id_) == [ends]


async def test_informational_provider_event_changes_no_state(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await accept_recipient(store, clock)
    await take(store, *(ProviderReport(tracking_id=id_, address=ADA, report=item) for item in (UNSUBSCRIBED, DEFERRED)))
    assert (await told(store, id_))[-2:] == ["unsubscribed", "deferred"]
    assert await store.suppressions.get(1, ADA) is None


async def test_provider_callback_repeated_with_other_content_is_ignored(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await accept_recipient(store, clock)
    assert await take(store, ProviderReport(tracking_id=id_, address=ADA, report=DELIVERED), once="a") == ["taken"]
    assert await take(store, ProviderReport(tracking_id=id_, address=ADA, report=BOUNCED), once="a") == ["known"]
    assert await states(store, id_) == ["delivered"]


async def test_provider_event_before_the_send_is_recorded_is_applied_later(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    early, next_ = (ProviderReport(tracking_id=id_, address=ADA, report=report) for report in (DELIVERED, BOUNCED))
    assert await take(store, early, once="a") == ["taken"]
    assert await take(store, early, once="b") == ["taken"]
    assert await take(store, next_, once="c") == ["later"]
    await accept_recipient(store, clock)
    await store.reports.apply_early_reports()
    assert await states(store, id_) == ["delivered"]
    assert await take(store, next_, once="c") == ["taken"]
    assert await states(store, id_) == ["bounced"]


async def test_provider_event_by_provider_id_before_the_send_is_recorded_is_applied_later(
    store: Store, clock: Any
) -> None:
    id_ = await mail(store, clock)
    await take(store, ProviderReport(carrier_ids=(f"{id_}/0", "x"), address=ADA, report=BOUNCED))
    await accept_recipient(store, clock)
    await store.reports.apply_early_reports()
    assert await states(store, id_) == ["bounced"]
