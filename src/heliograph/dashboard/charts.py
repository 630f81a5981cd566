"""Bars, steps and lines over time as SVG without a script: values on hover and focus, a table behind each chart. Pure.

Widths are in percent and heights in pixels, so that a chart fits its place and its letters keep their size.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
from markupsafe import Markup

from heliograph.dashboard.render import number
from heliograph.domain.limits import HOUR_MS, MINUTE_MS

HEIGHT, TOP, FLOOR = 160, 26, 138  # the whole; the highest and the lowest point of bars
Shape = Literal["bars", "steps", "line"]  # steps are bars that touch; a line is of one series
BASES = (90.0, 50.0, 0.0)  # where a line's scale may begin: the first that all of it is above

# Span → what one bar is, its label, its name, and how many bars lie between two labels.
SPANS: dict[str, tuple[str, str, str, int]] = {
    "day": ("hour", "%H:%M", "%-d %b, %H:%M", 6),
    "month": ("day", "%-d %b", "%-d %b", 6),
    "year": ("month", "%b", "%B %Y", 3),
}


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One bar's stretch of time, in ms."""

    start: int
    finish: int
    label: str  # under the bar; empty: none
    name: str


class Series(msgspec.Struct, frozen=True):
    name: str
    kind: str  # the class that gives the colour
    values: Sequence[float | None]  # one for each bucket; None: nothing to say


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    svg: Markup
    columns: list[tuple[str, str]]  # name and kind
    rows: list[tuple[str, list[str]]]  # newest first


class Scale(NamedTuple):
    base: float
    top: float

    def height_of(self, value: float) -> float:
        within = min(max(value, self.base), self.top)
        return FLOOR - (FLOOR - TOP) * (within - self.base) / (self.top - self.base)


def buckets(span: str, now: int, zone: tzinfo = UTC) -> list[Bucket]:
    """Return the last 24 hours, 30 days or 12 months in the reader's zone; the last one is not over yet. Hours
    are those of UTC, which figures are kept by: in a zone that is half an hour off they begin at half past.
    """
    unit, label, name, every = SPANS[span]
    if unit == "hour":
        last = datetime.fromtimestamp(now // HOUR_MS * HOUR_MS // 1000, UTC)
        starts = [(last + timedelta(hours=n)).astimezone(zone) for n in range(-23, 2)]
    else:
        today = datetime.fromtimestamp(now // 1000, zone).replace(hour=0, minute=0, second=0)
        months = [today.year * 12 + today.month - 1 + n for n in range(-11, 2)]
        starts = (
            [today + timedelta(days=n) for n in range(-29, 2)]  # by the wall's clock: a day may have 23 hours
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
    """Return the last 60 minutes in the reader's zone; the last one is not over yet."""
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
    """Write two digits where they matter: 0.05 %, 4.2 %, 98.7 %, 100 %."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + " %" if value < 1 else f"{value:.1f}".removesuffix(".0") + " %"


def count(value: float) -> str:
    return number(int(value))


def ceiling(highest: float, least: float) -> float:
    """Return the first of 1, 2, 4, 10, 20, 40 … from `least` on that is high enough; its half is as round."""
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
    """Stack the series, one bar for each bucket; `text` writes a value, `least` is the lowest upper line.

    `limit` is a value with a line of its own, above which it is too much. `page_of` says where a bar leads to.
    `few` are the buckets that say little, by their place: they are grey.
    """
    columns = list(zip(*(one.values for one in series), strict=True))
    telling = [column for index, column in enumerate(columns) if index not in few]  # which the scale is made for
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
    """Draw a line without words beside a figure that says it; as wide and high as its place."""
    top, last = max(*values, 1), len(values) - 1
    points = " ".join(f"{96 * n / last:.0f},{22 - 20 * value / top:.1f}" for n, value in enumerate(values))
    return Markup('<svg class="spark" viewBox="0 0 96 24" aria-hidden="true"><polyline points="{}"/></svg>').format(
        points
    )


def _caption(series: Sequence[Series], column: Sequence[float | None], text: Callable[[float], str]) -> str:
    """Say what a bar shows; empty when it has nothing to say."""
    known = [(one.name, value) for one, value in zip(series, column, strict=True) if value]
    if not known:
        return text(0) if None not in column and len(series) == 1 else ""
    return ", ".join(f"{text(value)} {name}" if len(series) > 1 else text(value) for name, value in known)


def _base(columns: Iterable[Sequence[float | None]]) -> float:
    lowest = min((value for column in columns for value in column if value is not None), default=100.0)
    return next(base for base in BASES if base <= lowest)


def _strokes(one: Series, scale: Scale, few: Collection[int]) -> Iterable[Markup]:
    """Draw from value to value; one that has no neighbour is a dot."""
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
    """Mark what lies below the scale, and name the lowest of it."""
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
    """Yield class, upper end and height of each piece of a bar, from the floor up."""
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
    # What a link holds is its name; a picture has to be told it.
    about = Markup('href="{}"').format(to) if to else Markup('tabindex="0" role="img" aria-label="{}"').format(said)
    return Markup(
        '{label}<{tag} {about}><svg x="{x:.2f}%" width="{width:.2f}%"><rect class="place"/>{rects}</svg>'
        '<text class="said" x="100%" y="12">{said}</text></{tag}>'
    ).format(label=label, tag=tag, about=about, said=said, x=x, width=width, rects=rects)
