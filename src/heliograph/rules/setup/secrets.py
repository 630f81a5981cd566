"""Secrets in the setup: who seals them, which options of a carrier are secret, and how a record keeps those."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

FIELDS = frozenset(
    {
        *("password", "auth_token", "signing_key", "access_token", "app_secret", "verify_token", "callback_secret"),
        *("url", "headers", "body"),  # of the generic HTTP carrier: any of them may hold a provider's key
    }
)


class Vault(Protocol):
    """Seals a secret for one context, and opens it for the same."""

    def seal(self, plain: bytes, context: str) -> str: ...

    def open(self, sealed: str, context: str) -> bytes:
        """ValueError when it was sealed with another key or for another context."""


Seal = Callable[[bytes, str], str]  # plain, field → sealed
Open = Callable[[str, str], bytes]


def sealed(options: Mapping[str, Any], seal: Seal) -> dict[str, Any]:
    """Each secret as `{"sealed": "…"}`."""
    return {
        name: {"sealed": seal(msgspec.json.encode(value), name)} if name in FIELDS else value
        for name, value in options.items()
    }


def opened(options: Mapping[str, Any], open_: Open) -> dict[str, Any]:
    return {
        name: msgspec.json.decode(open_(value["sealed"], name)) if is_sealed(value) else value
        for name, value in options.items()
    }


def is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["sealed"]
