"""Renders Jinja templates to HTML, and the filters that all pages share. All values are escaped."""

from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, date, datetime, tzinfo
from functools import cache
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

import msgspec
from jinja2 import Environment
from markupsafe import Markup

from heliograph.dashboard.navigation import MENU, OPERATORS
from heliograph.dashboard.states import state_of
from heliograph.domain.ids import timestamp
from heliograph.domain.sending.pricing import format_money
from heliograph.texts.dashboard_links import below_team
from heliograph.web import html

SPANS = ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"))
CHANNEL_NAMES: dict[str, str] = {"email": "Email", "sms": "SMS", "whatsapp": "WhatsApp"}
WEEK_MS = 7 * 86_400_000
CENT = 10_000  # micro-units in a cent; amounts of money are in millionths


class Reader(msgspec.Struct, frozen=True):
    """Reader of a page: current time and time zone, by which the page formats times."""

    now: int = 0  # 0 if unknown; times are then shown as absolute
    zone: tzinfo = UTC


_READER: ContextVar[Reader] = ContextVar("reader", default=Reader())  # noqa: B039  it is frozen


@cache
def environment() -> Environment:
    made = html.environment("heliograph.dashboard")
    made.filters |= {
        "when": when,
        "exact": exact,
        "by_day": by_day,
        "money": money,
        "unit_price": unit_price,
        "channel_name": channel_name,
        "number": number,
        "short": short,
        "plural": plural,
        "host": host,
        "lasted": lasted,
        "are": are,
    }
    made.globals |= {"state_of": state_of, "menu": MENU, "operator_menu": OPERATORS, "below_team": below_team}
    return made


def render(template: str, values: dict[str, Any], reader: Reader | None = None) -> bytes:
    told, made = _READER.set(reader or Reader()), environment().get_template(template)
    context = made.new_context(values)
    try:
        return made.environment.concat(made.root_render_func(context)).encode()
    finally:
        _READER.reset(told)
        # Macros and context form a reference cycle: free the page's data now, not at the next garbage collection.
        context.parent.clear()
        context.vars.clear()


# -- times -----------------------------------------------------------------------------------------------------


def when(at: int | str | None) -> Markup:
    """Return a time relative to now; the exact time in the reader's zone is the tooltip and the screen reader text.

    `at` is in ms or ISO 8601.
    """
    if at is None:
        return Markup('<span class="quiet">never</span>')
    ms, reader = _ms(at), _READER.get()
    if not reader.now:
        return exact(ms)
    said = _exact(ms, reader.zone)
    return Markup(
        '<time datetime="{}" title="{}"><span aria-hidden="true">{}</span><span class="unseen">{}</span></time>'
    ).format(timestamp(ms), said, ago(ms, reader), said)


def exact(at: int | str | None) -> Markup:
    """Return the exact time in the reader's zone, for lists in which seconds matter."""
    if at is None:
        return Markup('<span class="quiet">never</span>')
    ms = _ms(at)
    return Markup('<time class="exact" datetime="{}" title="{}">{}</time>').format(
        timestamp(ms), timestamp(ms), _exact(ms, _READER.get().zone)
    )


def by_day(lines: Iterable[Any], reader: Reader | None = None) -> list[tuple[date, str, list[Any]]]:
    """Group lines, sorted by `created_at`, by day in the reader's zone: (date, heading, lines)."""
    reader = reader or _READER.get()
    today = _local(reader.now, reader.zone).date()

    def date_of(line: Any) -> date:
        return _local(line["created_at"] if isinstance(line, dict) else line.created_at, reader.zone).date()

    return [(day, _heading(day, today), list(those)) for day, those in groupby(lines, date_of)]


def _heading(day: date, today: date) -> str:
    if (today - day).days in (0, 1):
        return "Today" if day == today else "Yesterday"
    return day.strftime("%A, %-d %B" if day.year == today.year else "%A, %-d %B %Y")


def ago(ms: int, reader: Reader) -> str:
    """Return a relative time within a week, otherwise a date; page.js must use the same wording."""
    away = abs(reader.now - ms)
    if away >= WEEK_MS:
        day, today = (_local(one, reader.zone) for one in (ms, reader.now))
        return day.strftime("%-d %b" if day.year == today.year else "%-d %b %Y")
    if away < 10_000:
        return "just now"
    count, unit = next(
        (away // size, unit)
        for size, unit in ((86_400_000, "day"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
        if away >= size
    )
    span = f"{count} {unit}" + ("s" if unit == "day" and count > 1 else "")
    return f"{span} ago" if ms <= reader.now else f"in {span}"


def _exact(ms: int, zone: tzinfo) -> str:
    return _local(ms, zone).strftime("%-d %b %Y, %H:%M:%S %Z")


def _local(ms: int, zone: tzinfo) -> datetime:
    """Convert `ms` to a local time; in UTC if the year is out of range in the zone, as on the last day of 9999."""
    try:
        return datetime.fromtimestamp(ms / 1000, zone)
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(at: int | str) -> int:
    return at if isinstance(at, int) else round(datetime.fromisoformat(at).timestamp() * 1000)


# -- numbers ---------------------------------------------------------------------------------------------------


def money(micros: int, currency: str | None = None) -> str:
    """Format 125000000 and USD as '125.00 USD'. Without a currency, format the amount as the API does."""
    if currency is None:
        return format_money(micros)
    cents = (abs(micros) + CENT // 2) // CENT
    sign = "−" if micros < 0 and cents else ""
    return f"{sign}{number(cents // 100)}.{cents % 100:02d}\u00a0{currency}"


def unit_price(micros: int, currency: str = "") -> str:
    """Format 45000 and USD as '0.045 USD': a unit price with all its decimals, at least two."""
    whole, _, part = format_money(abs(micros)).partition(".")
    sign = "−" if micros < 0 else ""
    return f"{sign}{number(int(whole))}.{part.rstrip('0'):0<2}" + (f"\u00a0{currency}" if currency else "")


def are(names: list[str]) -> str:
    """Join names and add the verb: ['Email', 'SMS'] becomes 'Email and SMS are'."""
    *others, last = names
    return f"{', '.join(others)} and {last} are" if others else f"{last} is"


def channel_name(channel: str) -> str:
    return CHANNEL_NAMES.get(channel) or channel.capitalize()


def number(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def short(value: int) -> str:
    """Format a number for a narrow space: from one million with three significant digits, as '1.23 M'."""
    millions = value / 1_000_000
    if millions < 0.9995:
        return number(value)
    unit, name = (1, "M") if millions < 999.5 else (1000, "B")
    return (
        f"{millions / unit:.3g}\u00a0{name}" if millions < 999_500 else f"{number(round(millions / unit))}\u00a0{name}"
    )


def host(url: str) -> str:
    return urlsplit(url).hostname or url


def plural(count: int, one: str, many: str = "") -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def lasted(ms: int) -> str:
    """Format a duration in the largest unit of which it has at least two; seconds have one decimal."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    unit, name = next((unit, name) for unit, name in SPANS if ms >= 2 * unit)
    return f"{number(ms // unit)} {name}"
