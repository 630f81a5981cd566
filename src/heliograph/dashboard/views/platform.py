"""Settings for all teams: real sends allowed in the sandbox, and the default price list for approvals."""

import re
from typing import Any

from heliograph.dashboard.page_request import Answer, Page, Redirect, Visit, errors_of
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.records import Platform
from heliograph.manage import platform
from heliograph.texts.dashboard_links import of_instance

COUNTS = ("sandbox_per_day", "log_requests_per_second")
HERE = of_instance("platform")
FORM = "Write one price a line: channel, currency, country or *, amount; such as sms USD GB 0.0350."


async def show(visit: Visit) -> Answer:
    return _page(_to_form(visit.setup.platform))


async def save(visit: Visit) -> Answer:
    kept = _to_form(visit.setup.platform)
    given = {name: visit.form.get(name, kept[name]).strip() for name in (*COUNTS, "prices")}
    prices = _read_prices(given["prices"])
    if prices is None:
        return _page(given, {"prices": FORM})
    counts = {name: int(given[name]) if re.fullmatch("[0-9]{1,9}", given[name]) else given[name] for name in COUNTS}
    try:
        await platform.change(visit.store, visit.actor, {**counts, "prices": prices})
    except InvalidRequest as refusal:
        return _page(given, errors_of(refusal))
    return Redirect(HERE, "The platform is saved.")


def _to_form(record: Platform) -> dict[str, str]:
    lines = [
        f"{channel} {currency} {country} {format_money(price)}"
        for channel, currencies in record.prices.items()
        for currency, countries in currencies.items()
        for country, price in countries.items()
    ]
    return {name: str(getattr(record, name)) for name in COUNTS} | {"prices": "\n".join(lines)}


def _read_prices(text: str) -> dict[str, Any] | None:
    """Parse the price list into the setup file's structure; None if a line does not have four words."""
    prices: dict[str, Any] = {}
    for words in (line.split() for line in text.splitlines() if line.strip()):
        if len(words) != 4:
            return None
        channel, currency, country, amount = words
        prices.setdefault(channel.lower(), {}).setdefault(currency.upper(), {})[country.upper()] = amount
    return prices


def _page(given: dict[str, str], errors: dict[str, str] | None = None) -> Page:
    return Page("platform.html", {"given": given, "errors": errors or {}, "form": FORM}, 400 if errors else 200)
