"""Codes and links in captured messages."""

import pytest

from heliograph.domain.mail.inbox_inspection import (
    LINKS_MAX,
    check_link,
    find_code,
    find_links,
    find_message_code,
    first_link,
    html_to_text,
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Your Acme code is 493028. It expires in 10 minutes.", "493028"),
        ("493 028 is your verification code", "493028"),
        ("Use PIN 4821 to sign in, order 20261115", "4821"),
        ("Code: 123-456", "123456"),
        ("Your order 99887766 of 2026-11-15 costs 125.00 USD", None),
        ("Sign in with 771204", "771204"),
        ("Two numbers: 111222 and 333444", None),
        ("Call +447400123456 for help with the code 9911", "9911"),
        ("https://acme.example/reset/123456 resets the password", None),
        ("", None),
    ],
)
def test_inbox_code_is_found_in_text(text: str, code: str | None) -> None:
    assert find_code(text) == code


def test_inbox_html_is_converted_to_text() -> None:
    html = "<head><title>1111</title></head><style>.a{color:#123456}</style><p>Your code</p><b>48&#50;1</b>"
    assert html_to_text(html) == "Your code 4821"
    assert find_message_code("Hello", None, html) == "4821"
    assert find_message_code("493028 is your code", "no digits", None) == "493028"


def test_links_once_and_in_order() -> None:
    html = """<A class="b" HREF='https://a.example/?x=1&amp;y=2'>a</A> <a href=https://b.example>b</a>
              <a href="https://a.example/?x=1&amp;y=2">again</a> <a href="#top">top</a> <link href="https://css.example">"""
    assert find_links(html, "https://ignored.example") == ["https://a.example/?x=1&y=2", "https://b.example", "#top"]
    assert first_link(["#top", "mailto:a@b.example", "https://b.example"]) == "https://b.example"
    assert find_links(None, "See https://a.example/x. Or (http://b.example)!") == [
        "https://a.example/x",
        "http://b.example",
    ]


@pytest.mark.parametrize(
    ("url", "verdict", "word"),
    [
        ("https://acme.com/a?b=c#d", "ok", ""),
        ("mailto:ada@acme.com", "ok", ""),
        ("tel:+441234", "ok", ""),
        ("mailto:", "wrong", "without an address"),
        ("", "warning", "anywhere"),
        ("#", "warning", "anywhere"),
        ("/reset", "wrong", "relative"),
        ("https://acme.com/{{customer.id}}", "wrong", "placeholder"),
        ("https://acme.com/%7B%7Bid%7D%7D", "wrong", "placeholder"),
        ("https://acme.com/a b", "wrong", "space"),
        ("https://acme.com:99999/", "wrong", "port"),
        ("https:///x", "wrong", "no host"),
        ("javascript:alert(1)", "wrong", "javascript"),
        ("http://acme.com", "warning", "encrypted"),
        ("http://localhost:3000/x", "warning", "public host"),
        ("https://10.0.0.1/x", "warning", "public host"),
        ("https://acme.com/" + "x" * 3000, "warning", "characters"),
    ],
)
def test_links_are_judged_by_their_form(url: str, verdict: str, word: str) -> None:
    link = check_link(url)
    assert link.verdict == verdict
    assert word in link.why


@pytest.mark.parametrize(
    "hostile", ["<a " * 200_000, "<" * 500_000, "<style" * 90_000, "http://" * 80_000, "1 " * 300_000]
)
def test_hostile_bodies_take_linear_time(hostile: str) -> None:
    """A quadratic search would take minutes, and the test run would time out."""
    find_message_code(None, None, hostile)
    assert len(find_links(hostile, None)) <= LINKS_MAX
    assert len(find_links(None, hostile)) <= LINKS_MAX
    find_code("code " + hostile)
