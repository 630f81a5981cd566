import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.mail.address import normalize_domain, parse_address, parse_name_addr

LABEL63 = "a" * 63
DOMAIN253 = f"{LABEL63}.{LABEL63}.{LABEL63}.{'b' * 57}.com"


@pytest.mark.parametrize(
    ("text", "normal", "domain"),
    [
        ("ada@example.com", "ada@example.com", "example.com"),
        ("Ada.L+tag@Example.COM", "ada.l+tag@example.com", "example.com"),
        ("!#$%&'*+/=?^_`{|}~-@x.io", "!#$%&'*+/=?^_`{|}~-@x.io", "x.io"),
        ("a@1.2.3.x4", "a@1.2.3.x4", "1.2.3.x4"),
        ("a@b--c.example", "a@b--c.example", "b--c.example"),
        (f"{'l' * 64}@x.io", f"{'l' * 64}@x.io", "x.io"),
        (f"a@{DOMAIN253}", f"a@{DOMAIN253}", DOMAIN253),
        ("a@bücher.example", "a@xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a@Bücher.Example", "a@xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a@straße.de", "a@xn--strae-oqa.de", "xn--strae-oqa.de"),
        ("a@XN--BCHER-KVA.example", "a@xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a@例え.テスト", "a@xn--r8jz45g.xn--zckzah", "xn--r8jz45g.xn--zckzah"),
        ("Jürgen@x.io", "jürgen@x.io", "x.io"),
        ("用户@例え.テスト", "用户@xn--r8jz45g.xn--zckzah", "xn--r8jz45g.xn--zckzah"),
        (f"{'ü' * 32}@x.io", f"{'ü' * 32}@x.io", "x.io"),
    ],
)
def test_address_valid_is_parsed_and_normalized(text: str, normal: str, domain: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert (address.original, address.normal, address.domain) == (text, normal, domain)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "ada",
        "ada@",
        "@example.com",
        "a@b@example.com",
        # local part
        ".a@x.io",
        "a.@x.io",
        "a..b@x.io",
        "a b@x.io",
        "a,b@x.io",
        "a(c)@x.io",
        '"a b"@x.io',
        "a\\b@x.io",
        "<a@x.io>",
        f"{'l' * 65}@x.io",
        f"{'ü' * 33}@x.io",
        "u\u0308@x.io",  # not NFC
        "a\u200bb@x.io",
        "ü\u202e@x.io",
        "ü\u00a0@x.io",
        "ü\u0085@x.io",
        "ü\ud800@x.io",
        f"{'İ' * 22}@x.io",  # 44 octets, 66 in lower case
        # domain
        "a@localhost",
        "a@x.io.",
        "a@.x.io",
        "a@x..io",
        "a@-x.io",
        "a@x-.io",
        "a@x_y.io",
        "a@x.123",
        "a@127.0.0.1",
        "a@[127.0.0.1]",
        f"a@{'a' * 64}.io",
        f"a@b{DOMAIN253}",
        f"a@{'a.' * 200}io",
        f"a@{'ü.' * 60}io",  # over 253 as A-labels
        "a@xn--a.example",  # no such A-label
        "a@xn--n3h.example",  # a symbol
        "a@xn--abc-.example",
        "a@☃.example",
        "a@ab--cd.example",  # reserved
        "a@BÜCHER.example",  # IDNA2008 maps nothing
        "a@例え。テスト",
        "a@ｘ.io",
        "a@\u212aelvin.io",  # KELVIN SIGN, which lower-cases to k
        "a@1א.example",
        # white space, line breaks, routes
        " a@x.io",
        "a@x.io ",
        "a@x.io\n",
        "a\r\n@x.io",
        "a@x.io\r\nBcc: b@x.io",
        "a@x\x00.io",
        "@r.io:a@x.io",
        "a@x.io,b@x.io",
        "Ada <a@x.io>",
        "a@x.io" * 1000,
    ],
)
def test_address_invalid_is_not_parsed(text: str) -> None:
    assert parse_address(text) is None


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("Acme.Test", "acme.test"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("acme", None),
        ("acme.test.", None),
        ("", None),
        ("a@acme.test", None),
        ("\ud800.test", None),
    ],
)
def test_address_domain_is_normalized(text: str, domain: str | None) -> None:
    assert normalize_domain(text) == domain


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a@x.io", None),
        ("<a@x.io>", None),
        (" <a@x.io>", None),
        ('"" <a@x.io>', ""),
        ("Acme <a@x.io>", "Acme"),
        ("Acme<a@x.io>", "Acme"),
        ("Acme   Support  <a@x.io>", "Acme Support"),
        (" \t\u3000Acme\tSupport\u2003<a@x.io>\n", "Acme Support"),
        ("Acme\u00a0\u2009Support <a@x.io>", "Acme Support"),
        ("Acme\r\n Support <a@x.io>", "Acme Support"),
        ('" Acme\t \\\u3000 Support " <a@x.io>', "Acme Support"),
        ("\ta@x.io\u00a0", None),
        ("Acme Inc. <a@x.io>", "Acme Inc."),
        ("O'Neil & Co <a@x.io>", "O'Neil & Co"),
        ("Café 東京 <a@x.io>", "Café 東京"),
        ('"Acme, Inc." <a@x.io>', "Acme, Inc."),
        ('"Acme"<a@x.io>', "Acme"),
        (r'"Quoted \"Name\"" <a@x.io>', 'Quoted "Name"'),
        (r'"Back\\slash" <a@x.io>', "Back\\slash"),
        ('"<b@y.io>" <a@x.io>', "<b@y.io>"),
    ],
)
def test_name_addr_is_parsed(text: str, name: str | None) -> None:
    result = parse_name_addr(text)
    assert result is not None
    assert (result[0], result[1].original) == (name, "a@x.io")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ">",
        "<>",
        "Acme",
        "Acme a@x.io",
        "a@x.io>",
        "Acme a@x.io>",
        "Acme <a@x.io",
        "Acme <a@x.io>, B <b@x.io>",
        "Acme < a@x.io>",
        "Acme <<a@x.io>>",
        "Acme <not-an-address>",
        "Acme, Inc <a@x.io>",
        'Ac"me <a@x.io>',
        '"Acme <a@x.io>',
        '"Ac"me" <a@x.io>',
        '"Acme\\" <a@x.io>',
        '"A" "B" <a@x.io>',
        "Acme (sales) <a@x.io>",
        "b@y.io <a@x.io>",
        "Group: <a@x.io>;",
        "Group: a <a@x.io>",
        "Acme\u202e <a@x.io>",
        "Acme\x1f <a@x.io>",
        "A" * 5000 + " <a@x.io>",
        "Acme\u200b\u200e <a@x.io>",
        "Acme\x00 <a@x.io>",
    ],
)
def test_name_addr_invalid_is_not_parsed(text: str) -> None:
    assert parse_name_addr(text) is None


near_addresses = st.builds(
    "{}@{}.{}".format,
    st.text('aZ0.+"üİΣ \r\n\x00-', min_size=1, max_size=8),
    st.text("aZ0.ü \n-", min_size=1, max_size=8),
    st.text("az0\n", min_size=1, max_size=3),
)


@settings(max_examples=50, database=None)
@given(st.one_of(near_addresses, st.text(max_size=20)))
def test_parsed_address_has_no_separators_and_a_stable_normal_form(text: str) -> None:
    address = parse_address(text)
    if address is not None:
        assert address.original == text
        assert not set(text) & set('\r\n\x00\t "<>(),;:\\[]')
        assert address.domain.isascii()
        again = parse_address(address.normal)
        assert again is not None
        assert (again.normal, again.domain) == (address.normal, address.domain)


@settings(max_examples=50, database=None)
@given(st.text(alphabet='aZ é.,"\\<>@\r\n\x00\u202e', max_size=12))
def test_no_name_breaks_a_line(phrase: str) -> None:
    result = parse_name_addr(f"{phrase}<a@x.io>")
    if result is not None and result[0] is not None:
        assert not set(result[0]) & set("\r\n\x00\u202e")
