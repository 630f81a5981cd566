"""Secrets in the setup: the encryption interface, and encrypted options of a carrier."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec


class Vault(Protocol):
    """Encrypts and decrypts secrets, each bound to a context (authenticated encryption).

    A ciphertext can be decrypted only with the context for which it was encrypted, such as `dkim/dom_acme/h1`.
    """

    def encrypt(self, plain: bytes, context: str) -> str: ...

    def decrypt(self, ciphertext: str, context: str) -> bytes:
        """Decrypt `ciphertext`; raise ValueError if the text was encrypted with another key or for another context."""


Encrypt = Callable[[bytes, str], str]  # (plaintext, field) → ciphertext
Decrypt = Callable[[str, str], bytes]


def decrypt_options(options: Mapping[str, Any], decrypt: Decrypt) -> dict[str, Any]:
    return {
        name: msgspec.json.decode(decrypt(value["sealed"], name)) if is_encrypted(value) else value
        for name, value in options.items()
    }


def is_encrypted(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["sealed"]
