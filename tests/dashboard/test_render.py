"""Formatting of times, durations, money and states."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from heliograph.dashboard.navigation import MENU, OPERATOR_MENU, NavItem
from heliograph.dashboard.page_request import time_zone_of
from heliograph.dashboard.render import (
    ReaderTime,
    format_ago,
    format_currency,
    format_duration,
    format_short_number,
    group_by_day,
    jinja_environment,
    render,
)
from heliograph.dashboard.states import LABEL_BY_STATE, state_label
from heliograph.web.icons import SHAPE_BY_NAME, render_sheet

NOW = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *[(-5, "0 ms"), (0, "0 ms"), (999, "999 ms"), (1000, "1.0 s"), (90_000, "90.0 s"), (120_000, "2 min")],
        *[(7_199_999, "119 min"), (7_200_000, "2 h"), (172_799_999, "47 h"), (172_800_000, "2 days")],
    ],
)
def test_format_duration_uses_largest_unit(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@pytest.mark.parametrize(
    ("back", "text"),
    [
        (timedelta(seconds=3), "just now"),
        (timedelta(seconds=-5), "in 5 s"),
        (timedelta(milliseconds=-400), "just now"),
        (timedelta(seconds=42), "42 s ago"),
        (timedelta(minutes=3, seconds=59), "3 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(days=1, hours=1), "1 day ago"),
        (timedelta(days=6, hours=23), "6 days ago"),
        (timedelta(days=7), "22 Mar"),
        (timedelta(days=100), "19 Dec 2025"),
        (timedelta(minutes=-20), "in 20 min"),
        (timedelta(days=-2), "in 2 days"),
    ],
)
def test_format_ago_returns_relative_time_then_date(back: timedelta, text: str) -> None:
    ms = int((NOW - back).timestamp() * 1000)
    assert format_ago(ms, ReaderTime(int(NOW.timestamp() * 1000), UTC)) == text


@pytest.mark.parametrize("zone", ["Europe/Vienna", "America/New_York"])
@pytest.mark.parametrize("year", [1, 9999])
def test_format_ago_accepts_first_and_last_year_in_any_zone(year: int, zone: str) -> None:
    end = datetime(year, 12, 31, 23, 59, tzinfo=UTC) if year > 1 else datetime(1, 1, 1, tzinfo=UTC)
    assert str(year) in format_ago(
        int(end.timestamp() * 1000), ReaderTime(int(NOW.timestamp() * 1000), time_zone_of(zone))
    )


def test_exact_time_uses_reader_zone_and_is_accessible() -> None:
    template = jinja_environment().from_string("{{ at | when }}{{ at | exact }}{{ iso | when }}")
    shown = template.render(at=int(NOW.timestamp() * 1000), iso=NOW.isoformat())
    assert shown.count("29 Mar 2026, 12:00:00 UTC") == 3  # without a current time, times are absolute
    page = render("error.html", {"request": None, "notice": "", "path": "", "status": 404, "title": "a", "text": "b"})
    assert b"<h1>a</h1>" in page


def test_clock_shows_time_of_day_and_explains_it_in_its_tooltip() -> None:
    now = int(NOW.timestamp() * 1000)
    template = jinja_environment().from_string("{{ at | clock }}")
    assert template.render(at=now) == (
        '<time class="clock" datetime="2026-03-29T12:00:00.000Z" title="29 Mar 2026, 12:00:00 UTC">12:00:00</time>'
    )


@pytest.mark.parametrize(
    ("name", "hours"), [("Europe/Vienna", 2), ("", 0), ("../../etc/passwd", 0), ("Europe", 0), ("No/Where", 0)]
)
def test_zone_of_unknown_name_returns_utc(name: str, hours: int) -> None:
    assert NOW.astimezone(time_zone_of(name)).utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (125_000_000, "125.00 USD"),
        (45_000, "0.045 USD"),
        (-5_000_000, "−5.00 USD"),
        (-4_000, "−0.004 USD"),
        (99_745_000, "99.745 USD"),
        (1_234_567_890_000, "1,234,567.89 USD"),
    ],
)
def test_amount_has_all_its_decimals_and_at_least_two(micros: int, shown: str) -> None:
    assert format_currency(micros, "USD").replace("\u00a0", " ") == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0, "0"), (1, "1"), (999_499, "999,499"), (999_500, "1 M"), (1_000_000, "1 M"), (1_234_567, "1.23 M")],
        *[(999_499_999, "999 M"), (3_703_703_670, "3.7 B"), (12_345_678_901_234, "12,346 B")],
    ],
)
def test_format_short_number_shortens_millions(value: int, text: str) -> None:
    assert format_short_number(value).replace("\u00a0", " ") == text


@pytest.mark.parametrize("menu", [[item for group in MENU.values() for item in group], OPERATOR_MENU])
def test_menu_has_no_icon_twice(menu: list[NavItem]) -> None:
    icons = [item.icon for item in menu]
    assert len(icons) == len({*icons})


def test_every_state_has_label_and_icon() -> None:
    assert all(state.icon in SHAPE_BY_NAME and state.label[0].isupper() for state in LABEL_BY_STATE.values())
    assert state_label("some_thing").label == "Some thing"
    assert {item.get("id") for item in ElementTree.fromstring(render_sheet())} == SHAPE_BY_NAME.keys()


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("UTC", ["Today", "Friday, 27 March", "Tuesday, 30 December 2025"]),
        ("Pacific/Auckland", ["Today", "Yesterday", "Saturday, 28 March", "Wednesday, 31 December 2025"]),  # 13 h ahead
    ],
)
def test_group_by_day_uses_reader_zone(zone: str, said: list[str]) -> None:
    now = int(NOW.timestamp() * 1000)
    lines = [{"created_at": now - int(hours * 3_600_000)} for hours in (0, 1.5, 37, 89 * 24)]
    groups = group_by_day(lines, ReaderTime(now, time_zone_of(zone)))
    assert [heading for _, heading, _ in groups] == said and [line for *_, those in groups for line in those] == lines
