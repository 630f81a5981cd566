"""Renders time series as SVG bar, step and line charts without JavaScript, each with a data table.

Values are shown on hover and focus. Widths are in percent and heights in pixels, so that a chart fits its container
while its text keeps its size.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
from markupsafe import Markup

from heliograph.dashboard.render import format_number
from heliograph.domain.limits import HOUR_MS, MINUTE_MS

# In pixels: the chart's height, and the y positions of the highest and the lowest value
HEIGHT, TOP_Y, BOTTOM_Y = 160, 26, 138
ChartShape = Literal["bars", "steps", "line"]  # steps are bars without gaps; a line chart has only one series
TOO_FEW = "too few messages to judge"
# possible lower ends of a line chart's scale; the first that is not above the lowest value is used
SCALE_BASES = (90.0, 50.0, 0.0)

# span → (unit of a bar, format of its label, format of its name, number of bars per label)
BUCKETS_BY_SPAN: dict[str, tuple[str, str, str, int]] = {
    "day": ("hour", "%H:%M", "%-d %b, %H:%M", 6),
    "month": ("day", "%-d %b", "%-d %b", 6),
    "year": ("month", "%b", "%B %Y", 3),
}


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """The time range of a bar, in ms."""

    start: int
    end: int
    label: str  # text below the bar; empty for none
    name: str


class Series(msgspec.Struct, frozen=True):
    """The values of one line, or of the bars of one colour."""

    name: str
    css_class: str  # CSS class that sets the colour
    values: Sequence[float | None]  # one per bucket; None without data


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered chart and its data table."""

    title: str
    svg: Markup
    is_sparse: bool  # there is data, but no bucket has enough to be drawn
    columns: list[tuple[str, str]]  # (name, CSS class) of each series
    rows: list[tuple[str, list[str]]]  # (bucket name, formatted values), newest first


class Scale(NamedTuple):
    """Lower and upper end of a chart's value axis."""

    base: float
    top: float

    def y_of(self, value: float) -> float:
        clamped = min(max(value, self.base), self.top)
        return BOTTOM_Y - (BOTTOM_Y - TOP_Y) * (clamped - self.base) / (self.top - self.base)


