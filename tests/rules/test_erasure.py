"""Erasing an address: the hash that stays, and finding the address in texts."""

import pytest

from heliograph.rules.address import parse_address
from heliograph.rules.erasure import erased_name, forms_of, is_erased, short_name, stand_in

EMAIL, PHONE = "zoe@example.com", "+447700900777"


@pytest.mark.parametrize(
    ("address", "text", "scrubbed"),
    [
        (EMAIL, "to zoe@example.com.", "to erased@erased.invalid."),
        (EMAIL, "550 <ZOE@Example.com>: unknown", "550 <erased@erased.invalid>: unknown"),
        (EMAIL, "'zoe@example.com','zoe@example.com'", "'erased@erased.invalid','erased@erased.invalid'"),
        (EMAIL, "mailto:zoe@example.com?x", "mailto:erased@erased.invalid?x"),
        (EMAIL, "aza-zoe@example.com", None),
        (EMAIL, "a.zoe@example.com", None),
        (EMAIL, "zoe@example.com.au", None),
        (EMAIL, "zoe@example.company", None),
        (EMAIL, "zoeXexample.com", None),
        (PHONE, '{"to":"+447700900777"}', '{"to":"[erased]"}'),
        (PHONE, "id 447700900777 ok", "id [erased] ok"),
        (PHONE, "+4477009007771", None),
        (PHONE, "+1447700900777", None),
    ],
)
def test_it_is_found_in_texts_and_longer_ones_are_not(address: str, text: str, scrubbed: str | None) -> None:
    forms = forms_of(address, address)
    assert forms.are_in(text) is (scrubbed is not None)
    assert forms.scrub(text) == (scrubbed or text)


def test_other_spellings_are_found_too() -> None:
    forms = forms_of("jörg@xn--mnchen-3ya.example", "Jörg@münchen.example")
    for text in ("JÖRG@xn--mnchen-3ya.example", "jörg@MÜNCHEN.example"):
        assert forms.are_in(text)
        assert any(needle in text.lower() for (needle,) in forms.needles())


def test_the_hash_is_keyed_and_of_one_team() -> None:
    name = erased_name(b"key", 1, EMAIL)
    assert name == erased_name(b"key", 1, EMAIL)
    assert (
        len({name, erased_name(b"other", 1, EMAIL), erased_name(b"key", 2, EMAIL), erased_name(b"key", 1, "a@b.c")})
        == 4
    )
    assert short_name(name) == name[7:19]
    address = parse_address(name)
    assert address is not None and address.normal == name  # lists page by it


def test_what_stands_in_its_place() -> None:
    assert [stand_in(EMAIL, at) for at in (None, 0, 1)] == [
        *("erased@erased.invalid", "erased-1@erased.invalid", "erased-2@erased.invalid"),
    ]
    assert stand_in(PHONE, 0) == "[erased]"
    assert all(map(is_erased, (stand_in(EMAIL), stand_in(EMAIL, 0), stand_in(PHONE), erased_name(b"", 1, EMAIL))))
    assert not any(map(is_erased, (EMAIL, PHONE, "erased@example.com")))
