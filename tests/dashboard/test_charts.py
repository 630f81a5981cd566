"""SVG charts: bar positions, captions and the data table."""

from datetime import UTC, datetime
from itertools import pairwise
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest

from heliograph.dashboard.charts import (
    BOTTOM_Y,
    TOP_Y,
    Bucket,
    Chart,
    ChartShape,
    Series,
    buckets,
    draw_chart,
    format_count,
    format_percent,
    last_hour_buckets,
    scale_top,
)

NOW = int(datetime(2026, 3, 1, 9, 30, tzinfo=UTC).timestamp()) * 1000
TIMES = [Bucket(start=n, end=n + 1, label="", name=f"hour {n}") for n in range(3)]


@pytest.mark.parametrize(
    ("span", "many", "first", "last"),
    [
        ("day", 24, "28 Feb, 10:00", "1 Mar, 09:00"),
        ("month", 30, "31 Jan", "1 Mar"),
        ("year", 12, "April 2025", "March 2026"),
    ],
)
def test_buckets_end_with_current_one(span: str, many: int, first: str, last: str) -> None:
    result = buckets(span, NOW)
    assert (len(result), result[0].name, result[-1].name) == (many, first, last)
    assert result[-1].start <= NOW < result[-1].end
    assert all(before.end == after.start for before, after in pairwise(result))
    assert result[0].label
    assert any(not bucket.label for bucket in result)


@pytest.mark.parametrize(
    ("span", "zone", "at", "first", "last"),
    [
        ("day", "Asia/Kolkata", "2026-03-01T09:40", "28 Feb, 15:30", "1 Mar, 14:30"),
        ("month", "America/New_York", "2026-03-01T03:00", "30 Jan", "28 Feb"),  # there it is still February
        ("month", "Europe/Vienna", "2026-03-31T22:30", "3 Mar", "1 Apr"),
        ("year", "Pacific/Auckland", "2026-03-31T22:30", "May 2025", "April 2026"),
    ],
)
def test_buckets_follow_reader_time_zone(span: str, zone: str, at: str, first: str, last: str) -> None:
    now = int(datetime.fromisoformat(at + "Z").timestamp()) * 1000
    result = buckets(span, now, ZoneInfo(zone))
    assert (result[0].name, result[-1].name) == (first, last)
    assert result[-1].start <= now < result[-1].end
    assert all(before.end == after.start for before, after in pairwise(result))


def test_bucket_of_dst_start_day_has_23_hours() -> None:
    result = buckets("month", int(datetime(2026, 3, 31, 9, tzinfo=UTC).timestamp()) * 1000, ZoneInfo("Europe/Vienna"))
    assert {bucket.name: (bucket.end - bucket.start) // 3_600_000 for bucket in result}["29 Mar"] == 23


def test_last_hour_buckets_are_minutes() -> None:
    result = last_hour_buckets(NOW + 59_999)
    assert (len(result), result[0].name, result[-1].name) == (60, "08:31", "09:30")
    assert result[-1].start == NOW
    assert all(before.end == after.start for before, after in pairwise(result))
    assert [bucket.label for bucket in result if bucket.label] == ["08:31", "08:46", "09:01", "09:16"]


@pytest.mark.parametrize(
    ("highest", "least", "expected"),
    [(0, 2, 2), (2, 2, 2), (3, 2, 4), (5, 2, 10), (99, 2, 100), (0.3, 0.1, 0.4), (7, 1, 10), (1e6, 2, 1e6)],
)
def test_scale_top_is_round_number(highest: float, least: float, expected: float) -> None:
    assert scale_top(highest, least) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0%"), (0.05, "0.05%"), (0.5, "0.5%"), (66.666, "66.7%"), (100, "100%")]
)
def test_format_percent_returns_rounded_text(value: float, expected: str) -> None:
    assert format_percent(value) == expected


