"""Encryption of secrets at rest, with a key that is not in the database.

A ciphertext is `v1.` and the base64url of nonce, ciphertext and tag (ChaCha20-Poly1305). The context, such as
`dkim/dom_acme/h1`, names the owner of the secret: a text copied to another row cannot be decrypted there.

During a rotation of the master secret there are several keys: the first encrypts, all decrypt (ADR 0038).
"""

import base64
import binascii
import secrets
from collections.abc import Callable, Sequence

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

VERSION = "v1."
NONCE_BYTES = 12  # random: safe for 2^32 secrets per key, far more than a setup has

log = structlog.get_logger()


class DecryptionError(ValueError):
    """Raised if a ciphertext is damaged, belongs to another context, or was encrypted with another master secret."""


class Cipher:
    """Encrypts and decrypts secrets with ChaCha20-Poly1305, bound to a context."""

    def __init__(self, *keys: bytes, find_keys: Callable[[], Sequence[bytes]] | None = None) -> None:
        """`keys`: 32 bytes each, for this use only. `find_keys`: returns all current keys; called if none decrypts."""
        self._find_keys = find_keys
        self.use_keys(*keys)

    def use_keys(self, *keys: bytes) -> None:
        """Replace the keys: the first encrypts, all decrypt."""
        self._keys = keys
        self._ciphers = [ChaCha20Poly1305(key) for key in keys]
        self._logged: set[str] = set()  # contexts whose failure was logged; some are decrypted for every message

    def encrypt(self, plaintext: bytes, context: str) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return VERSION + _to_base64(nonce + self._ciphers[0].encrypt(nonce, plaintext, _associated_data(context)))

    def decrypt(self, encrypted: str, context: str) -> bytes:
        raw = _from_text(encrypted)
        plaintext = self._decrypt_with_keys(raw, context)
        if (
            plaintext is None
            and self._find_keys
            and context not in self._logged
            and (keys := tuple(self._find_keys())) != self._keys
        ):
            self.use_keys(*keys)
            plaintext = self._decrypt_with_keys(raw, context)
        if plaintext is None:
            if context not in self._logged:
                self._logged.add(context)
                log.error("secret cannot be decrypted: was the master secret changed?", context=context)
            raise DecryptionError(f"{context}: damaged, copied from another record, or encrypted with another key")
        return plaintext

    def key_index(self, encrypted: str, context: str) -> int | None:
        """Return the index of the key that decrypts the text, or None if no key does."""
        try:
            raw = _from_text(encrypted)
        except DecryptionError:
            return None
        indexes = range(len(self._ciphers))
        return next((index for index in indexes if self._decrypt_with_keys(raw, context, index) is not None), None)

    def _decrypt_with_keys(self, raw: bytes, context: str, only_key: int | None = None) -> bytes | None:
        for cipher in self._ciphers if only_key is None else self._ciphers[only_key : only_key + 1]:
            try:
                return cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], _associated_data(context))
            except (InvalidTag, ValueError):  # ValueError if shorter than the nonce
                continue
        return None


def _associated_data(context: str) -> bytes:
    return f"{VERSION}{context}".encode()


def _to_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _from_text(encrypted: str) -> bytes:
    if not encrypted.startswith(VERSION):
        raise DecryptionError(f"unknown encryption format: it does not start with {VERSION}")
    text = encrypted.removeprefix(VERSION)
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise DecryptionError("not base64url") from None
    if _to_base64(raw) != text:  # the decoder skips invalid characters and ignores the last bits
        raise DecryptionError("not base64url")
    return raw
