"""What a phone template costs is somebody's word: at its approval, before it, and in its preview."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.setup.records import Platform, TeamRecord, Template
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, set_up
from tests.storage.test_idempotency import make_context

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme/templates"
NEW = {"channel": "sms", "name": "Parcel", "body": "Your parcel is here."}
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    platform = Platform(prices={"sms": {"USD": {"*": 50_000, "GB": 35_000}}})
    record = TeamRecord(ref=1, id=TEAM, name="Acme", mode="live")
    await set_up(store, ("platform", PLATFORM_ID, platform, None), ("team", TEAM, record, TEAM))
    return Pages(make_context(store, clock))


def only(pages: Pages) -> Template:
    (template,) = pages.setup.teams[TEAM].templates.values()
    return template


async def test_approving_a_draft_begins_with_the_price_list(pages: Pages) -> None:
    assert "Submitted" in (await pages.post(f"{HERE}/new", NEW, "developer")).notice
    place = f"{HERE}/{only(pages).id}"
    for who in ("developer", OPERATOR):
        shown = await pages.get(f"{place}/preview?draft=yes", who)
        text = shown.text.replace("\xa0", " ")
        assert "Elsewhere 0.05 USD" in text and "GB 0.035 USD" in text
    shown = await pages.get(place, OPERATOR)
    assert 'value="0.0500"' in shown.html and "GB 0.0350" in shown.html
    mark = shown.html.partition('name="mark" value="')[2].partition('"')[0]

    for given in (
        {},
        {"price": "0"},
        {"price": "", "free": ""},
        {"price": "0", "free": "no"},
        {"price": "0.0500", "prices": "GB 0"},
        {"price": "0.0500", "prices": "XX 0.0400"},
        {"price": "cheap"},
    ):
        refused = await pages.post(f"{place}/approve", {"mark": mark} | given, OPERATOR)
        assert (refused.status, only(pages).status) == (400, "draft"), given
    await pages.post(f"{place}/approve", {"mark": mark, "price": "0.0600", "prices": "GB 0.0300"}, OPERATOR)
    made = only(pages)
    assert (made.status, made.price, made.prices) == ("approved", 60_000, {"GB": 30_000})


async def test_prices_are_the_operators(pages: Pages) -> None:
    assert "Price of one segment" not in (await pages.get(f"{HERE}/new?channel=sms", "developer")).text
    await pages.post(f"{HERE}/new", NEW | {"price": "0.0100", "prices": "GB 0.0100"}, "developer")
    assert (only(pages).price, only(pages).prices) == (0, {})


async def test_a_free_one_is_ticked_and_the_next_one_is_not_free(pages: Pages) -> None:
    for said in ({}, {"free": ""}):
        refused = await pages.post(f"{HERE}/new", NEW | {"price": "0"} | said, OPERATOR)
        assert refused.status == 400 and "say that it is free" in refused.text
    await pages.post(f"{HERE}/new", NEW | {"price": "0", "free": "yes"}, OPERATOR)
    free = only(pages)
    assert (free.status, free.price) == ("approved", 0)
    await pages.post(f"{HERE}/new", NEW | {"name": "Second"}, "developer")
    (second,) = (t for t in pages.setup.teams[TEAM].templates.values() if t != free)
    assert second.status == "draft"


async def test_without_a_price_list_the_preview_promises_none(pages: Pages, store: Store) -> None:
    await set_up(store, ("platform", PLATFORM_ID, replace(pages.setup.platform, prices={}), None))
    await pages.post(f"{HERE}/new", NEW, "developer")
    shown = await pages.get(f"{HERE}/{only(pages).id}/preview?draft=yes", "developer")
    assert "An operator sets it" in shown.text and "0.0000" not in shown.text
