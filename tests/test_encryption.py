"""What is sealed opens again with the same key in the same place, and nowhere else."""

import pytest

from heliograph.encryption import CannotOpen, Sealer

KEY = bytes(range(32))
CONTEXT = "dkim/dom_acme/h1"


@pytest.mark.parametrize("plain", [b"", b"x", "grün".encode(), bytes(range(256)) * 8])
def test_what_is_sealed_opens(plain: bytes) -> None:
    sealed = Sealer(KEY).seal(plain, CONTEXT)
    assert sealed.startswith("v1.") and sealed.isascii()
    assert Sealer(KEY).open(sealed, CONTEXT) == plain


def test_sealing_twice_shows_nothing_in_common() -> None:
    sealer = Sealer(KEY)
    one, two = (sealer.seal(b"hunter2", CONTEXT) for _ in range(2))
    assert one != two and "hunter2" not in one and one[3:19] != two[3:19]


def test_the_wrong_key_or_place_opens_nothing() -> None:
    sealed = Sealer(KEY).seal(b"hunter2", CONTEXT)
    with pytest.raises(CannotOpen):
        Sealer(bytes(32)).open(sealed, CONTEXT)
    with pytest.raises(CannotOpen, match="dkim/dom_other/h1"):
        Sealer(KEY).open(sealed, "dkim/dom_other/h1")


def test_every_changed_character_is_noticed() -> None:
    sealer = Sealer(KEY)
    for plain in (b"four", b"fives", b"sixsix"):  # each number of unused bits in the last character
        sealed = sealer.seal(plain, CONTEXT)
        for place, letter in enumerate(sealed):
            for other in "Aa_=\n é":
                if other != letter:
                    with pytest.raises(CannotOpen):
                        sealer.open(sealed[:place] + other + sealed[place + 1 :], CONTEXT)
        last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        for other in last.replace(sealed[-1], ""):
            with pytest.raises(CannotOpen):
                sealer.open(sealed[:-1] + other, CONTEXT)


@pytest.mark.parametrize("cut", ["", "v1.", "v2.AAAA", "v1.A", "v1.AAAA", "v1." + "A" * 16, "plain text", "v1.\ud800"])
def test_what_was_never_sealed_does_not_open(cut: str) -> None:
    with pytest.raises(CannotOpen):
        Sealer(KEY).open(cut, CONTEXT)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Sealer(b"short")
