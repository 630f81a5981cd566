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


class CannotOpen(ValueError):
    """The ciphertext is damaged, belongs to another context, or was encrypted with another master secret."""


class Sealer:
    """Encrypts and decrypts secrets with ChaCha20-Poly1305, bound to a context."""

    def __init__(self, *keys: bytes, look: Callable[[], Sequence[bytes]] | None = None) -> None:
        """`keys`: 32 bytes each, used for nothing else. `look`: returns all current keys, called if none decrypts."""
        self._look = look
        self.use(*keys)

    def use(self, *keys: bytes) -> None:
        """Replace the keys: the first encrypts, all decrypt."""
        self._keys = keys
        self._ciphers = [ChaCha20Poly1305(key) for key in keys]
        self._logged: set[str] = set()  # contexts already logged: some are decrypted for every message

    def seal(self, plain: bytes, context: str) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return VERSION + _text(nonce + self._ciphers[0].encrypt(nonce, plain, _bound(context)))

    def open(self, sealed: str, context: str) -> bytes:
        box = _box(sealed)
        plain = self._opened(box, context)
        if plain is None and self._look and context not in self._logged and (keys := tuple(self._look())) != self._keys:
            self.use(*keys)
            plain = self._opened(box, context)
        if plain is None:
            if context not in self._logged:
                self._logged.add(context)
                log.error("a sealed secret cannot be opened: was the service's secret changed?", context=context)
            raise CannotOpen(f"{context}: damaged, copied from elsewhere, or sealed with another key")
        return plain

    def key_of(self, sealed: str, context: str) -> int | None:
        """Return the index of the key that decrypts the text, or None if no key does."""
        try:
            box = _box(sealed)
        except CannotOpen:
            return None
        opens = (place for place in range(len(self._ciphers)) if self._opened(box, context, place) is not None)
        return next(opens, None)

    def _opened(self, box: bytes, context: str, only: int | None = None) -> bytes | None:
        for cipher in self._ciphers if only is None else self._ciphers[only : only + 1]:
            try:
                return cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], _bound(context))
            except (InvalidTag, ValueError):  # ValueError if shorter than the nonce
                continue
        return None


def _bound(context: str) -> bytes:
    return f"{VERSION}{context}".encode()


def _text(box: bytes) -> str:
    return base64.urlsafe_b64encode(box).rstrip(b"=").decode()


def _box(sealed: str) -> bytes:
    if not sealed.startswith(VERSION):
        raise CannotOpen(f"not sealed by this version: it does not start with {VERSION}")
    text = sealed.removeprefix(VERSION)
    try:
        box = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise CannotOpen("not base64url") from None
    if _text(box) != text:  # the decoder skips invalid characters and ignores the last bits
        raise CannotOpen("not base64url")
    return box
