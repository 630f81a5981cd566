"""Charts as SVG: where bars stand, what they say, and the table behind them."""

from datetime import UTC, datetime
from itertools import pairwise
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest

from heliograph.dashboard.charts import FLOOR, TOP, Bucket, Series, bars, buckets, ceiling, count, last_hour, percent

NOW = int(datetime(2026, 3, 1, 9, 30, tzinfo=UTC).timestamp()) * 1000
TIMES = [Bucket(start=n, finish=n + 1, label="", name=f"hour {n}") for n in range(3)]


@pytest.mark.parametrize(
    ("span", "many", "first", "last"),
    [
        ("day", 24, "28 Feb, 10:00", "1 Mar, 09:00"),
        ("month", 30, "31 Jan", "1 Mar"),
        ("year", 12, "April 2025", "March 2026"),
    ],
)
def test_buckets_end_with_the_present_one(span: str, many: int, first: str, last: str) -> None:
    made = buckets(span, NOW)
    assert (len(made), made[0].name, made[-1].name) == (many, first, last)
    assert made[-1].start <= NOW < made[-1].finish
    assert all(before.finish == after.start for before, after in pairwise(made))
    assert made[0].label
    assert any(not bucket.label for bucket in made)


@pytest.mark.parametrize(
    ("span", "zone", "at", "first", "last"),
    [
        ("day", "Asia/Kolkata", "2026-03-01T09:40", "28 Feb, 15:30", "1 Mar, 14:30"),
        ("month", "America/New_York", "2026-03-01T03:00", "30 Jan", "28 Feb"),  # there it is still February
        ("month", "Europe/Vienna", "2026-03-31T22:30", "3 Mar", "1 Apr"),
        ("year", "Pacific/Auckland", "2026-03-31T22:30", "May 2025", "April 2026"),
    ],
)
def test_buckets_are_those_of_the_readers_zone(span: str, zone: str, at: str, first: str, last: str) -> None:
    now = int(datetime.fromisoformat(at + "Z").timestamp()) * 1000
    made = buckets(span, now, ZoneInfo(zone))
    assert (made[0].name, made[-1].name) == (first, last)
    assert made[-1].start <= now < made[-1].finish
    assert all(before.finish == after.start for before, after in pairwise(made))


def test_the_day_of_summer_time_has_23_hours() -> None:
    made = buckets("month", int(datetime(2026, 3, 31, 9, tzinfo=UTC).timestamp()) * 1000, ZoneInfo("Europe/Vienna"))
    assert {bucket.name: (bucket.finish - bucket.start) // 3_600_000 for bucket in made}["29 Mar"] == 23


def test_the_last_hour_by_minute() -> None:
    made = last_hour(NOW + 59_999)
    assert (len(made), made[0].name, made[-1].name) == (60, "08:31", "09:30")
    assert made[-1].start == NOW
    assert all(before.finish == after.start for before, after in pairwise(made))
    assert [bucket.label for bucket in made if bucket.label] == ["08:31", "08:46", "09:01", "09:16"]


@pytest.mark.parametrize(
    ("highest", "least", "expected"),
    [(0, 2, 2), (2, 2, 2), (3, 2, 4), (5, 2, 10), (99, 2, 100), (0.3, 0.1, 0.4), (7, 1, 10), (1e6, 2, 1e6)],
)
def test_the_upper_line_is_round(highest: float, least: float, expected: float) -> None:
    assert ceiling(highest, least) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0 %"), (0.05, "0.05 %"), (0.5, "0.5 %"), (66.666, "66.7 %"), (100, "100 %")]
)
def test_percent(value: float, expected: str) -> None:
    assert percent(value) == expected


def test_bars_are_stacked_from_the_floor() -> None:
    chart = bars("Sent", TIMES, [Series("A", "a", [1, 0, 4]), Series("B", "b", [1, 0, 0])], text=count, least=2)
    svg = ElementTree.fromstring(chart.svg)
    first, last = svg.findall("g")  # the bar in between has nothing to say
    assert first.findtext("text") == "hour 0: 1 A, 1 B"
    assert first.get("tabindex") == "0"
    _, a, b = first.findall("svg/rect")
    assert float(a.get("y", "")) + float(a.get("height", "")) == FLOOR
    assert float(b.get("y", "")) + float(b.get("height", "")) == float(a.get("y", ""))
    assert float(last.findall("svg/rect")[1].get("y", "")) == TOP  # 4 of 4
    assert chart.rows == [("hour 2", ["4", "0"]), ("hour 1", ["0", "0"]), ("hour 0", ["1", "1"])]


def test_no_rate_is_not_a_rate_of_zero() -> None:
    chart = bars("Rate", TIMES, [Series("Rate", "a", [None, 0.0, 50.0])], text=percent, least=100)
    said = [g.findtext("text") for g in ElementTree.fromstring(chart.svg).findall("g")]
    assert said == ["hour 1: 0 %", "hour 2: 50 %"]
    assert [values for _, values in chart.rows] == [["50 %"], ["0 %"], ["–"]]


def test_names_are_escaped() -> None:
    chart = bars('"><script>', TIMES, [Series("<b>", "a", [1, 1, 1]), Series("&", "b", [1, 1, 1])], text=count, least=2)
    svg = ElementTree.fromstring(chart.svg)
    assert svg.get("aria-label") == '"><script>'
    assert svg.find("g").findtext("text") == "hour 0: 1 <b>, 1 &"  # type: ignore[union-attr]


def test_a_line_begins_where_its_values_are_and_is_grey_where_they_are_few() -> None:
    values = [99.0, 95.0, None, 92.0]
    times = [Bucket(start=n, finish=n + 1, label="", name=f"hour {n}") for n in range(4)]
    chart = bars("Rate", times, [Series("Rate", "a", values)], text=percent, least=100, shape="line", few={1})
    svg = ElementTree.fromstring(chart.svg)
    assert [one.text for one in svg.findall("text") if one.get("class") == "tick"] == ["100 %", "90 %"]
    assert [one.get("class") for one in svg.findall("line") if "stroke" in one.get("class", "")] == ["stroke few"]
    assert [one.get("class") for one in svg.findall("circle")] == ["a"]  # it has no neighbour
    few = bars(
        "Rate", times, [Series("Rate", "a", [10.0, *values[1:]])], text=percent, least=100, shape="line", few={0}
    )
    told = [one.text for one in ElementTree.fromstring(few.svg).findall("text")]
    assert "90 %" in told and "▼ 10 %" in told  # by what says something; what lies below it is named
    low = bars("Rate", times, [Series("Rate", "a", [10.0, *values[1:]])], text=percent, least=100, shape="line")
    assert "90 %" not in [one.text for one in ElementTree.fromstring(low.svg).findall("text")]


def test_steps_touch_and_name_their_limit() -> None:
    chart = bars("Rate", TIMES, [Series("R", "a", [1.0, 2.0, 9.0])], text=percent, least=10, limit=5.0, shape="steps")
    svg = ElementTree.fromstring(chart.svg)
    first, second = svg.findall("g/svg")[:2]
    assert svg.get("class") == "chart steps" and [first.get("width"), second.get("x")] == ["33.33%", "33.33%"]
    assert "limit 5 %" in [one.text for one in svg.findall("text")]
