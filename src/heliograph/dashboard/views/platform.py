"""Settings for all teams: real sends in the sandbox, origins that may embed portals, and prices for approvals."""

import re
from typing import Any

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.records import Platform
from heliograph.manage import platform
from heliograph.texts.dashboard_links import operator_page

NUMBER_FIELDS = ("sandbox_per_day", "log_requests_per_second")
FIELDS = (*NUMBER_FIELDS, "prices", "portal_origins")
PLATFORM_PATH = operator_page("platform")
PRICE_FORMAT = "One price per line: channel, currency, country (or *), amount. For example: sms USD GB 0.0350."


async def show(request: PageRequest) -> PageResponse:
    return _page(_form_values(request.setup.platform))


async def save(request: PageRequest) -> PageResponse:
    stored = _form_values(request.setup.platform)
    values = {name: request.form.get(name, stored[name]).strip() for name in FIELDS}
    prices = _parse_prices(values["prices"])
    if prices is None:
        return _page(values, {"prices": PRICE_FORMAT})
    numbers = {
        name: int(values[name]) if re.fullmatch("[0-9]{1,9}", values[name]) else values[name] for name in NUMBER_FIELDS
    }
    try:
        changes = {**numbers, "prices": prices, "portal_origins": values["portal_origins"].split()}
        await platform.change_platform(request.store, request.actor, changes)
    except InvalidRequest as refusal:
        errors = {name: re.sub(r"^\[[0-9]+\]: ", "", error) for name, error in field_errors(refusal).items()}
        return _page(values, errors)
    return Redirect(PLATFORM_PATH, "Platform settings saved.")


def _form_values(record: Platform) -> dict[str, str]:
    price_lines = [
        f"{channel} {currency} {country} {format_money(price)}"
        for channel, currencies in record.prices.items()
        for currency, countries in currencies.items()
        for country, price in countries.items()
    ]
    texts = {"prices": "\n".join(price_lines), "portal_origins": "\n".join(record.portal_origins)}
    return {name: str(getattr(record, name)) for name in NUMBER_FIELDS} | texts


def _parse_prices(text: str) -> dict[str, Any] | None:
    """Parse the price list into the setup file's structure; None if a line does not have four words."""
    prices: dict[str, Any] = {}
    for columns in (line.split() for line in text.splitlines() if line.strip()):
        if len(columns) != 4:
            return None
        channel, currency, country, amount = columns
        prices.setdefault(channel.lower(), {}).setdefault(currency.upper(), {})[country.upper()] = amount
    return prices


def _page(values: dict[str, str], errors: dict[str, str] | None = None) -> Page:
    return Page(
        "platform.html",
        {"values": values, "errors": errors or {}, "price_format": PRICE_FORMAT},
        400 if errors else 200,
    )
