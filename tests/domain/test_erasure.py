"""Erasure of an address: the hash that remains, and finding the address in texts."""

from typing import Any

import pytest

from heliograph.domain.mail.address import parse_address
from heliograph.domain.operations.erasure import (
    HIDDEN_ADDRESS,
    address_variants,
    erased_entry,
    is_erased,
    placeholder,
    short_hash,
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
def test_erased_address_is_redacted_but_not_inside_longer_ones(address: str, text: str, scrubbed: str | None) -> None:
    forms = address_variants(address, address)
    assert forms.occurs_in(text) is (scrubbed is not None)
    assert forms.redact_text(text) == (scrubbed or text)


def test_erased_address_is_redacted_in_other_spellings() -> None:
    forms = address_variants("jörg@xn--mnchen-3ya.example", "Jörg@münchen.example")
    for text in ("JÖRG@xn--mnchen-3ya.example", "jörg@MÜNCHEN.example"):
        assert forms.occurs_in(text)
        assert any(needle in text.lower() for (needle,) in forms.search_terms())


def test_erased_address_hash_is_keyed_per_team() -> None:
    name = erased_entry(b"key", 1, EMAIL)
    assert name == erased_entry(b"key", 1, EMAIL)
    assert (
        len({name, erased_entry(b"other", 1, EMAIL), erased_entry(b"key", 2, EMAIL), erased_entry(b"key", 1, "a@b.c")})
        == 4
    )
    assert short_hash(name) == name[7:19]
    address = parse_address(name)
    assert address is not None and address.normal == name  # lists use it as the cursor


def test_erased_address_gets_a_placeholder() -> None:
    assert [placeholder(EMAIL, at) for at in (None, 0, 1)] == [
        *("erased@erased.invalid", "erased-1@erased.invalid", "erased-2@erased.invalid"),
    ]
    assert placeholder(PHONE, 0) == "[erased]"
    assert all(
        map(is_erased, (placeholder(EMAIL), placeholder(EMAIL, 0), placeholder(PHONE), erased_entry(b"", 1, EMAIL)))
    )
    assert not any(map(is_erased, (EMAIL, PHONE, "erased@example.com")))


@pytest.mark.parametrize(
    ("address", "value", "shown"),
    [
        (EMAIL, "Zoe@example.com and ada@example.com.", f"Zoe@example.com and {HIDDEN_ADDRESS}."),
        (EMAIL, "?a=ada%40example.com&z=zoe%40example.com", f"?a={HIDDEN_ADDRESS}&z=zoe%40example.com"),
        (EMAIL, "xzoe@example.com, call +44 7700 900123", f"{HIDDEN_ADDRESS}, call {HIDDEN_ADDRESS}"),
        (EMAIL, ["Ada <ada@example.com>", "Zoe <zoe@example.com>"], ["Zoe <zoe@example.com>"]),
        (EMAIL, [{"to": "ada@example.com"}, {"to": EMAIL}], [{"to": EMAIL}]),
        (EMAIL, {"from": "hi@acme.test", "to": "ada@example.com"}, {"from": "hi@acme.test", "to": HIDDEN_ADDRESS}),
        (EMAIL, {"order": 12345678, "text": "Order 12345678"}, {"order": 12345678, "text": "Order 12345678"}),
        (PHONE, "+44 7700 900777, 447700900777, +447700900123", f"+44 7700 900777, 447700900777, {HIDDEN_ADDRESS}"),
        (PHONE, None, None),
    ],
)
def test_exported_data_shows_no_other_recipient(address: str, value: Any, shown: Any) -> None:
    assert address_variants(address, address).only_own_data(value) == shown
