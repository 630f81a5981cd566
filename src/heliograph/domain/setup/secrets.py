"""Secrets in the setup: who seals them, and how a carrier's record keeps its own."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec


class Vault(Protocol):
    """Seals a secret for one context, and opens it for the same."""

    def seal(self, plain: bytes, context: str) -> str: ...

    def open(self, sealed: str, context: str) -> bytes:
        """Open a sealed text, or raise ValueError when it was sealed with another key or for another context."""


Seal = Callable[[bytes, str], str]  # plain, field → sealed
Open = Callable[[str, str], bytes]


def opened(options: Mapping[str, Any], open_: Open) -> dict[str, Any]:
    return {
        name: msgspec.json.decode(open_(value["sealed"], name)) if is_sealed(value) else value
        for name, value in options.items()
    }


def is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["sealed"]
