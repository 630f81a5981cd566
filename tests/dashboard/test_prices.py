"""The price of an SMS or WhatsApp template, set by an operator: before and at its approval, and in its preview."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.setup.records import Platform, TeamRecord, Template
from heliograph.domain.setup.snapshot import PLATFORM_ID
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

TEAM, HERE = "team_acme", "/dashboard/teams/team_acme/templates"
NEW = {"channel": "sms", "name": "Parcel", "body": "Your parcel is here."}
pytestmark = pytest.mark.anyio


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    platform = Platform(prices={"sms": {"USD": {"*": 50_000, "GB": 35_000}}})
    record = TeamRecord(ref=1, id=TEAM, name="Acme", mode="live")
    await write_records(store, ("platform", PLATFORM_ID, platform, None), ("team", TEAM, record, TEAM))
    return Pages(make_context(store, clock))


def only_template(pages: Pages) -> Template:
    (template,) = pages.setup.teams[TEAM].templates.values()
    return template


async def test_approval_form_is_prefilled_from_price_list(pages: Pages) -> None:
    assert "Submitted" in (await pages.post(f"{HERE}/new", NEW, "developer")).notice
    path = f"{HERE}/{only_template(pages).id}"
    for who in ("developer", OPERATOR):
        response = await pages.get(f"{path}/preview?draft=yes", who)
        text = response.text.replace("\xa0", " ")
        assert "All other countries 0.05 USD" in text and "GB 0.035 USD" in text
    response = await pages.get(path, OPERATOR)
    assert 'value="0.05"' in response.html and "GB 0.035" in response.html
    mark = response.html.partition('name="mark" value="')[2].partition('"')[0]

    for form in (
        {},
        {"price": "0"},
        {"price": "", "free": ""},
        {"price": "0", "free": "no"},
        {"price": "0.0500", "prices": "GB 0"},
        {"price": "0.0500", "prices": "XX 0.0400"},
        {"price": "cheap"},
    ):
        refused = await pages.post(f"{path}/approve", {"mark": mark} | form, OPERATOR)
        assert (refused.status, only_template(pages).status) == (400, "draft"), form
    await pages.post(f"{path}/approve", {"mark": mark, "price": "0.0600", "prices": "GB 0.0300"}, OPERATOR)
    template = only_template(pages)
    assert (template.status, template.price, template.prices) == ("approved", 60_000, {"GB": 30_000})


async def test_developer_cannot_set_prices(pages: Pages) -> None:
    assert "Price per segment" not in (await pages.get(f"{HERE}/new?channel=sms", "developer")).text
    await pages.post(f"{HERE}/new", NEW | {"price": "0.0100", "prices": "GB 0.0100"}, "developer")
    assert (only_template(pages).price, only_template(pages).prices) == (0, {})


async def test_free_template_requires_checkbox_each_time(pages: Pages) -> None:
    for form in ({}, {"free": ""}):
        refused = await pages.post(f"{HERE}/new", NEW | {"price": "0"} | form, OPERATOR)
        assert refused.status == 400 and "mark the template as free" in refused.text
    await pages.post(f"{HERE}/new", NEW | {"price": "0", "free": "yes"}, OPERATOR)
    free = only_template(pages)
    assert (free.status, free.price) == ("approved", 0)
    await pages.post(f"{HERE}/new", NEW | {"name": "Second"}, "developer")
    (second,) = (t for t in pages.setup.teams[TEAM].templates.values() if t != free)
    assert second.status == "draft"


async def test_preview_without_price_list_shows_no_price(pages: Pages, store: Store) -> None:
    await write_records(store, ("platform", PLATFORM_ID, replace(pages.setup.platform, prices={}), None))
    await pages.post(f"{HERE}/new", NEW, "developer")
    response = await pages.get(f"{HERE}/{only_template(pages).id}/preview?draft=yes", "developer")
    assert "An operator sets the price" in response.text and "0.0000" not in response.text
