"""Erasing an address: the hash that stays, and finding the address in texts."""

from typing import Any

import pytest

from heliograph.domain.mail.address import parse_address
from heliograph.domain.operations.erasure import (
    HIDDEN,
    erased_name,
    forms_of,
    is_erased,
    short_name,
    stand_in,
)

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


@pytest.mark.parametrize(
    ("address", "value", "shown"),
    [
        (EMAIL, "Zoe@example.com and ada@example.com.", f"Zoe@example.com and {HIDDEN}."),
        (EMAIL, "?a=ada%40example.com&z=zoe%40example.com", f"?a={HIDDEN}&z=zoe%40example.com"),
        (EMAIL, "xzoe@example.com, call +44 7700 900123", f"{HIDDEN}, call {HIDDEN}"),
        (EMAIL, ["Ada <ada@example.com>", "Zoe <zoe@example.com>"], ["Zoe <zoe@example.com>"]),
        (EMAIL, [{"to": "ada@example.com"}, {"to": EMAIL}], [{"to": EMAIL}]),
        (EMAIL, {"from": "hi@acme.test", "to": "ada@example.com"}, {"from": "hi@acme.test", "to": HIDDEN}),
        (EMAIL, {"order": 12345678, "text": "Order 12345678"}, {"order": 12345678, "text": "Order 12345678"}),
        (PHONE, "+44 7700 900777, 447700900777, +447700900123", f"+44 7700 900777, 447700900777, {HIDDEN}"),
        (PHONE, None, None),
    ],
)
def test_nobody_else_is_shown(address: str, value: Any, shown: Any) -> None:
    assert forms_of(address, address).alone(value) == shown