def buckets(span: str, now: int, zone: tzinfo = UTC) -> list[Bucket]:
    """Return the buckets of the last 24 hours, 30 days or 12 months in the reader's time zone.

    The last one is incomplete. Hours begin as in UTC, like those of the stored statistics; in a zone with a half-hour
    offset they begin at half past.
    """
    unit, label, name, label_interval = BUCKETS_BY_SPAN[span]
    if unit == "hour":
        last_hour = datetime.fromtimestamp(now // HOUR_MS * HOUR_MS // 1000, UTC)
        starts = [(last_hour + timedelta(hours=offset)).astimezone(zone) for offset in range(-23, 2)]
    else:
        today = datetime.fromtimestamp(now // 1000, zone).replace(hour=0, minute=0, second=0)
        months = [today.year * 12 + today.month - 1 + offset for offset in range(-11, 2)]
        starts = (
            [today + timedelta(days=offset) for offset in range(-29, 2)]  # starts of days in the reader's time zone
            if unit == "day"
            else [datetime(month // 12, month % 12 + 1, 1, tzinfo=zone) for month in months]
        )
    return [
        Bucket(
            start=int(start.timestamp()) * 1000,
            end=int(end.timestamp()) * 1000,
            label=start.strftime(label) if index % label_interval == 0 else "",
            name=start.strftime(name),
        )
        for index, (start, end) in enumerate(pairwise(starts))
    ]


def last_hour_buckets(now: int, zone: tzinfo = UTC) -> list[Bucket]:
    """Return a bucket for each of the last 60 minutes in the reader's time zone; the last one is incomplete."""
    first = now - now % MINUTE_MS - 59 * MINUTE_MS
    names = [
        datetime.fromtimestamp((first + minute * MINUTE_MS) // 1000, zone).strftime("%H:%M") for minute in range(60)
    ]
    return [
        Bucket(
            start=first + minute * MINUTE_MS,
            end=first + (minute + 1) * MINUTE_MS,
            label=name if minute % 15 == 0 else "",
            name=name,
        )
        for minute, name in enumerate(names)
    ]


def format_percent(value: float) -> str:
    """Format a percentage, with two decimals only below 1: 0.05%, 4.2%, 98.7%, 100%."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%" if value < 1 else f"{value:.1f}".removesuffix(".0") + "%"


def format_count(value: float) -> str:
    return format_number(int(value))


def scale_top(highest_value: float, minimum: float) -> float:
    """Return the first of 1, 2, 4, 10, 20, 40 … from `minimum` that is not below `highest_value`."""
    top = minimum
    while top < highest_value:
        top *= 2.5 if f"{top:e}".startswith("4") else 2
    return round(top, 6)


def draw_chart(
    title: str,
    time_buckets: Sequence[Bucket],
    series: Sequence[Series],
    *,
    format_value: Callable[[float], str],
    top_min: float,
    limit: float | None = None,
    bucket_url: Callable[[Bucket], str] | None = None,
    shape: ChartShape = "bars",
    sparse: Collection[int] = (),
) -> Chart:
    """Draw a chart with a bar or point per bucket; several series are stacked.

    `top_min`: minimum upper end of the scale. `limit`: value at which a threshold line is drawn. `bucket_url` returns
    the link of a bar. `sparse`: indexes of buckets with too little data, whose values are not drawn.
    """
    all_columns = list(zip(*(item.values for item in series), strict=True))
    columns = [(None,) * len(series) if index in sparse else column for index, column in enumerate(all_columns)]
    too_few = {
        index for index, column in enumerate(all_columns) if index in sparse and any(v is not None for v in column)
    }
    top = scale_top(max((sum(value or 0 for value in column) for column in columns), default=0), top_min)
    scale = Scale(_scale_base(columns) if shape == "line" else 0.0, top)
    elements = [_grid_lines(scale)]
    for index, (bucket, column) in enumerate(zip(time_buckets, columns, strict=True)):
        position, url = (index, len(time_buckets)), bucket_url(bucket) if bucket_url else ""
        segments = [] if shape == "line" else _bar_segments(series, column, top)
        caption = TOO_FEW if index in too_few else _caption(series, column, format_value)
        elements.append(_draw_bar(position, bucket, caption, segments, url))
    if shape == "line":
        elements += _draw_lines(series[0].css_class, [column[0] for column in columns], scale)
    if limit is not None and limit <= top:
        limit_line = Markup(
            '<line class="limit" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>'
            '<text class="limit-name" x="100%" y="{1:.1f}" text-anchor="end">limit {2}</text>'
        )
        elements.append(limit_line.format(scale.y_of(limit), scale.y_of(limit) - 4, format_value(limit)))
    elements.append(Markup('<text class="tick" x="0" y="{}">{}</text>').format(TOP_Y - 3, format_value(top)))
    if scale.base:
        elements.append(
            Markup('<text class="tick" x="0" y="{}">{}</text>').format(BOTTOM_Y - 3, format_value(scale.base))
        )
    svg = Markup('<svg class="chart {}" role="group" aria-label="{}">{}</svg>').format(
        shape, title, Markup("").join(elements)
    )
    rows = [
        (
            bucket.name,
            ["too few" if index in too_few else "–" if value is None else format_value(value) for value in column],
        )
        for index, (bucket, column) in enumerate(zip(time_buckets, columns, strict=True))
    ]
    return Chart(
        title=title,
        svg=svg,
        is_sparse=bool(too_few) and all(value is None for column in columns for value in column),
        columns=[(item.name, item.css_class) for item in series],
        rows=rows[::-1],
    )


def draw_sparkline(values: Sequence[int]) -> Markup:
    """Draw a small chart without labels, to be shown beside a figure."""
    top, last = max(*values, 1), len(values) - 1
    points = " ".join(f"{96 * index / last:.0f},{22 - 20 * value / top:.1f}" for index, value in enumerate(values))
    return Markup('<svg class="spark" viewBox="0 0 96 24" aria-hidden="true"><polyline points="{}"/></svg>').format(
        points
    )


def _caption(series: Sequence[Series], column: Sequence[float | None], format_value: Callable[[float], str]) -> str:
    """Return the caption of a bar; empty if the bar has no data."""
    known_values = [(item.name, value) for item, value in zip(series, column, strict=True) if value]
    if not known_values:
        return format_value(0) if None not in column and len(series) == 1 else ""
    return ", ".join(
        f"{format_value(value)} {name}" if len(series) > 1 else format_value(value) for name, value in known_values
    )


def _scale_base(columns: Iterable[Sequence[float | None]]) -> float:
    lowest = min((value for column in columns for value in column if value is not None), default=100.0)
    return next(base for base in SCALE_BASES if base <= lowest)


def _draw_lines(css_class: str, values: Sequence[float | None], scale: Scale) -> Iterable[Markup]:
    """Draw lines between adjacent values, and dots for values without neighbours."""
    points = [
        ("" if value is None else f"{100 * (index + 0.5) / len(values):.2f}%", scale.y_of(value or 0))
        for index, value in enumerate(values)
    ]
    line = Markup('<line class="stroke {}" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>')
    for start, end in pairwise(points):
        if start[0] and end[0]:
            yield line.format(css_class, *start, *end)
    padded = [("", 0.0), *points, ("", 0.0)]
    for index, (x, y) in enumerate(points):
        if x and not padded[index][0] and not padded[index + 2][0]:
            yield Markup('<circle class="{}" cx="{}" cy="{:.1f}" r="1.75"/>').format(css_class, x, y)


def _bar_segments(
    series: Sequence[Series], column: Sequence[float | None], top: float
) -> Iterable[tuple[str, float, float]]:
    """Yield (CSS class, top y, height) of the segments of a bar, from bottom to top."""
    y = float(BOTTOM_Y)
    for item, value in zip(series, column, strict=True):
        if value:
            height = min((BOTTOM_Y - TOP_Y) * value / top, y - TOP_Y)
            y -= height
            yield item.css_class, y, height


def _grid_lines(scale: Scale) -> Markup:
    grid_line = Markup('<line class="grid" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>')
    middle = (scale.base + scale.top) / 2
    return Markup("").join(grid_line.format(scale.y_of(value)) for value in (scale.top, middle, scale.base))


def _draw_bar(
    position: tuple[int, int],
    bucket: Bucket,
    caption: str,
    segments: Iterable[tuple[str, float, float]],
    url: str,
) -> Markup:
    index, count = position
    width = 100 / count
    x = width * index
    label = Markup('<text x="{:.2f}%" y="{}">{}</text>').format(x, HEIGHT - 6, bucket.label) if bucket.label else ""
    if not caption:
        return Markup(label)
    rect = Markup('<rect class="{}" y="{:.1f}" height="{:.1f}"/>')
    rects = Markup("").join(rect.format(*segment_values) for segment_values in segments)
    text = f"{bucket.name}: {caption}"
    tag = Markup("a") if url else Markup("g")
    # Screen readers read a link's content, but for an image they need an aria-label.
    attributes = (
        Markup('href="{}"').format(url) if url else Markup('tabindex="0" role="img" aria-label="{}"').format(text)
    )
    return Markup(
        '{label}<{tag} {attributes}><svg x="{x:.2f}%" width="{width:.2f}%"><rect class="place"/>{rects}</svg>'
        '<text class="said" x="100%" y="12">{text}</text></{tag}>'
    ).format(label=label, tag=tag, attributes=attributes, text=text, x=x, width=width, rects=rects)
