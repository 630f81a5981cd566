"""Renders templates to HTML with Jinja, which escapes all values; defines the filters for all pages."""

import re
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, date, datetime, tzinfo
from functools import cache
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

import msgspec
from jinja2 import Environment
from markupsafe import Markup, escape

from heliograph.dashboard.navigation import MENU, OPERATOR_MENU
from heliograph.dashboard.states import state_label
from heliograph.domain.ids import timestamp
from heliograph.domain.sending.pricing import format_amount
from heliograph.texts.dashboard_links import path_in_team
from heliograph.web import html

DURATION_UNITS = ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"))
CHANNEL_NAMES: dict[str, str] = {"email": "Email", "sms": "SMS", "whatsapp": "WhatsApp"}
WEEK_MS = 7 * 86_400_000


class ReaderTime(msgspec.Struct, frozen=True):
    """The reader's current time and time zone, for the format of times on a page."""

    now: int = 0  # 0 if unknown: times are then absolute
    zone: tzinfo = UTC


_READER_TIME: ContextVar[ReaderTime] = ContextVar("reader", default=ReaderTime())  # noqa: B039  it is frozen


@cache
def jinja_environment() -> Environment:
    env = html.create_environment("heliograph.dashboard")
    env.filters |= {
        "when": format_relative_time,
        "exact": format_exact_time,
        "clock": format_clock_time,
        "by_day": group_by_day,
        "day": format_date,
        "money": format_currency,
        "amount": format_amount,
        "channel_name": channel_name,
        "number": format_number,
        "short": format_short_number,
        "plural": format_count,
        "host": url_host,
        "lasted": format_duration,
        "are": names_with_verb,
        "prose": mark_code,
        "soft": soft_wrap,
    }
    env.globals |= {
        "state_of": state_label,
        "menu": MENU,
        "operator_menu": OPERATOR_MENU,
        "below_team": path_in_team,
        "current_time": lambda: _READER_TIME.get().now,
        "zone_name": lambda: _to_local_time(_READER_TIME.get().now, _READER_TIME.get().zone).strftime("%Z"),
    }
    return env


def render(template: str, values: dict[str, Any], reader_time: ReaderTime | None = None) -> bytes:
    reset_token = _READER_TIME.set(reader_time or ReaderTime())
    page_template = jinja_environment().get_template(template)
    context = page_template.new_context(values)
    try:
        return page_template.environment.concat(page_template.root_render_func(context)).encode()
    finally:
        _READER_TIME.reset(reset_token)
        # Macros and context form a reference cycle, so free the page's data now instead of at the next garbage
        # collection.
        context.parent.clear()
        context.vars.clear()


# -- times -----------------------------------------------------------------------------------------------------


def format_relative_time(at: int | str | None) -> Markup:
    """Return a time (ms, or ISO 8601) relative to now. Tooltip and screen readers get the exact time."""
    if at is None:
        return Markup('<span class="quiet">never</span>')
    ms, reader_time = _to_ms(at), _READER_TIME.get()
    if not reader_time.now:
        return format_exact_time(ms)
    exact_text = _format_exact(ms, reader_time.zone)
    return Markup(
        '<time datetime="{}" title="{}"><span aria-hidden="true">{}</span><span class="unseen">{}</span></time>'
    ).format(timestamp(ms), exact_text, format_ago(ms, reader_time), exact_text)


def format_exact_time(at: int | str | None) -> Markup:
    """Return the exact time in the reader's zone, for lists where seconds matter."""
    if at is None:
        return Markup('<span class="quiet">never</span>')
    ms = _to_ms(at)
    return Markup('<time class="exact" datetime="{}" title="{}">{}</time>').format(
        timestamp(ms), timestamp(ms), _format_exact(ms, _READER_TIME.get().zone)
    )


def format_clock_time(at: int) -> Markup:
    """Return the time of day in the reader's zone, for rows below the heading of their day; the tooltip says more."""
    reader_time = _READER_TIME.get()
    exact_text = _format_exact(at, reader_time.zone)
    return Markup('<time class="clock" datetime="{}" title="{}">{}</time>').format(
        timestamp(at),
        f"{exact_text}, {format_ago(at, reader_time)}" if reader_time.now else exact_text,
        _to_local_time(at, reader_time.zone).strftime("%H:%M:%S"),
    )


def format_date(day: str) -> str:
    """Return an ISO 8601 date as, for example, 19 Nov 2026."""
    return date.fromisoformat(day).strftime("%-d %b %Y")


