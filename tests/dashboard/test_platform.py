"""Operator pages: platform settings, the order of carriers, and actions on all dead letters."""

import re
from typing import Any

import pytest

from heliograph.domain.setup.records import CarrierRecord, TeamRecord
from heliograph.manage.carriers import carriers_of_channel
from heliograph.storage.store import Store
from tests.dashboard.inside import OPERATOR, Pages, write_records
from tests.storage.test_idempotency import make_context

HERE = "/dashboard/operator/platform"


def price_rows(*rows: tuple[str, str, str, str], **more: str) -> dict[str, str]:
    """Return the form fields of new rows of the price list."""
    names = ("channel", "currency", "country", "amount")
    return {
        f"price.{number}.{name}": value
        for number, row in enumerate(rows)
        for name, value in zip((*names, "new"), (*row, "yes"), strict=True)
    } | more


@pytest.fixture
async def pages(store: Store, clock: Any) -> Pages:
    record = TeamRecord(ref=1, id="team_acme", name="Acme")
    await write_records(store, ("team", record.id, record, record.id))
    return Pages(make_context(store, clock))


@pytest.mark.anyio
async def test_platform_form_saves_sandbox_limit_and_price_list(pages: Pages) -> None:
    form = {"sandbox_per_day": "7"} | price_rows(
        ("sms", "usd", "", "0.05"), ("sms", "USD", "united kingdom", "0.0350"), ("whatsapp", "EUR", "", "0.01")
    )
    assert (await pages.post(HERE, form, OPERATOR)).notice == "Platform settings saved."
    assert pages.setup.platform.sandbox_per_day == 7
    assert pages.setup.platform.prices == {
        "sms": {"USD": {"*": 50_000, "GB": 35_000}},
        "whatsapp": {"EUR": {"*": 10_000}},
    }
    response = await pages.get(HERE, OPERATOR)
    assert "SMS USD United Kingdom" in response.text and 'value="0.035"' in response.html
    assert 'value="7"' in response.html


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sandbox_per_day": "many"}, "whole number"),
        (price_rows(("sms", "USD", "", "0.05"), ("sms", "usd", "", "0.06")), "there are two prices. Remove one."),
        (price_rows(("email", "USD", "", "0.05")), "expected"),
        (price_rows(("sms", "USD", "", "free")), "not an amount"),
        (price_rows(("sms", "USD", "Atlantis", "0.05")), "Atlantis"),
        ({"portal_origins": "https://a.test http://a.test"}, "expected https://, or http:// on this machine"),
        ({"portal_origins": "https://a.test/path"}, "without a path"),
        ({"portal_origins": "https://*.a.test"}, "not a valid name"),
        ({"portal_origins": " ".join(f"https://a{i}.test" for i in range(51))}, "at most 50"),
    ],
)
async def test_invalid_platform_form_changes_nothing(pages: Pages, given: dict[str, str], why: str) -> None:
    before = pages.setup.version
    response = await pages.post(HERE, {"sandbox_per_day": "7", "prices": ""} | given, OPERATOR)
    assert response.status == 400 and why in response.text
    assert pages.setup.version == before


@pytest.mark.anyio
async def test_platform_form_saves_normalized_portal_origins(pages: Pages) -> None:
    form = {"portal_origins": "https://App.example.com:443/ http://localhost:3000\nhttps://app.example.com"}
    assert (await pages.post(HERE, form, OPERATOR)).status == 303
    assert pages.setup.platform.portal_origins == ("https://app.example.com", "http://localhost:3000")
    assert "https://app.example.com\nhttp://localhost:3000</textarea>" in (await pages.get(HERE, OPERATOR)).html
    await pages.post(HERE, {"sandbox_per_day": "7"}, OPERATOR)
    assert len(pages.setup.platform.portal_origins) == 2
    await pages.post(HERE, {"portal_origins": ""}, OPERATOR)
    assert not pages.setup.platform.portal_origins


@pytest.mark.anyio
async def test_prices_are_changed_and_removed_in_the_table(pages: Pages) -> None:
    await pages.post(HERE, price_rows(("sms", "USD", "", "0.05"), ("sms", "USD", "GB", "0.04")), OPERATOR)
    await pages.post(HERE, {"sandbox_per_day": "9"}, OPERATOR)  # a form without the table leaves prices as they are
    assert pages.setup.platform.prices == {"sms": {"USD": {"*": 50_000, "GB": 40_000}}}
    fields = dict(
        re.findall(r'name="(price\.[01]\.(?!remove)\w+)" value="([^"]*)"', (await pages.get(HERE, OPERATOR)).html)
    )
    done = await pages.post(HERE, fields | {"price.0.amount": "0.06", "price.1.remove": "yes"}, OPERATOR)
    assert done.status == 303 and pages.setup.platform.prices == {"sms": {"USD": {"*": 60_000}}}
    emptied = await pages.post(HERE, fields | {"price.0.amount": "", "price.1.remove": "yes"}, OPERATOR)
    assert emptied.status == 400 and "not an amount" in emptied.text


@pytest.mark.anyio
async def test_platform_form_for_owner_returns_403(pages: Pages) -> None:
    assert (await pages.post(HERE, {"sandbox_per_day": "7"}, "owner")).status == 403


@pytest.mark.anyio
@pytest.mark.parametrize(("moved", "where", "order"), [("b", "up", "ba"), ("a", "down", "ba"), ("a", "up", "ab")])
async def test_carrier_order_is_changed(pages: Pages, store: Store, moved: str, where: str, order: str) -> None:
    both = [CarrierRecord(id=id_, channel="sms", kind="simulator", priority=n) for n, id_ in enumerate("ab", 1)]
    await write_records(store, *(("carrier", item.id, item, None) for item in both))
    await pages.post(f"/dashboard/operator/carriers/{moved}", {"move": where}, OPERATOR)
    assert "".join(item.id for item in carriers_of_channel(pages.setup, "sms")) == order


@pytest.mark.anyio
@pytest.mark.parametrize(("place", "done"), [("retry-all", "queued again"), ("drop-all", "deleted")])
async def test_bulk_dead_letter_action_requires_confirmation(pages: Pages, place: str, done: str) -> None:
    path, form = f"/dashboard/operator/queues/{place}", {"until": "9" * 15}
    assert "Nothing was changed" in (await pages.post(path, form, OPERATOR)).notice
    assert f"0 dead letters {done}" in (await pages.post(path, form | {"sure": "yes"}, OPERATOR)).notice


@pytest.mark.anyio
async def test_add_price_shows_another_empty_row_and_saves_nothing(pages: Pages) -> None:
    empty = (await pages.get(HERE, OPERATOR)).html.count('new" value="yes"')
    response = await pages.post(HERE, price_rows(("sms", "USD", "", "0.05")) | {"add": "yes"}, OPERATOR)
    assert response.status == 200 and 'value="0.05"' in response.html and empty == 1
    assert response.html.count('new" value="yes"') == 2 and pages.setup.platform.prices == {}
