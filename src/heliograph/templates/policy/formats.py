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

Kind = Literal["money", "number", "percent", "date", "time", "datetime"]
Width = Literal["short", "medium", "long"]
MEDIUM: Width = "medium"
NUMBERS: tuple[Kind, ...] = ("money", "number", "percent")
NUMBER_MAX = Decimal(10) ** 15  # numbers must be below this limit
DECIMALS_MAX = 12
TEXT_MAX = 64  # characters; no formattable number or time is longer
_DECIMAL = re.compile(r"[-+]?[0-9]{1,16}(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,2})?", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")
# The years 1000 to 9998: outside them a date in a time zone can overflow.
_FIRST, _LAST = -30_610_224_000_000, 253_370_764_800_000
_NO_BREAK = str.maketrans("\u00a0\u202f\u2007\u2060", "    ")


class ValueFormat(msgspec.Struct, frozen=True):
    kind: Kind
    argument: str = ""  # the currency or the width


class Region(msgspec.Struct, frozen=True):
    """Locale and time zone of a text."""

    locale: str = "en"
    timezone: str = "UTC"


def read_format(kind: str, argument: str | None) -> ValueFormat | str:
    """Return the format, or an error message."""
    if kind not in get_args(Kind):
        return f"there is no format {kind}: write {', '.join(get_args(Kind))}"
    if kind == "money":
        if argument not in list_currencies():
            return "money needs a currency's ISO code, as in |money:EUR"
        return ValueFormat("money", argument or "")
    if kind in NUMBERS:
        return f"{kind} takes nothing after it" if argument else ValueFormat(kind)
    if argument not in (None, *get_args(Width)):
        return f"{kind} takes short, medium or long, as in |{kind}:long"
    return ValueFormat(kind, argument or MEDIUM)  # type: ignore[arg-type]


def can_format(wanted: ValueFormat, text: str) -> bool:
    if wanted.kind in NUMBERS:
        return _number(text) is not None
    return _moment(text) is not None or (wanted.kind == "date" and _day(text) is not None)


def formatted(wanted: ValueFormat, text: str, region: Region) -> str:
    """Return the formatted value; empty if it cannot be formatted, which `can_format` checks beforehand."""
    return _formatted(wanted, text, region) if len(text) <= TEXT_MAX else ""


@lru_cache(maxsize=16_384)  # values recur, and CLDR formatting takes ten times as long as the rest of rendering a value
def _formatted(wanted: ValueFormat, text: str, region: Region) -> str:
    if wanted.kind in NUMBERS:
        number = _number(text)
        return "" if number is None else _written(wanted, number, region.locale)
    locale = locale_of(region.locale)
    width: Width = wanted.argument  # type: ignore[assignment]
    if wanted.kind == "date" and (day := _day(text)):
        return format_date(day, width, locale=locale)
    moment = _moment(text)
    if moment is None:
        return ""
    zone = ZoneInfo(region.timezone)
    if wanted.kind == "date":
        return format_date(moment.astimezone(zone).date(), width, locale=locale)
    write = format_time if wanted.kind == "time" else format_datetime
    return write(moment, width, tzinfo=zone, locale=locale)


def _written(wanted: ValueFormat, number: Decimal, tag: str) -> str:
    """Format a number by filling its digits into a cached text for the same digit counts, to avoid CLDR calls."""
    scale, least, step = _precision(wanted, tag)
    whole, _, decimals = format(abs(number).scaleb(scale).quantize(step), "f").partition(".")
    decimals = decimals[:least] + decimals[least:].rstrip("0")
    return _text_of_digits(wanted, tag, number.is_signed(), len(whole), len(decimals)) % (*whole, *decimals)


@lru_cache(maxsize=1024)
def _precision(wanted: ValueFormat, tag: str) -> tuple[int, int, Decimal]:
    """Return the decimal shift, the minimum number of decimals, and the smallest decimal step."""
    if wanted.kind == "money":
        least = most = get_currency_precision(wanted.argument)
        return 0, least, Decimal(1).scaleb(-most)
    locale = locale_of(tag)
    pattern = (locale.percent_formats if wanted.kind == "percent" else locale.decimal_formats)[None]
    least, most = pattern.frac_prec
    return pattern.scale, least, Decimal(1).scaleb(-most)


@lru_cache(maxsize=4096)
def _text_of_digits(wanted: ValueFormat, tag: str, is_negative: bool, whole: int, decimals: int) -> str:
    """Return CLDR's text for a number whose digits are all 1, with `%s` in place of each digit."""
    scale, _, _ = _precision(wanted, tag)
    ones, locale = Decimal(f"{'-' * is_negative}{'1' * whole}.{'1' * decimals}").scaleb(-scale), locale_of(tag)
    if wanted.kind == "money":
        text = format_currency(ones, wanted.argument, locale=locale)
    else:
        text = (format_percent if wanted.kind == "percent" else format_decimal)(ones, locale=locale)
    return text.replace("%", "%%").replace("1", "%s")


def plain_spaces(text: str) -> str:
    """Replace CLDR's no-break spaces, which would force an SMS out of the GSM alphabet."""
    return text.translate(_NO_BREAK)


@lru_cache(maxsize=256)
def locale_of(tag: str) -> Locale:
    """Return the CLDR locale of a tag, falling back from `de-XX` to `de` and finally to `en`."""
    parts = tag.split("-")
    while parts:
        try:
            return Locale.parse("-".join(parts), sep="-")
        except (UnknownLocaleError, ValueError):
            parts.pop()
    return Locale("en")


@lru_cache(maxsize=256)
def is_from_the_right(tag: str) -> bool:
    return locale_of(tag).character_order == "right-to-left"


@lru_cache(maxsize=256)
def is_timezone(name: str) -> bool:
    try:
        return bool(_ZONE.fullmatch(name)) and ZoneInfo(name) is not None
    except (KeyError, OSError, ValueError):
        return False


def _number(text: str) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return round(number, DECIMALS_MAX) if abs(number) < NUMBER_MAX else None


def _day(text: str) -> date | None:
    if not _DAY.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    at = parse_timestamp(text)
    if at is None or not _FIRST <= at < _LAST:
        return None
    return datetime.fromtimestamp(at // SECOND_MS, UTC)
