"""What mail providers tell: whose recipient it is about, once, in any order, also before the hand-over is recorded."""

from typing import Any

import pytest

from heliograph.domain.delivery.outcome import ProviderReport, Report
from heliograph.storage.store import Store
from tests.storage.test_reports import hand_over, mail, told

pytestmark = pytest.mark.anyio

ADA, BOB = "ada@example.com", "bob@example.com"
DELIVERED = Report(status="delivered", detail={"carrier": "postmark", "at": "1"})
BOUNCED = Report(status="bounced", suppress="bounce", detail={"carrier": "postmark", "text": "550 5.1.1 no such user"})
COMPLAINED = Report(status="complained", suppress="complaint", detail={"carrier": "postmark"})
DEFERRED = Report(status="deferred", detail={"carrier": "postmark", "text": "451 4.7.1 later"})
UNSUBSCRIBED = Report(status="unsubscribed", detail={"carrier": "postmark"})


async def states(store: Store, id_: str) -> list[str]:
    found = await store.messages.get(1, id_)
    assert found
    return [recipient.status for recipient in found.recipients]


async def take(store: Store, *reports: ProviderReport, carrier: str = "relay", once: str = "") -> list[str]:
    return list(await store.reports.by_provider(carrier, reports, replay_id=once))


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"along": "OWN", "address": ADA}, "taken"),
        ({"along": "OWN", "address": "Ada@EXAMPLE.com"}, "taken"),
        ({"carrier_ids": ("other", "OWN/0"), "address": ADA}, "taken"),
        ({"carrier_ids": ("OWN/0",)}, "taken"),
        ({"message_id": "OWN", "address": ADA}, "taken"),
        ({"along": "eml_01J8ZQ4V6N7M8K9P0R1S2T3V4W", "message_id": "OWN", "address": ADA}, "taken"),
        ({"along": "OWN", "address": "eve@example.com"}, "nobody"),
        ({"along": "OWN"}, "nobody"),  # one of two
        ({"address": ADA}, "nobody"),
        ({"along": "eml_01J8ZQ4V6N7M8K9P0R1S2T3V4W", "address": ADA}, "nobody"),
        ({"carrier_ids": ("unknown",), "address": ADA}, "nobody"),
    ],
)
async def test_whom_an_event_is_about(store: Store, clock: Any, given: dict[str, Any], taken: str) -> None:
    id_ = await mail(store, clock, BOB)
    await hand_over(store, clock)
    await hand_over(store, clock)
    own: dict[str, Any] = {
        name: tuple(one.replace("OWN", id_) for one in value) if isinstance(value, tuple) else value.replace("OWN", id_)
        for name, value in given.items()
    }
    assert await take(store, ProviderReport(**own, report=DELIVERED)) == [taken]
    assert await states(store, id_) == (["delivered", "sent"] if taken == "taken" else ["sent", "sent"])


async def test_another_carriers_message_stays_as_it_is(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await hand_over(store, clock)
    assert await take(store, ProviderReport(along=id_, address=ADA, report=BOUNCED), carrier="other") == ["nobody"]
    assert await states(store, id_) == ["sent"]


async def test_a_bounce_suppresses_its_recipient_alone(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock, BOB)
    await hand_over(store, clock)
    await hand_over(store, clock)
    reports = [ProviderReport(along=id_, address=address, report=DELIVERED) for address in (ADA, BOB)]
    assert await take(store, *reports) == ["taken", "taken"]  # the same words about two
    assert await take(store, ProviderReport(along=id_, address=BOB, report=BOUNCED)) == ["taken"]
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
async def test_repeats_and_other_orders_change_nothing_twice(
    store: Store, clock: Any, order: tuple[Report, ...], ends: str
) -> None:
    id_ = await mail(store, clock)
    await hand_over(store, clock)
    reports = [ProviderReport(along=id_, address=ADA, report=report) for report in order]
    await take(store, *reports)
    before = await told(store, id_)
    for _ in range(2):
        assert set(await take(store, *reports, *reversed(reports))) == {"known"}
    assert await told(store, id_) == before
    assert await states(store, id_) == [ends]


async def test_what_is_only_noted(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await hand_over(store, clock)
    await take(store, *(ProviderReport(along=id_, address=ADA, report=one) for one in (UNSUBSCRIBED, DEFERRED)))
    assert (await told(store, id_))[-2:] == ["unsubscribed", "deferred"]
    assert await store.suppressions.get(1, ADA) is None


async def test_the_same_callback_with_other_words_is_not_believed(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await hand_over(store, clock)
    assert await take(store, ProviderReport(along=id_, address=ADA, report=DELIVERED), once="a") == ["taken"]
    assert await take(store, ProviderReport(along=id_, address=ADA, report=BOUNCED), once="a") == ["known"]
    assert await states(store, id_) == ["delivered"]


async def test_before_the_hand_over_is_recorded(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    early, next_ = (ProviderReport(along=id_, address=ADA, report=report) for report in (DELIVERED, BOUNCED))
    assert await take(store, early, once="a") == ["taken"]
    assert await take(store, early, once="b") == ["taken"]
    assert await take(store, next_, once="c") == ["later"]
    await hand_over(store, clock)
    await store.reports.apply_early()
    assert await states(store, id_) == ["delivered"]
    assert await take(store, next_, once="c") == ["taken"]
    assert await states(store, id_) == ["bounced"]


async def test_before_the_hand_over_is_recorded_by_the_providers_id(store: Store, clock: Any) -> None:
    id_ = await mail(store, clock)
    await take(store, ProviderReport(carrier_ids=(f"{id_}/0", "x"), address=ADA, report=BOUNCED))
    await hand_over(store, clock)
    await store.reports.apply_early()
    assert await states(store, id_) == ["bounced"]