def test_bars_of_series_are_stacked_from_zero() -> None:
    chart = draw_chart(
        "Sent", TIMES, [Series("A", "a", [1, 0, 4]), Series("B", "b", [1, 0, 0])], format_value=format_count, top_min=2
    )
    svg = ElementTree.fromstring(chart.svg)
    first, last = svg.findall("g")  # the bar in between has nothing to say
    assert first.findtext("text") == "hour 0: 1 A, 1 B"
    assert first.get("tabindex") == "0"
    _, a, b = first.findall("svg/rect")
    assert float(a.get("y", "")) + float(a.get("height", "")) == BOTTOM_Y
    assert float(b.get("y", "")) + float(b.get("height", "")) == float(a.get("y", ""))
    assert float(last.findall("svg/rect")[1].get("y", "")) == TOP_Y  # 4 of 4
    assert chart.rows == [("hour 2", ["4", "0"]), ("hour 1", ["0", "0"]), ("hour 0", ["1", "1"])]


def test_missing_rate_is_not_drawn_as_zero() -> None:
    chart = draw_chart(
        "Rate", TIMES, [Series("Rate", "a", [None, 0.0, 50.0])], format_value=format_percent, top_min=100
    )
    texts = [g.findtext("text") for g in ElementTree.fromstring(chart.svg).findall("g")]
    assert texts == ["hour 1: 0%", "hour 2: 50%"]
    assert [values for _, values in chart.rows] == [["50%"], ["0%"], ["–"]]


def test_chart_names_are_escaped() -> None:
    chart = draw_chart(
        '"><script>',
        TIMES,
        [Series("<b>", "a", [1, 1, 1]), Series("&", "b", [1, 1, 1])],
        format_value=format_count,
        top_min=2,
    )
    svg = ElementTree.fromstring(chart.svg)
    assert svg.get("aria-label") == '"><script>'
    assert svg.find("g").findtext("text") == "hour 0: 1 <b>, 1 &"  # type: ignore[union-attr]


def draw_rates(values: list[float | None], shape: ChartShape, sparse: set[int]) -> Chart:
    times = [Bucket(start=n, end=n + 1, label="", name=f"hour {n}") for n in range(len(values))]
    return draw_chart(
        "Rate",
        times,
        [Series("Rate", "a", values)],
        format_value=format_percent,
        top_min=10 if shape == "steps" else 100,
        shape=shape,
        sparse=sparse,
    )


def test_line_chart_draws_no_values_of_too_few_messages() -> None:
    chart = draw_rates([99.0, 95.0, 92.0, 93.0, None, 10.0], "line", {1, 5})
    svg = ElementTree.fromstring(chart.svg)
    assert [item.text for item in svg.findall("text") if item.get("class") == "tick"] == ["100%", "90%"]
    assert [item.get("class") for item in svg.findall("line") if "stroke" in item.get("class", "")] == ["stroke a"]
    assert [item.get("class") for item in svg.findall("circle")] == ["a"]  # the first value has no neighbour
    captions = [item.findtext("text") for item in svg.findall("g")]
    assert captions[1] == "hour 1: too few messages to judge"
    assert [row for _, (row,) in chart.rows] == ["too few", "–", "93%", "92%", "too few", "99%"]
    assert not chart.is_sparse


def test_rate_bar_of_too_few_messages_is_neither_drawn_nor_cut() -> None:
    svg = ElementTree.fromstring(draw_rates([11.1, 2.0], "steps", {0}).svg)
    few, enough = [len(bar.findall("svg/rect")) for bar in svg.findall("g")]
    assert (few, enough) == (1, 2)  # the first rectangle is the area that shows the caption
    assert "11.1" not in "".join(svg.itertext())


@pytest.mark.parametrize(
    ("values", "sparse", "expected"),
    [([50.0, None], {0}, True), ([50.0, 60.0], {0}, False), ([None, None], {0}, False)],
)
def test_chart_without_enough_messages_is_sparse(values: list[float | None], sparse: set[int], expected: bool) -> None:
    assert draw_rates(values, "line", sparse).is_sparse is expected


def test_step_chart_is_connected_and_names_limit() -> None:
    chart = draw_chart(
        "Rate",
        TIMES,
        [Series("R", "a", [1.0, 2.0, 9.0])],
        format_value=format_percent,
        top_min=10,
        limit=5.0,
        shape="steps",
    )
    svg = ElementTree.fromstring(chart.svg)
    first, second = svg.findall("g/svg")[:2]
    assert svg.get("class") == "chart steps" and [first.get("width"), second.get("x")] == ["33.33%", "33.33%"]
    assert "limit 5%" in [item.text for item in svg.findall("text")]
