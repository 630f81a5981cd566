"""Signed envelope senders: which changes on the way back they survive, and which invalidate them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.domain.mail.verp import DAYS_VALID, POSITION_MAX, parse_return_path, sign_return_path

KEY = b"k" * 32
ID = "eml_01HZX3V7Q9K2M4N6P8R0S2T4V6"
DAY_MS = 86_400_000
NOW = 1_800_000_000_000
ADDRESS = sign_return_path(KEY, ID, 7, "bounce.example.com", NOW)


def test_return_path_names_its_recipient() -> None:
    local, _, domain = ADDRESS.partition("@")
    assert parse_return_path(KEY, ADDRESS, NOW) == (ID, 7)
    assert domain == "bounce.example.com"
    assert len(local) <= 64 and set(local) <= set(string.ascii_lowercase + string.digits)


def test_return_path_with_a_changed_character_is_refused() -> None:
    for at, was in enumerate(ADDRESS):
        for char in string.printable + "\u212a\u017f\u0131é\0":  # two of these become ASCII letters in lower case
            if char.lower() != was or not char.isascii():
                assert parse_return_path(KEY, ADDRESS[:at] + char + ADDRESS[at + 1 :], NOW) is None, (at, char)


def test_return_path_with_a_lost_doubled_or_swapped_character_is_refused() -> None:
    for at in range(len(ADDRESS)):
        changed = [
            ADDRESS[:at] + ADDRESS[at + 1 :],
            ADDRESS[:at] + ADDRESS[at] + ADDRESS[at:],
            ADDRESS[:at] + ADDRESS[at : at + 2][::-1] + ADDRESS[at + 2 :],
        ]
        assert all(parse_return_path(KEY, text, NOW) is None for text in changed if text != ADDRESS), at


@given(st.lists(st.booleans(), min_size=len(ADDRESS), max_size=len(ADDRESS)))
def test_return_path_is_case_insensitive(upper: list[bool]) -> None:
    mixed = "".join(char.upper() if up else char for char, up in zip(ADDRESS, upper, strict=True))
    assert parse_return_path(KEY, mixed, NOW) == (ID, 7)


@pytest.mark.parametrize(
    ("later_days", "valid"), [(-1, True), (0, True), (DAYS_VALID, True), (DAYS_VALID + 1, False), (400, False)]
)
def test_return_path_expires(later_days: int, valid: bool) -> None:
    assert (parse_return_path(KEY, ADDRESS, NOW + later_days * DAY_MS) is not None) is valid


@pytest.mark.parametrize("text", ["", "@", "postmaster@bounce.example.com", ADDRESS.partition("@")[0], f"<{ADDRESS}>"])
def test_foreign_address_is_no_return_path(text: str) -> None:
    assert parse_return_path(KEY, text, NOW) is None


def test_return_path_of_another_key_or_domain_is_refused() -> None:
    assert parse_return_path(b"j" * 32, ADDRESS, NOW) is None
    assert parse_return_path(KEY, ADDRESS.replace("bounce.example.com", "bounce.example.org"), NOW) is None


@given(st.text())
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    assert parse_return_path(KEY, text, NOW) is None


@pytest.mark.parametrize(
    ("message_id", "position"),
    [("sms_" + ID[4:], 0), (ID[4:], 0), (ID + "0", 0), (ID[:-1] + "u", 0), (ID, -1), (ID, POSITION_MAX + 1)],
)
def test_return_path_is_made_for_emails_only(message_id: str, position: int) -> None:
    with pytest.raises(ValueError, match="no email and recipient"):
        sign_return_path(KEY, message_id, position, "bounce.example.com", NOW)
