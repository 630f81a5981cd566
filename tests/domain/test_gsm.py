"""Segments of an SMS, with the gsm0338 package as judge of the alphabet."""

from itertools import pairwise

import gsm0338  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.phones.gsm import ALPHABET, EXTENSION, marked, outside, plain, segment

JUDGE = gsm0338.Codec()


def judged_units(char: str) -> int | None:
    try:
        return len(JUDGE.encode(char)[0])
    except UnicodeEncodeError:
        return None


def test_alphabet_is_the_judges() -> None:
    for char in map(chr, range(0x2FFF)):
        if char == "\x1b":  # the escape itself is no character
            continue
        found = segment(char)
        assert (found.units if found.encoding == "gsm7" else None) == judged_units(char), hex(ord(char))


def test_alphabet_has_no_repeats() -> None:
    assert len(set(ALPHABET + EXTENSION)) == 127 + 10


@pytest.mark.parametrize(
    ("text", "encoding", "units", "spec", "udh"),
    [
        ("", "gsm7", 0, 1, 1),
        ("a" * 160, "gsm7", 160, 1, 1),
        ("a" * 161, "gsm7", 161, 2, 2),
        ("a" * 306, "gsm7", 306, 2, 2),
        ("a" * 307, "gsm7", 307, 2, 3),
        ("a" * 320, "gsm7", 320, 2, 3),
        ("a" * 321, "gsm7", 321, 3, 3),
        ("€" * 80, "gsm7", 160, 1, 1),
        ("€" * 81, "gsm7", 162, 2, 2),
        ("a" * 152 + "€" + "a" * 152, "gsm7", 306, 2, 3),  # the pair does not fit the first part's last unit
        ("€" * 153, "gsm7", 306, 2, 3),  # 76 in a part
        ("ж" * 70, "ucs2", 70, 1, 1),
        ("ж" * 71, "ucs2", 71, 2, 2),
        ("ж" * 134, "ucs2", 134, 2, 2),
        ("ж" * 135, "ucs2", 135, 2, 3),
        ("ж" * 140, "ucs2", 140, 2, 3),
        ("ж" * 141, "ucs2", 141, 3, 3),
        ("😀" * 35, "ucs2", 70, 1, 1),
        ("😀" * 36, "ucs2", 72, 2, 2),
        ("😀" * 67, "ucs2", 134, 2, 3),  # 33 in a part
        ("a" * 69 + "ç", "ucs2", 70, 1, 1),  # Ç is in the alphabet, ç is not
        ("{" * 69 + "ж", "ucs2", 70, 1, 1),  # in UCS-2 an extension character is one unit
    ],
)
def test_segments(text: str, encoding: str, units: int, spec: int, udh: int) -> None:
    found = segment(text)
    assert (found.encoding, found.units, found.spec, found.udh) == (encoding, units, spec, udh)
    assert (found.billed("spec"), found.billed("udh")) == (spec, udh)


@settings(max_examples=60)
@given(st.text(max_size=400))
def test_units_are_the_encoded_length(text: str) -> None:
    found = segment(text)
    expected = len(text) if found.encoding == "gsm7" else len(text.encode("utf-16-be", "surrogatepass")) // 2
    assert found.units >= expected if found.encoding == "gsm7" else found.units == expected
    assert 1 <= found.spec <= found.udh


@given(st.text())
def test_what_makes_it_ucs2_is_marked_and_named(text: str) -> None:
    pieces = marked(text)
    assert "".join(piece for piece, _ in pieces) == text
    assert all(one[1] != next_[1] for one, next_ in pairwise(pieces)), "runs stay whole"
    assert any(is_outside for _, is_outside in pieces) == (segment(text).encoding == "ucs2") == bool(outside(text))
    assert segment("".join(piece for piece, is_outside in pieces if not is_outside)).encoding == "gsm7"


def test_a_characters_name_and_its_plainer_form() -> None:
    assert outside("“a” 🙂“\ue000") == [
        ("“", "left double quotation mark"),
        ("”", "right double quotation mark"),
        ("🙂", "slightly smiling face"),
        ("\ue000", "u+e000"),
    ]
    assert plain("“It’s” – 5\u00a0€…") == '"It\'s" - 5 €...'
    assert plain(ALPHABET + EXTENSION) == ALPHABET + EXTENSION
