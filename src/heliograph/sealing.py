"""Secrets at rest: sealed in the database with a key that is not in the database.

A sealed text is `v1.` and the base64url of nonce, ciphertext and tag (ChaCha20-Poly1305). The context names what the
secret belongs to, such as `dkim/dom_acme/h1`: a text copied to another row cannot be opened there.
"""

import base64
import binascii
import secrets

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

VERSION = "v1."
NONCE_BYTES = 12  # random: safe for 2^32 secrets with one key, far more than a setup has


log = structlog.get_logger()


class CannotOpen(ValueError):
    """A sealed text is damaged, belongs elsewhere, or was sealed with another key (the service's secret changed)."""


class Sealer:
    def __init__(self, key: bytes) -> None:
        """`key`: 32 bytes for this purpose alone."""
        self._cipher = ChaCha20Poly1305(key)
        self._logged: set[str] = set()  # contexts in the log already: some are opened for every message

    def seal(self, plain: bytes, context: str) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return VERSION + _text(nonce + self._cipher.encrypt(nonce, plain, _bound(context)))

    def open(self, sealed: str, context: str) -> bytes:
        box = _box(sealed)
        try:
            return self._cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], _bound(context))
        except (InvalidTag, ValueError):  # ValueError: too short even for the nonce
            if context not in self._logged:
                self._logged.add(context)
                log.error("a sealed secret cannot be opened: was the service's secret changed?", context=context)
            raise CannotOpen(f"{context}: damaged, copied from elsewhere, or sealed with another key") from None


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
