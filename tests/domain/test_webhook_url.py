"""The parser of webhook URLs: accepted URLs and their normal form, and the error messages for all others."""

import pytest

from heliograph.webhooks.policy.webhook_url import URL_MAX, Target, parse_target, split_login

GOOD = [
    # (URL as written, normal form, IP address)
    ("https://example.com", "https://example.com/", None),
    ("https://example.com/hooks?a=1&b=%20", "https://example.com/hooks?a=1&b=%20", None),
    ("HTTPS://Hooks.EXAMPLE.com:443/X", "https://hooks.example.com/X", None),
    ("http://example.com:80", "http://example.com/", None),
    ("http://example.com:443/", "http://example.com:443/", None),
    ("https://example.com:8443?a", "https://example.com:8443/?a", None),
    ("https://example.com./", "https://example.com/", None),
    ("https://bücher.example/", "https://xn--bcher-kva.example/", None),
    ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/", None),
    ("http://app:3000/hook", "http://app:3000/hook", None),  # a name in the operator's own network
    ("http://LOCALHOST:3000/", "http://localhost:3000/", None),
    ("https://example.com/a@b:c/~(x)!$&'*+,;=", "https://example.com/a@b:c/~(x)!$&'*+,;=", None),
    ("https://example.com//a/../b", "https://example.com//a/../b", None),
    ("https://example.com:65535/", "https://example.com:65535/", None),
    ("http://192.0.2.1/", "http://192.0.2.1/", "192.0.2.1"),
    ("http://192.0.2.1./", "http://192.0.2.1/", "192.0.2.1"),
    ("http://192.0.2.1:8080/", "http://192.0.2.1:8080/", "192.0.2.1"),
    ("http://[2001:DB8:0:0::1]/", "http://[2001:db8::1]/", "2001:db8::1"),
    ("https://[::ffff:192.0.2.1]:8443/x", "https://[::ffff:192.0.2.1]:8443/x", "::ffff:192.0.2.1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "url", "login"),
    [
        ("https://a.test/@x", "https://a.test/@x", None),
        ("https://user:pass@a.test:8443/x?y=z@w", "https://a.test:8443/x?y=z@w", "user:pass"),
        ("HTTP://us%40er:p%3Aa:ss%C3%BC@[::1]/", "HTTP://[::1]/", "us@er:p:a:ssü"),
        ("https://user@a.test/", "https://a.test/", "user:"),
        ("https://:pass@a.test/", "https://a.test/", ":pass"),
        ("https://@a.test/", "https://a.test/", ""),
        ("https://a:b@c@d.test/", "https://c@d.test/", "a:b"),  # then refused as a target
        ("no URL", "no URL", None),
    ],
)
def test_webhook_url_credentials_are_split_from_the_url(written: str, url: str, login: str | None) -> None:
    assert split_login(written) == (url, login)


@pytest.mark.parametrize("login", ["a%3Ab:c", "a:%0d%0aX", "ü:x", "a b:c", "a:b%"])
def test_webhook_url_with_credentials_unfit_for_basic_auth_is_refused(login: str) -> None:
    with pytest.raises(ValueError, match="user") as refused:
        split_login(f"https://{login}@a.test/")
    assert login not in str(refused.value)


@pytest.mark.parametrize(("written", "form", "ip"), GOOD)
def test_webhook_url_is_normalized_to_one_form(written: str, form: str, ip: str | None) -> None:
    target = parse_target(written)
    assert (target.url.replace("::ffff:c000:201", "::ffff:192.0.2.1"), target.ip and normalize_mapped(target.ip)) == (
        form,
        ip,
    )
    assert parse_target(target.url) == target


def normalize_mapped(ip: str) -> str:
    """Convert a mapped address to the text of newer versions: before Python 3.13 it is all hexadecimal."""
    return ip.replace("::ffff:c000:201", "::ffff:192.0.2.1")


def test_webhook_url_is_parsed_into_parts() -> None:
    assert parse_target("https://Example.com:8443/a?b=c") == Target(
        scheme="https",
        host="example.com",
        port=8443,
        path_and_query="/a?b=c",
        ip=None,
        authority="example.com:8443",
    )


BAD = [
    ("http or https", "expected http:// or https://", [
        "", "example.com", "//example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
        "javascript:alert(1)", "http:/example.com", "http:example.com", "http//example.com", " https://example.com/",
        "\thttps://example.com/", "https:\\\\example.com\\", "https://\\example.com",
        "httpſ://example.com/", "ｈttp://example.com/", "unix:///run/x.sock", "https+unix://x/", "ws://example.com/",
    ]),
    ("no user", "user name or password", [
        "https://user@example.com/", "https://user:pw@example.com/", "https://@example.com/", "https://:@example.com/",
        "https://example.com@127.0.0.1/", "https://example.com:80@127.0.0.1:80/", "https://a%40b@example.com/",
    ]),
    ("no fragment", "fragment", ["https://example.com/#", "https://example.com/a#b", "https://example.com#@127.0.0.1/"]),
    ("ports", "port is not a number", [
        "https://example.com:/", "https://example.com:0/", "https://example.com:00443/", "https://example.com:65536/",
        "https://example.com:99999999999/", "https://example.com:-1/", "https://example.com:+80/", "https://a.test:8 /",
        "https://example.com:80a/", "https://example.com:８０/", "https://example.com:0x50/", "https://example.com:80:81/",
        "https://example.com:80\n/",
    ]),
    ("IP addresses in odd forms", "IP address in its usual form", [
        "http://2130706433/", "http://017700000001/", "http://0x7f000001/", "http://0X7F000001/", "http://127.1/",
        "http://127.0.1/", "http://0177.0.0.1/", "http://0177.0.0.01/", "http://0x7f.0.0.1/", "http://0x7f.1/",
        "http://127.0.0.0x1/", "http://1.0x7f/", "http://127.0.0.1.1/", "http://256.0.0.1/", "http://127.0.0.256/",
        "http://00.00.00.00/", "http://0/", "http://0x/", "http://1.2.3.4.5.6/", "http://127..0.1/", "http://a.1/",
        "http://[127.0.0.1]/", "http://[::1%25lo]/", "http://[::1%lo]/", "http://[fe80::1%1]/", "http://[]/",
        "http://[::g]/", "http://[1::2::3]/", "http://[v1.fe80]/", "http://[::ffff:0177.0.0.1]/",
        "http://[::ffff:127.1]/", "http://[ ::1]/", "http://[::1\n]/", "http://[0::12345]/",
    ]),
    ("hosts", "host is not", [
        "http:///path", "http://?x", "http://./", "http://../", "http://example.com../", "http://.example.com/",
        "http://example..com/", "http://-a.example/", "http://a-.example/", "http://exa mple.com/", "http://a_b.example/",
        "http://ex%61mple.com/", "http://127.0.0.1%2f.example/", "http://%31%32%37.example/",
        "http://::1/", "http://[::1/", "http://::1]/", "http://[::1].example/", "http://[::1]x/", "http://a[::1]/",
        "http://１２７.０.０.１/", "http://127。0。0。1/", "http://①②⑦.⓪.⓪.①/", "http://ⓔxample.com/", "http://example。com/",
        "http://exam\u200bple.com/", "http://exam\u00adple.com/", "http://example.com\u202e/", "http://ex\x00ample.com/",
        "http://example.com\r\n/", "http://example\t.com/", "http://*.example.com/", "http://xn--a.example/",
        "http://xn--bcher-kva8-.example/", "http://faẞ.example/", "http://\u212a/",
        "http://" + "a" * 64 + ".example/", "http://" + "a" * 64 + "/", "http://" + "a." * 127 + "example/", "http://\ud800.com/",
    ]),
    ("path and query", "path and query", [
        "https://example.com/a b", "https://example.com/ü", "https://example.com/\n", "https://example.com/a\r\nX: y",
        "https://example.com/%", "https://example.com/%2", "https://example.com/%zz", "https://example.com/a\\b",
        'https://example.com/"', "https://example.com/<x>", "https://example.com/?a={b}", "https://example.com/?a=\x7f",
        "https://example.com/?[a]=b", "https://example.com/\ud800",
    ]),
    ("length", f"longer than {URL_MAX}", ["https://example.com/" + "a" * (URL_MAX - 19), "x" * 10_000_000]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "url"), [(words, url) for _, words, urls in BAD for url in urls], ids=lambda text: ascii(text[:60])
)
def test_webhook_url_invalid_is_refused_with_a_readable_error(words: str, url: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_target(url)
    assert len(str(caught.value)) < 250
    assert str(caught.value).isprintable()


def test_webhook_url_of_maximum_length_is_accepted() -> None:
    assert parse_target("https://example.com/" + "a" * (URL_MAX - 20)).port == 443
