"""A ciphertext can be decrypted only with the same key and for the same context."""

import pytest

from heliograph.encryption import Cipher, DecryptionError

KEY = bytes(range(32))
CONTEXT = "dkim/dom_acme/h1"


@pytest.mark.parametrize("plain", [b"", b"x", "grün".encode(), bytes(range(256)) * 8])
def test_encrypted_text_decrypts(plain: bytes) -> None:
    sealed = Cipher(KEY).encrypt(plain, CONTEXT)
    assert sealed.startswith("v1.") and sealed.isascii()
    assert Cipher(KEY).decrypt(sealed, CONTEXT) == plain


def test_encrypting_twice_gives_different_ciphertexts() -> None:
    sealer = Cipher(KEY)
    item, two = (sealer.encrypt(b"hunter2", CONTEXT) for _ in range(2))
    assert item != two and "hunter2" not in item and item[3:19] != two[3:19]


def test_decrypting_with_wrong_key_or_context_fails() -> None:
    sealed = Cipher(KEY).encrypt(b"hunter2", CONTEXT)
    with pytest.raises(DecryptionError):
        Cipher(bytes(32)).decrypt(sealed, CONTEXT)
    with pytest.raises(DecryptionError, match="dkim/dom_other/h1"):
        Cipher(KEY).decrypt(sealed, "dkim/dom_other/h1")


def test_decrypting_a_modified_ciphertext_fails() -> None:
    sealer = Cipher(KEY)
    for plain in (b"four", b"fives", b"sixsix"):  # each number of unused bits in the last character
        sealed = sealer.encrypt(plain, CONTEXT)
        for place, letter in enumerate(sealed):
            for other in "Aa_=\n é":
                if other != letter:
                    with pytest.raises(DecryptionError):
                        sealer.decrypt(sealed[:place] + other + sealed[place + 1 :], CONTEXT)
        last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        for other in last.replace(sealed[-1], ""):
            with pytest.raises(DecryptionError):
                sealer.decrypt(sealed[:-1] + other, CONTEXT)


@pytest.mark.parametrize("cut", ["", "v1.", "v2.AAAA", "v1.A", "v1.AAAA", "v1." + "A" * 16, "plain text", "v1.\ud800"])
def test_decrypting_text_that_was_never_encrypted_fails(cut: str) -> None:
    with pytest.raises(DecryptionError):
        Cipher(KEY).decrypt(cut, CONTEXT)


def test_cipher_key_of_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Cipher(b"short")
