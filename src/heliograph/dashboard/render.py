"""Templates to HTML: what every page can use. All values are escaped."""

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
CENT = 10_000  # of the millionths that money is counted in


class Reader(msgspec.Struct, frozen=True):
    """Whom a page is for: when it is read, and in which zone. Pages say times by it."""

    now: int = 0  # 0: not known; then times are exact ones
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
        # Macros and context hold each other: what the page shows is let go now, not when garbage is collected.
        context.parent.clear()
        context.vars.clear()


# -- times -----------------------------------------------------------------------------------------------------


def when(at: int | str | None) -> Markup:
    """Tell how long ago; the exact time in the reader's zone shows on hover and to those who hear the page.

    `at` is in ms or ISO.
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
    """Tell the exact time in the reader's zone, for lists in which seconds count."""
    if at is None:
        return Markup('<span class="quiet">never</span>')
    ms = _ms(at)
    return Markup('<time class="exact" datetime="{}" title="{}">{}</time>').format(
        timestamp(ms), timestamp(ms), _exact(ms, _READER.get().zone)
    )


def by_day(lines: Iterable[Any], reader: Reader | None = None) -> list[tuple[date, str, list[Any]]]:
    """Part lines that are in the order of `created_at` by the days of the reader's zone: date, heading, lines."""
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
    """Tell a time within a week as a span, then as a day; page.js says it in the same words."""
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
    """Read it in UTC where its year cannot be written in the zone: the last day of 9999, for example."""
    try:
        return datetime.fromtimestamp(ms / 1000, zone)
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(at: int | str) -> int:
    return at if isinstance(at, int) else round(datetime.fromisoformat(at).timestamp() * 1000)


# -- figures ---------------------------------------------------------------------------------------------------


def money(micros: int, currency: str | None = None) -> str:
    """Write 125000000 and USD as '125.00 USD'. Without a currency it is written as the API does."""
    if currency is None:
        return format_money(micros)
    cents = (abs(micros) + CENT // 2) // CENT
    sign = "−" if micros < 0 and cents else ""
    return f"{sign}{number(cents // 100)}.{cents % 100:02d}\u00a0{currency}"


def unit_price(micros: int, currency: str = "") -> str:
    """Write 45000 and USD as '0.045 USD': what one costs, so that every decimal counts that it has; two at least."""
    whole, _, part = format_money(abs(micros)).partition(".")
    sign = "−" if micros < 0 else ""
    return f"{sign}{number(int(whole))}.{part.rstrip('0'):0<2}" + (f"\u00a0{currency}" if currency else "")


def are(names: list[str]) -> str:
    """Write Email and SMS as 'Email and SMS are'."""
    *others, last = names
    return f"{', '.join(others)} and {last} are" if others else f"{last} is"


def channel_name(channel: str) -> str:
    return CHANNEL_NAMES.get(channel) or channel.capitalize()


def number(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def short(value: int) -> str:
    """Write a figure that has no room: from a million on three digits of it, as '1.23 M'."""
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
    """Write a span of time in its largest unit that it has at least two of; seconds with a digit behind the point."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    unit, name = next((unit, name) for unit, name in SPANS if ms >= 2 * unit)
    return f"{number(ms // unit)} {name}"
