"""The operator's pages: what holds for every team, in which order carriers are asked, all dead letters at once."""

from typing import Any

import pytest

from heliograph.domain.setup.records import CarrierRecord, TeamRecord
from heliograph.manage.carriers import of_channel
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

HERE = "/dashboard/operator/platform"


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme")
    await set_up(store, ("team", record.id, record, record.id))
    return Pages(make_context(store, clock))


@pytest.mark.anyio
async def test_the_day_of_the_sandbox_and_the_price_list(pages: Pages) -> None:
    given = {"sandbox_per_day": "7", "prices": "sms usd * 0.05\nsms USD GB 0.0350\n\nwhatsapp EUR * 0.01"}
    assert (await pages.post(HERE, given, OPERATOR)).notice == "The platform is saved."
    assert pages.setup.platform.sandbox_per_day == 7
    assert pages.setup.platform.prices == {
        "sms": {"USD": {"*": 50_000, "GB": 35_000}},
        "whatsapp": {"EUR": {"*": 10_000}},
    }
    shown = await pages.get(HERE, OPERATOR)
    assert "sms USD GB 0.0350" in shown.html and 'value="7"' in shown.html


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sandbox_per_day": "many"}, "whole number"),
        ({"prices": "sms USD 0.05"}, "one price a line"),
        ({"prices": "email USD * 0.05"}, "expected"),
        ({"prices": "sms USD * free"}, "not an amount"),
    ],
)
async def test_mistakes_are_said_and_change_nothing(pages: Pages, given: dict[str, str], why: str) -> None:
    before = pages.setup.version
    shown = await pages.post(HERE, {"sandbox_per_day": "7", "prices": ""} | given, OPERATOR)
    assert shown.status == 400 and why in shown.text
    assert pages.setup.version == before


@pytest.mark.anyio
async def test_it_is_an_operators(pages: Pages) -> None:
    assert (await pages.post(HERE, {"sandbox_per_day": "7"}, "owner")).status == 403


@pytest.mark.anyio
@pytest.mark.parametrize(("moved", "where", "order"), [("b", "up", "ba"), ("a", "down", "ba"), ("a", "up", "ab")])
async def test_carriers_change_places(pages: Pages, store: Store, moved: str, where: str, order: str) -> None:
    both = [CarrierRecord(id=id_, channel="sms", kind="simulator", priority=n) for n, id_ in enumerate("ab", 1)]
    await set_up(store, *(("carrier", one.id, one, None) for one in both))
    await pages.post(f"/dashboard/operator/carriers/{moved}", {"move": where}, OPERATOR)
    assert "".join(one.id for one in of_channel(pages.setup, "sms")) == order


@pytest.mark.anyio
@pytest.mark.parametrize(("place", "done"), [("retry-all", "put into the queue again"), ("drop-all", "deleted")])
async def test_all_dead_letters_at_once_need_a_tick(pages: Pages, place: str, done: str) -> None:
    asked, given = f"/dashboard/operator/queues/{place}", {"until": "9" * 15}
    assert "Nothing was done" in (await pages.post(asked, given, OPERATOR)).notice
    assert f"0 dead letters {done}" in (await pages.post(asked, given | {"sure": "yes"}, OPERATOR)).notice
