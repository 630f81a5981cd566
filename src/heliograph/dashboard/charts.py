"""Renders time series as SVG bar, step and line charts without JavaScript, each with a data table. Pure functions.

Values show on hover and focus. Widths are in percent and heights in pixels, so that a chart fits its container and
its text keeps its size.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
from markupsafe import Markup

from heliograph.dashboard.render import number
from heliograph.domain.limits import HOUR_MS, MINUTE_MS

HEIGHT, TOP, FLOOR = 160, 26, 138  # total height; y of the highest and of the lowest point of bars, in pixels
Shape = Literal["bars", "steps", "line"]  # steps are bars without gaps; a line chart has one series
# candidate lower ends of a line chart's scale; the first that is not above the lowest value is used
BASES = (90.0, 50.0, 0.0)

# Span → (unit of a bar, format of its label, format of its name, number of bars between two labels).
SPANS: dict[str, tuple[str, str, str, int]] = {
    "day": ("hour", "%H:%M", "%-d %b, %H:%M", 6),
    "month": ("day", "%-d %b", "%-d %b", 6),
    "year": ("month", "%b", "%B %Y", 3),
}


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """Time range of one bar, in ms."""

    start: int
    finish: int
    label: str  # text under the bar; empty for no label
    name: str


class Series(msgspec.Struct, frozen=True):
    name: str
    kind: str  # CSS class that sets the colour
    values: Sequence[float | None]  # one value per bucket; None if there is no data


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    svg: Markup
    columns: list[tuple[str, str]]  # (name, CSS class) of each series
    rows: list[tuple[str, list[str]]]  # (bucket name, formatted values), newest first


class Scale(NamedTuple):
    base: float
    top: float

    def height_of(self, value: float) -> float:
        within = min(max(value, self.base), self.top)
        return FLOOR - (FLOOR - TOP) * (within - self.base) / (self.top - self.base)


def buckets(span: str, now: int, zone: tzinfo = UTC) -> list[Bucket]:
    """Return buckets for the last 24 hours, 30 days or 12 months in the reader's time zone; the last is incomplete.

    Hours are UTC hours, as in the stored statistics: in a zone with a half-hour offset they start at half past.
    """
    unit, label, name, every = SPANS[span]
    if unit == "hour":
        last = datetime.fromtimestamp(now // HOUR_MS * HOUR_MS // 1000, UTC)
        starts = [(last + timedelta(hours=n)).astimezone(zone) for n in range(-23, 2)]
    else:
        today = datetime.fromtimestamp(now // 1000, zone).replace(hour=0, minute=0, second=0)
        months = [today.year * 12 + today.month - 1 + n for n in range(-11, 2)]
        starts = (
            [today + timedelta(days=n) for n in range(-29, 2)]  # local calendar days: a day may have 23 or 25 hours
            if unit == "day"
            else [datetime(month // 12, month % 12 + 1, 1, tzinfo=zone) for month in months]
        )
    return [
        Bucket(
            start=int(start.timestamp()) * 1000,
            finish=int(finish.timestamp()) * 1000,
            label=start.strftime(label) if index % every == 0 else "",
            name=start.strftime(name),
        )
        for index, (start, finish) in enumerate(pairwise(starts))
    ]


def last_hour(now: int, zone: tzinfo = UTC) -> list[Bucket]:
    """Return one bucket per minute for the last 60 minutes in the reader's time zone; the last is incomplete."""
    first = now - now % MINUTE_MS - 59 * MINUTE_MS
    names = [datetime.fromtimestamp((first + n * MINUTE_MS) // 1000, zone).strftime("%H:%M") for n in range(60)]
    return [
        Bucket(
            start=first + n * MINUTE_MS,
            finish=first + (n + 1) * MINUTE_MS,
            label=name if n % 15 == 0 else "",
            name=name,
        )
        for n, name in enumerate(names)
    ]


def percent(value: float) -> str:
    """Format a percentage, with two decimals only below 1: 0.05 %, 4.2 %, 98.7 %, 100 %."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + " %" if value < 1 else f"{value:.1f}".removesuffix(".0") + " %"


def count(value: float) -> str:
    return number(int(value))


def ceiling(highest: float, least: float) -> float:
    """Return the first of 1, 2, 4, 10, 20, 40 …, starting at `least`, that is >= `highest`."""
    top = least
    while top < highest:
        top *= 2.5 if f"{top:e}".startswith("4") else 2
    return round(top, 6)


def bars(
    title: str,
    times: Sequence[Bucket],
    series: Sequence[Series],
    *,
    text: Callable[[float], str],
    least: float,
    limit: float | None = None,
    page_of: Callable[[Bucket], str] | None = None,
    shape: Shape = "bars",
    few: Collection[int] = (),
) -> Chart:
    """Draw a chart with one bar (or point) per bucket; several series are stacked.

    `text` formats a value. `least` is the minimum upper end of the scale. `limit` draws a threshold line. `page_of`
    returns the link of a bar. `few` has the indexes of buckets with too little data: they are grey and do not affect
    the scale.
    """
    columns = list(zip(*(one.values for one in series), strict=True))
    telling = [column for index, column in enumerate(columns) if index not in few]  # columns that determine the scale
    top = ceiling(max((sum(value or 0 for value in column) for column in telling), default=0), least)
    scale = Scale(_base(telling) if shape == "line" else 0.0, top)
    parts = [_lines(scale)]
    for index, (bucket, column) in enumerate(zip(times, columns, strict=True)):
        place, to = (index, len(times)), page_of(bucket) if page_of else ""
        pieces = [] if shape == "line" else _heights(series, column, top, index in few)
        parts.append(_bar(place, bucket, _caption(series, column, text), pieces, to))
    if shape == "line":
        parts += _strokes(series[0], scale, few)
        parts += _below(series[0].values, scale, text)
    if limit is not None and limit <= top:
        limit_line = Markup(
            '<line class="limit" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>'
            '<text class="limit-name" x="100%" y="{1:.1f}" text-anchor="end">limit {2}</text>'
        )
        parts.append(limit_line.format(scale.height_of(limit), scale.height_of(limit) - 4, text(limit)))
    parts.append(Markup('<text class="tick" x="0" y="{}">{}</text>').format(TOP - 3, text(top)))
    if scale.base:
        parts.append(Markup('<text class="tick" x="0" y="{}">{}</text>').format(FLOOR - 3, text(scale.base)))
    svg = Markup('<svg class="chart {}" role="group" aria-label="{}">{}</svg>').format(
        shape, title, Markup("").join(parts)
    )
    rows = [
        (bucket.name, ["–" if value is None else text(value) for value in column])
        for bucket, column in zip(times, columns, strict=True)
    ]
    return Chart(title=title, svg=svg, columns=[(one.name, one.kind) for one in series], rows=rows[::-1])


def spark(values: Sequence[int]) -> Markup:
    """Draw a sparkline without labels, to be shown beside the figure that it illustrates."""
    top, last = max(*values, 1), len(values) - 1
    points = " ".join(f"{96 * n / last:.0f},{22 - 20 * value / top:.1f}" for n, value in enumerate(values))
    return Markup('<svg class="spark" viewBox="0 0 96 24" aria-hidden="true"><polyline points="{}"/></svg>').format(
        points
    )


def _caption(series: Sequence[Series], column: Sequence[float | None], text: Callable[[float], str]) -> str:
    """Return the caption of a bar; empty if the bar has no data."""
    known = [(one.name, value) for one, value in zip(series, column, strict=True) if value]
    if not known:
        return text(0) if None not in column and len(series) == 1 else ""
    return ", ".join(f"{text(value)} {name}" if len(series) > 1 else text(value) for name, value in known)


def _base(columns: Iterable[Sequence[float | None]]) -> float:
    lowest = min((value for column in columns for value in column if value is not None), default=100.0)
    return next(base for base in BASES if base <= lowest)


def _strokes(one: Series, scale: Scale, few: Collection[int]) -> Iterable[Markup]:
    """Draw lines between adjacent values, and a dot for a value without neighbours."""
    points = [
        ("" if value is None else f"{100 * (index + 0.5) / len(one.values):.2f}%", scale.height_of(value or 0))
        for index, value in enumerate(one.values)
    ]
    line = Markup('<line class="stroke {}" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>')
    for index, (start, end) in enumerate(pairwise(points)):
        if start[0] and end[0]:
            yield line.format("few" if index in few or index + 1 in few else one.kind, *start, *end)
    around = [("", 0.0), *points, ("", 0.0)]
    for index, (x, y) in enumerate(points):
        if x and not around[index][0] and not around[index + 2][0]:
            kind = "few" if index in few else one.kind
            yield Markup('<circle class="{}" cx="{}" cy="{:.1f}" r="1.75"/>').format(kind, x, y)


def _below(values: Sequence[float | None], scale: Scale, text: Callable[[float], str]) -> Iterable[Markup]:
    """Mark each value below the scale with ▼, and label the lowest value."""
    below = [(value, index) for index, value in enumerate(values) if value is not None and value < scale.base]
    for value, index in below:
        anchor = "start" if index < len(values) / 2 else "end"
        said = f"▼ {text(value)}" if (value, index) == min(below) else "▼"
        yield Markup('<text class="tick" x="{:.2f}%" y="{}" text-anchor="{}">{}</text>').format(
            100 * (index + 0.5) / len(values), FLOOR - 3, anchor, said
        )


def _heights(
    series: Sequence[Series], column: Sequence[float | None], top: float, is_few: bool = False
) -> Iterable[tuple[str, float, float]]:
    """Yield (CSS class, top y, height) of each segment of a bar, from the bottom up."""
    y = float(FLOOR)
    for one, value in zip(series, column, strict=True):
        if value:
            height = min((FLOOR - TOP) * value / top, y - TOP)
            y -= height
            yield "few" if is_few else one.kind, y, height


def _lines(scale: Scale) -> Markup:
    line = Markup('<line class="grid" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>')
    middle = (scale.base + scale.top) / 2
    return Markup("").join(line.format(scale.height_of(value)) for value in (scale.top, middle, scale.base))


def _bar(
    place: tuple[int, int],
    bucket: Bucket,
    caption: str,
    pieces: Iterable[tuple[str, float, float]],
    to: str,
) -> Markup:
    index, count = place
    width = 100 / count
    x = width * index
    label = Markup('<text x="{:.2f}%" y="{}">{}</text>').format(x, HEIGHT - 6, bucket.label) if bucket.label else ""
    if not caption:
        return Markup(label)
    rect = Markup('<rect class="{}" y="{:.1f}" height="{:.1f}"/>')
    rects = Markup("").join(rect.format(*piece) for piece in pieces)
    said = f"{bucket.name}: {caption}"
    tag = Markup("a") if to else Markup("g")
    # A link is named by its content; an image needs an aria-label.
    about = Markup('href="{}"').format(to) if to else Markup('tabindex="0" role="img" aria-label="{}"').format(said)
    return Markup(
        '{label}<{tag} {about}><svg x="{x:.2f}%" width="{width:.2f}%"><rect class="place"/>{rects}</svg>'
        '<text class="said" x="100%" y="12">{said}</text></{tag}>'
    ).format(label=label, tag=tag, about=about, said=said, x=x, width=width, rects=rects)
