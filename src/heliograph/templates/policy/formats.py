"""Value formats by CLDR, such as `{{customer.total|money:EUR}}`, in a template's locale and time zone (contract 18)."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo

import msgspec
from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_datetime, format_time
from babel.numbers import format_currency, format_decimal, format_percent, get_currency_precision, list_currencies

from heliograph.domain.ids import parse_timestamp
from heliograph.domain.limits import SECOND_MS

FormatKind = Literal["money", "number", "percent", "date", "time", "datetime"]
FormatWidth = Literal["short", "medium", "long"]
MEDIUM: FormatWidth = "medium"
NUMBER_KINDS: tuple[FormatKind, ...] = ("money", "number", "percent")
NUMBER_MAX = Decimal(10) ** 15  # numbers must be below this limit
DECIMALS_MAX = 12
FORMATTABLE_TEXT_MAX = 64  # maximum characters of a number or time that can be formatted
_DECIMAL_NUMBER = re.compile(r"[-+]?[0-9]{1,16}(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,2})?", re.ASCII)
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")
# The years 1000 to 9998: outside them a date in a time zone can overflow.
_FIRST_TIME_MS, _TIME_END_MS = -30_610_224_000_000, 253_370_764_800_000
_SPACE_BY_NO_BREAK = str.maketrans("\u00a0\u202f\u2007\u2060", "    ")


class ValueFormat(msgspec.Struct, frozen=True):
    kind: FormatKind
    argument: str = ""  # the currency or the width


class Region(msgspec.Struct, frozen=True):
    """Locale and time zone in which values are formatted."""

    locale: str = "en"
    timezone: str = "UTC"


def read_format(kind: str, argument: str | None) -> ValueFormat | str:
    """Return the format of a placeholder's kind and argument, such as `money` and `EUR`; an error text if invalid."""
    if kind not in get_args(FormatKind):
        return f"unknown format {kind}: use {', '.join(get_args(FormatKind))}"
    if kind == "money":
        if argument not in list_currencies():
            return "money needs a currency's ISO code, as in |money:EUR"
        return ValueFormat("money", argument or "")
    if kind in NUMBER_KINDS:
        return f"{kind} has no options" if argument else ValueFormat(kind)
    if argument not in (None, *get_args(FormatWidth)):
        return f"{kind} can be short, medium or long, as in |{kind}:long"
    return ValueFormat(kind, argument or MEDIUM)  # type: ignore[arg-type]


def can_format(value_format: ValueFormat, text: str) -> bool:
    if value_format.kind in NUMBER_KINDS:
        return _parse_number(text) is not None
    return _parse_time(text) is not None or (value_format.kind == "date" and _parse_date(text) is not None)


def format_value(value_format: ValueFormat, text: str, region: Region) -> str:
    """Return the formatted value; empty if it cannot be formatted, which `can_format` checks beforehand."""
    return _format_cached(value_format, text, region) if len(text) <= FORMATTABLE_TEXT_MAX else ""


@lru_cache(maxsize=16_384)  # values recur, and CLDR formatting takes ten times as long as the rest of rendering a value
def _format_cached(value_format: ValueFormat, text: str, region: Region) -> str:
    if value_format.kind in NUMBER_KINDS:
        number = _parse_number(text)
        return "" if number is None else _format_number(value_format, number, region.locale)
    locale = cldr_locale(region.locale)
    width: FormatWidth = value_format.argument  # type: ignore[assignment]
    if value_format.kind == "date" and (day := _parse_date(text)):
        return format_date(day, width, locale=locale)
    moment = _parse_time(text)
    if moment is None:
        return ""
    zone = ZoneInfo(region.timezone)
    if value_format.kind == "date":
        return format_date(moment.astimezone(zone).date(), width, locale=locale)
    format_moment = format_time if value_format.kind == "time" else format_datetime
    return format_moment(moment, width, tzinfo=zone, locale=locale)


def _format_number(value_format: ValueFormat, number: Decimal, tag: str) -> str:
    """Format a number: fill its digits into a cached template for this number of digits, which saves CLDR calls."""
    scale, min_decimals, step = _precision(value_format, tag)
    integer, _, decimals = format(abs(number).scaleb(scale).quantize(step), "f").partition(".")
    decimals = decimals[:min_decimals] + decimals[min_decimals:].rstrip("0")
    return _digit_template(value_format, tag, number.is_signed(), len(integer), len(decimals)) % (*integer, *decimals)


@lru_cache(maxsize=1024)
def _precision(value_format: ValueFormat, tag: str) -> tuple[int, int, Decimal]:
    """Return a format's decimal shift, its minimum number of decimals, and its smallest decimal step."""
    if value_format.kind == "money":
        min_decimals = max_decimals = get_currency_precision(value_format.argument)
        return 0, min_decimals, Decimal(1).scaleb(-max_decimals)
    locale = cldr_locale(tag)
    pattern = (locale.percent_formats if value_format.kind == "percent" else locale.decimal_formats)[None]
    min_decimals, max_decimals = pattern.frac_prec
    return pattern.scale, min_decimals, Decimal(1).scaleb(-max_decimals)


@lru_cache(maxsize=4096)
def _digit_template(
    value_format: ValueFormat, tag: str, is_negative: bool, integer_digits: int, decimal_digits: int
) -> str:
    """Return CLDR's text for a number whose digits are all 1, with `%s` in place of each digit."""
    scale, _, _ = _precision(value_format, tag)
    ones = Decimal(f"{'-' * is_negative}{'1' * integer_digits}.{'1' * decimal_digits}").scaleb(-scale)
    locale = cldr_locale(tag)
    if value_format.kind == "money":
        text = format_currency(ones, value_format.argument, locale=locale)
    else:
        text = (format_percent if value_format.kind == "percent" else format_decimal)(ones, locale=locale)
    return text.replace("%", "%%").replace("1", "%s")


def replace_no_break_spaces(text: str) -> str:
    """Replace CLDR's no-break spaces, which would force an SMS out of the GSM alphabet."""
    return text.translate(_SPACE_BY_NO_BREAK)


@lru_cache(maxsize=256)
def cldr_locale(tag: str) -> Locale:
    """Return the CLDR locale of a tag, falling back from `de-XX` to `de` and finally to `en`."""
    parts = tag.split("-")
    while parts:
        try:
            return Locale.parse("-".join(parts), sep="-")
        except (UnknownLocaleError, ValueError):
            parts.pop()
    return Locale("en")


@lru_cache(maxsize=256)
def is_right_to_left(tag: str) -> bool:
    return cldr_locale(tag).character_order == "right-to-left"


@lru_cache(maxsize=256)
def is_timezone(name: str) -> bool:
    try:
        return bool(_ZONE_NAME.fullmatch(name)) and ZoneInfo(name) is not None
    except (KeyError, OSError, ValueError):
        return False


def _parse_number(text: str) -> Decimal | None:
    if not _DECIMAL_NUMBER.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return round(number, DECIMALS_MAX) if abs(number) < NUMBER_MAX else None


def _parse_date(text: str) -> date | None:
    if not _ISO_DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _parse_time(text: str) -> datetime | None:
    time_ms = parse_timestamp(text)
    if time_ms is None or not _FIRST_TIME_MS <= time_ms < _TIME_END_MS:
        return None
    return datetime.fromtimestamp(time_ms // SECOND_MS, UTC)
