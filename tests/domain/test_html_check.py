"""What fails in common mail clients, found by the table."""

import re

import pytest

from heliograph.templates.policy.mail_clients import ALL, FEATURES, GMAIL_CLIPS, check_html


def found(html: str) -> list[str]:
    return [one.feature.name for one in check_html(html)]


@pytest.mark.parametrize(
    ("html", "names"),
    [
        ('<p style="color:#333;padding:4px">Hi</p><img src="https://a.example/a.png" alt="A" width="10">', []),
        ("<script>x</script>", ["<script>"]),
        ('<img src="https://a.example/a.png">', ["a picture without alt text", "a picture without a width"]),
        ('<img alt="" width=1 src="data:image/png;base64,xx">', ["a picture in a data: address"]),
        ('<div style="display: flex; border-radius: 4px">', ["display: flex", "border-radius"]),
        ("<style>@media (max-width: 600px) { .a { padding: 0 } }</style>", ["@media"]),
        ("<style>a{color:var(--x)}</style>", ["a CSS variable"]),
        ("<p>display: flex is a word here</p>", []),
        ('<link rel="stylesheet" href="x.css">', ["<link> to a style sheet"]),
        ("x" * (GMAIL_CLIPS + 1), ["more than 102 KB of HTML"]),
    ],
)
def test_findings(html: str, names: list[str]) -> None:
    assert found(html) == names


def test_what_is_lost_comes_first_and_is_counted() -> None:
    first, *_ = check_html('<p style="float:left"></p><form></form><form></form>')
    assert (first.feature.name, first.times) == ("<form> and its fields", 2)


def test_the_table_is_whole() -> None:
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
    for feature in FEATURES:
        re.compile(feature.pattern)
        assert feature.advice.endswith(".") and set(feature.clients) <= set(ALL)


@pytest.mark.parametrize("hostile", ["<img " * 120_000, "<style>" * 90_000, 'style="' * 90_000, "background:" * 60_000])
def test_hostile_mails_take_linear_time(hostile: str) -> None:
    """A quadratic search would take minutes, and the run would be stopped."""
    check_html(hostile)
    check_html(f'<p style="{hostile}">')
