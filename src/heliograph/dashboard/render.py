"""Templates to HTML: what every page can use. All values are escaped."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from heliograph.rules.ids import timestamp
from heliograph.rules.pricing import format_money

SPANS = ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"))


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("heliograph.dashboard"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"when": when, "money": format_money, "number": number, "plural": plural, "lasted": lasted}
    return made


def render(template: str, values: dict[str, Any]) -> bytes:
    return environment().get_template(template).render(values).encode()


def when(ms: int | None) -> Markup:
    """A time that the script shows in the reader's zone; the exact value is its title."""
    if ms is None:
        return Markup('<span class="quiet">never</span>')
    exact = timestamp(ms)
    shown = datetime.fromtimestamp(ms / 1000, UTC).strftime("%-d %b %Y, %H:%M:%S")
    return Markup('<time datetime="{}" title="{}">{} UTC</time>').format(exact, exact, shown)


def number(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def plural(count: int, one: str, many: str = "") -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def lasted(ms: int) -> str:
    """A span of time in its largest unit that it has at least two of; seconds with a digit behind the point."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    unit, name = next((unit, name) for unit, name in SPANS if ms >= 2 * unit)
    return f"{number(ms // unit)} {name}"
