"""Settings for all teams: real sends in the sandbox, origins that may embed portals, and prices for approvals."""

import re
from typing import Any

import msgspec

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse, Redirect, field_errors
from heliograph.domain.phones.countries import country_code, country_name, country_names
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.sending.pricing import format_amount
from heliograph.domain.setup.records import Platform
from heliograph.manage import platform
from heliograph.texts.dashboard_links import operator_page

NUMBER_FIELDS = ("sandbox_per_day", "log_requests_per_second")
TEXT_FIELDS = (*NUMBER_FIELDS, "portal_origins")
PLATFORM_PATH = operator_page("platform")
PRICED_CHANNELS = (("sms", "SMS"), ("whatsapp", "WhatsApp"))
ROWS_MAX = 2000


class PriceRow(msgspec.Struct, frozen=True):
    """A row of the price list, as in the form."""

    channel: str = "sms"
    currency: str = ""
    country: str = ""  # empty means all other countries
    amount: str = ""
    is_new: bool = False
    is_removed: bool = False


async def show(request: PageRequest) -> PageResponse:
    return _page(_form_values(request.setup.platform), _stored_prices(request.setup.platform))


async def save(request: PageRequest) -> PageResponse:
    stored_values = _form_values(request.setup.platform)
    values = {name: request.form.get(name, stored_values[name]).strip() for name in TEXT_FIELDS}
    rows = _typed_prices(request.form) or _stored_prices(request.setup.platform)
    if "add" in request.form:
        return _page(values, [*rows, PriceRow(is_new=True)])
    kept_rows = [row for row in rows if not row.is_removed and (row.amount or not row.is_new)]
    prices, error = _price_list(kept_rows)
    if error:
        return _page(values, rows, {"prices": error})
    numbers = {
        name: int(values[name]) if re.fullmatch("[0-9]{1,9}", values[name]) else values[name] for name in NUMBER_FIELDS
    }
    try:
        changes = {**numbers, "prices": prices, "portal_origins": values["portal_origins"].split()}
        await platform.change_platform(request.store, request.actor, changes)
    except InvalidRequest as refusal:
        errors = {name: re.sub(r"^\[[0-9]+\]: ", "", error) for name, error in field_errors(refusal).items()}
        if "prices" not in errors:
            errors["prices"] = next((error for name, error in errors.items() if name.startswith("prices")), "")
        return _page(values, rows, {name: error for name, error in errors.items() if error})
    return Redirect(PLATFORM_PATH, "Platform settings saved.")


def _form_values(record: Platform) -> dict[str, str]:
    texts = {"portal_origins": "\n".join(record.portal_origins)}
    return {name: str(getattr(record, name)) for name in NUMBER_FIELDS} | texts


def _stored_prices(record: Platform) -> list[PriceRow]:
    return [
        PriceRow(channel, currency, "" if country == "*" else country, format_amount(price))
        for channel, currencies in record.prices.items()
        for currency, countries in currencies.items()
        for country, price in countries.items()
    ]


def _typed_prices(form: dict[str, str]) -> list[PriceRow]:
    """Return the rows of the price list in a form; empty if the form has no list."""
    rows = []
    for number in range(ROWS_MAX):
        prefix = f"price.{number}."
        if f"{prefix}channel" not in form:
            break
        channel, currency, country, amount = (
            form.get(prefix + name, "").strip() for name in ("channel", "currency", "country", "amount")
        )
        is_new, is_removed = (form.get(prefix + name) == "yes" for name in ("new", "remove"))
        rows.append(PriceRow(channel, currency.upper(), country_code(country), amount, is_new, is_removed))
    return rows


def _price_list(rows: list[PriceRow]) -> tuple[dict[str, Any], str]:
    """Return the prices as in a setup file; and the error if two rows have the same channel, currency and country."""
    prices: dict[str, Any] = {}
    for row in rows:
        countries = prices.setdefault(row.channel, {}).setdefault(row.currency, {})
        if (country := row.country or "*") in countries:
            name = country_name(row.country) if row.country else "all other countries"
            return {}, f"{row.channel}, {row.currency}, {name}: there are two prices. Remove one."
        countries[country] = row.amount
    return prices, ""


def _page(values: dict[str, str], rows: list[PriceRow], errors: dict[str, str] | None = None) -> Page:
    page_values = {
        "values": values,
        "rows": rows if any(row.is_new for row in rows) else [*rows, PriceRow(is_new=True)],
        "channels": PRICED_CHANNELS,
        "countries": country_names(),
        "country_name": country_name,
    }
    return Page.form("platform.html", page_values, errors)
