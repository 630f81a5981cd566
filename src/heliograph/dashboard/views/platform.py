"""What holds for every team: how much a sandbox may send for real, and the price list that approvals begin with."""

import re
from typing import Any

from heliograph.dashboard.visit import Answer, Page, Redirect, Visit, errors_of
from heliograph.manage import platform
from heliograph.rules.pricing import format_money
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.records import Platform

HERE = "/dashboard/operator/platform"
FORM = "Write one price a line: channel, currency, country or *, amount; such as sms USD GB 0.0350."


async def show(visit: Visit) -> Answer:
    return _page(_to_form(visit.setup.platform))


async def save(visit: Visit) -> Answer:
    given = {name: visit.form.get(name, "").strip() for name in ("sandbox_per_day", "prices")}
    count, prices = given["sandbox_per_day"], _read_prices(given["prices"])
    if prices is None:
        return _page(given, {"prices": FORM})
    typed = int(count) if re.fullmatch("[0-9]{1,9}", count) else count
    try:
        await platform.change(visit.store, visit.actor, {"sandbox_per_day": typed, "prices": prices})
    except InvalidRequest as refusal:
        return _page(given, errors_of(refusal))
    return Redirect(HERE, "Saved.")


def _to_form(record: Platform) -> dict[str, str]:
    lines = [
        f"{channel} {currency} {country} {format_money(price)}"
        for channel, currencies in record.prices.items()
        for currency, countries in currencies.items()
        for country, price in countries.items()
    ]
    return {"sandbox_per_day": str(record.sandbox_per_day), "prices": "\n".join(lines)}


def _read_prices(text: str) -> dict[str, Any] | None:
    """As a setup file would write them; None: a line is not four words."""
    prices: dict[str, Any] = {}
    for words in (line.split() for line in text.splitlines() if line.strip()):
        if len(words) != 4:
            return None
        channel, currency, country, amount = words
        prices.setdefault(channel.lower(), {}).setdefault(currency.upper(), {})[country.upper()] = amount
    return prices


def _page(given: dict[str, str], errors: dict[str, str] | None = None) -> Page:
    return Page("platform.html", {"given": given, "errors": errors or {}, "form": FORM}, 400 if errors else 200)
