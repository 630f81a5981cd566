"""Secrets in the setup: the encryption interface, and encrypted options of a carrier."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec


class Vault(Protocol):
    """Encrypts a secret for one context and decrypts it for the same context."""

    def seal(self, plain: bytes, context: str) -> str: ...

    def open(self, sealed: str, context: str) -> bytes:
        """Decrypt `sealed`; raise ValueError if the text was encrypted with another key or for another context."""


Seal = Callable[[bytes, str], str]  # (plaintext, field) → ciphertext
Open = Callable[[str, str], bytes]


def opened(options: Mapping[str, Any], open_: Open) -> dict[str, Any]:
    return {
        name: msgspec.json.decode(open_(value["sealed"], name)) if is_sealed(value) else value
        for name, value in options.items()
    }


def is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["sealed"]