def group_by_day(
    items: Iterable[Any], reader_time: ReaderTime | None = None, field: str = "created_at"
) -> list[tuple[date, str, list[Any]]]:
    """Group items, which are sorted by their time in `field`, by day in the reader's zone: (date, heading, items)."""
    reader_time = reader_time or _READER_TIME.get()
    today = _to_local_time(reader_time.now, reader_time.zone).date()

    def date_of(item: Any) -> date:
        return _to_local_time(item[field] if isinstance(item, dict) else getattr(item, field), reader_time.zone).date()

    return [(day, _day_heading(day, today), list(group)) for day, group in groupby(items, date_of)]


def _day_heading(day: date, today: date) -> str:
    if (today - day).days in (0, 1):
        return "Today" if day == today else "Yesterday"
    return day.strftime("%A, %-d %B" if day.year == today.year else "%A, %-d %B %Y")


def format_ago(ms: int, reader_time: ReaderTime) -> str:
    """Return a relative time for the last week, otherwise a date. page.js must use the same words."""
    distance = abs(reader_time.now - ms)
    if distance >= WEEK_MS:
        day, today = (_to_local_time(time_ms, reader_time.zone) for time_ms in (ms, reader_time.now))
        return day.strftime("%-d %b" if day.year == today.year else "%-d %b %Y")
    is_past = ms <= reader_time.now
    if distance < (10_000 if is_past else 1000):
        return "just now"
    count, unit = next(
        (distance // size, unit)
        for size, unit in ((86_400_000, "day"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
        if distance >= size
    )
    duration = f"{count} {unit}" + ("s" if unit == "day" and count > 1 else "")
    return f"{duration} ago" if is_past else f"in {duration}"


def _format_exact(ms: int, zone: tzinfo) -> str:
    return _to_local_time(ms, zone).strftime("%-d %b %Y, %H:%M:%S %Z")


def _to_local_time(ms: int, zone: tzinfo) -> datetime:
    """Convert `ms` to local time; to UTC if the local year is out of range, as on the last day of 9999."""
    try:
        return datetime.fromtimestamp(ms / 1000, zone)
    except (ValueError, OverflowError):
        return datetime.fromtimestamp(ms / 1000, UTC)


def _to_ms(at: int | str) -> int:
    return at if isinstance(at, int) else round(datetime.fromisoformat(at).timestamp() * 1000)


def mark_code(text: str) -> Markup:
    """Return a text as HTML, with the parts in backticks as code."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if index % 2 else escape(piece) for index, piece in enumerate(pieces)
    )


# -- numbers ---------------------------------------------------------------------------------------------------


def format_currency(micros: int, currency: str = "", decimals_min: int = 2) -> str:
    """Format 45000 and USD as '0.045 USD', and 1250000000 as '1,250.00 USD'; `decimals_min` aligns a column."""
    units, _, decimals = format_amount(abs(micros)).partition(".")
    sign = "−" if micros < 0 else ""
    return f"{sign}{format_number(int(units))}.{decimals:0<{decimals_min}}" + (f"\u00a0{currency}" if currency else "")


def soft_wrap(text: str) -> Markup:
    """Escape a name, and prefer line breaks after its dots, slashes and @, so that words are not split."""
    return Markup(re.sub(r"(?<=\w)([./@])(?=\w)", r"\1<wbr>", str(escape(text))))


def names_with_verb(names: list[str]) -> str:
    """Join names and add a verb: ['Email', 'SMS'] becomes 'Email and SMS are'."""
    *first_names, last_name = names
    return f"{', '.join(first_names)} and {last_name} are" if first_names else f"{last_name} is"


def channel_name(channel: str) -> str:
    return CHANNEL_NAMES.get(channel) or channel.capitalize()


def format_number(value: int) -> str:
    return f"{value:,}"


def format_short_number(value: int) -> str:
    """Format a number for a narrow space: from one million with three significant digits, as '1.23 M'."""
    millions = value / 1_000_000
    if millions < 0.9995:
        return format_number(value)
    unit, name = (1, "M") if millions < 999.5 else (1000, "B")
    number = f"{millions / unit:.3g}" if millions < 999_500 else format_number(round(millions / unit))
    return f"{number}\u00a0{name}"


def url_host(url: str) -> str:
    return urlsplit(url).hostname or url


def format_count(count: int, singular: str, plural_form: str = "") -> str:
    return f"{format_number(count)} {singular if count == 1 else plural_form or singular + 's'}"


def format_duration(ms: int) -> str:
    """Format a duration in the largest unit that occurs at least twice; seconds have one decimal."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    unit, name = next((unit, name) for unit, name in DURATION_UNITS if ms >= 2 * unit)
    return f"{format_number(ms // unit)} {name}"
