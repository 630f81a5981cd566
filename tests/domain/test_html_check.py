"""HTML features that fail in common mail clients, according to the table."""

import re

import pytest

from heliograph.templates.policy.mail_clients import ALL_CLIENTS, FEATURES, GMAIL_CLIP_OCTETS, find_unsupported_features


def feature_names(html: str) -> list[str]:
    return [problem.feature.name for problem in find_unsupported_features(html)]


@pytest.mark.parametrize(
    ("html", "names"),
    [
        ('<p style="color:#333;padding:4px">Hi</p><img src="https://a.example/a.png" alt="A" width="10">', []),
        ("<script>x</script>", ["<script>"]),
        ('<img src="https://a.example/a.png">', ["an image without alt text", "an image without a width"]),
        ('<img alt="" width=1 src="data:image/png;base64,xx">', ["an image in a data: URL"]),
        ('<div style="display: flex; border-radius: 4px">', ["display: flex", "border-radius"]),
        ("<style>@media (max-width: 600px) { .a { padding: 0 } }</style>", ["@media"]),
        ("<style>a{color:var(--x)}</style>", ["a CSS variable"]),
        ("<p>display: flex is a word here</p>", []),
        ('<link rel="stylesheet" href="x.css">', ["<link> to a style sheet"]),
        ("x" * (GMAIL_CLIP_OCTETS + 1), ["more than 102 KB of HTML"]),
    ],
)
def test_unsupported_html_features_are_found(html: str, names: list[str]) -> None:
    assert feature_names(html) == names


def test_unsupported_html_features_are_sorted_by_loss_and_counted() -> None:
    first, *_ = find_unsupported_features('<p style="float:left"></p><form></form><form></form>')
    assert (first.feature.name, first.count) == ("<form> and its fields", 2)


def test_unsupported_html_feature_table_is_consistent() -> None:
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
    for feature in FEATURES:
        re.compile(feature.pattern)
        assert feature.advice.endswith(".") and set(feature.clients) <= set(ALL_CLIENTS)


@pytest.mark.parametrize("hostile", ["<img " * 120_000, "<style>" * 90_000, 'style="' * 90_000, "background:" * 60_000])
def test_hostile_mails_take_linear_time(hostile: str) -> None:
    """A quadratic search would take minutes, and the test run would time out."""
    find_unsupported_features(hostile)
    find_unsupported_features(f'<p style="{hostile}">')
