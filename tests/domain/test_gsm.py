"""Segments of an SMS; the package gsm0338 verifies the alphabet."""

from itertools import pairwise

import gsm0338  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.phones.gsm import (
    ALPHABET,
    EXTENSION,
    count_segments,
    non_gsm_characters,
    replace_typography,
    split_by_alphabet,
)

JUDGE = gsm0338.Codec()


def judged_units(char: str) -> int | None:
    try:
        return len(JUDGE.encode(char)[0])
    except UnicodeEncodeError:
        return None


def test_gsm_alphabet_matches_the_reference_library() -> None:
    for char in map(chr, range(0x2FFF)):
        if char == "\x1b":  # the escape code is not a character
            continue
        result = count_segments(char)
        assert (result.units if result.encoding == "gsm7" else None) == judged_units(char), hex(ord(char))


def test_gsm_alphabet_has_no_duplicates() -> None:
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
        ("€" * 153, "gsm7", 306, 2, 3),  # 76 characters in a part
        ("ж" * 70, "ucs2", 70, 1, 1),
        ("ж" * 71, "ucs2", 71, 2, 2),
        ("ж" * 134, "ucs2", 134, 2, 2),
        ("ж" * 135, "ucs2", 135, 2, 3),
        ("ж" * 140, "ucs2", 140, 2, 3),
        ("ж" * 141, "ucs2", 141, 3, 3),
        ("😀" * 35, "ucs2", 70, 1, 1),
        ("😀" * 36, "ucs2", 72, 2, 2),
        ("😀" * 67, "ucs2", 134, 2, 3),  # 33 characters in a part
        ("a" * 69 + "ç", "ucs2", 70, 1, 1),  # Ç is in the alphabet, ç is not
        ("{" * 69 + "ж", "ucs2", 70, 1, 1),  # in UCS-2 an extension character is one unit
    ],
)
def test_sms_segments_are_counted(text: str, encoding: str, units: int, spec: int, udh: int) -> None:
    result = count_segments(text)
    assert (result.encoding, result.units, result.spec, result.udh) == (encoding, units, spec, udh)
    assert (result.billed("spec"), result.billed("udh")) == (spec, udh)


@settings(max_examples=60)
@given(st.text(max_size=400))
def test_units_are_the_encoded_length(text: str) -> None:
    result = count_segments(text)
    expected = len(text) if result.encoding == "gsm7" else len(text.encode("utf-16-be", "surrogatepass")) // 2
    assert result.units >= expected if result.encoding == "gsm7" else result.units == expected
    assert 1 <= result.spec <= result.udh


@given(st.text())
def test_sms_characters_outside_gsm7_are_marked(text: str) -> None:
    pieces = split_by_alphabet(text)
    assert "".join(piece for piece, _ in pieces) == text
    assert all(item[1] != next_[1] for item, next_ in pairwise(pieces)), "runs stay whole"
    assert (
        any(is_outside for _, is_outside in pieces)
        == (count_segments(text).encoding == "ucs2")
        == bool(non_gsm_characters(text))
    )
    assert count_segments("".join(piece for piece, is_outside in pieces if not is_outside)).encoding == "gsm7"


def test_non_gsm_character_has_its_name_and_replacement() -> None:
    assert non_gsm_characters("“a” 🙂“\ue000") == [
        ("“", "left double quotation mark"),
        ("”", "right double quotation mark"),
        ("🙂", "slightly smiling face"),
        ("\ue000", "u+e000"),
    ]
    assert replace_typography("“It’s” – 5\u00a0€…") == '"It\'s" - 5 €...'
    assert replace_typography(ALPHABET + EXTENSION) == ALPHABET + EXTENSION
