"""Which options of a carrier are secrets, and how they stand in its record: sealed, as `{"sealed": "…"}`."""

from collections.abc import Callable, Mapping
from typing import Any

FIELDS = frozenset({"password", "auth_token", "access_token", "app_secret", "verify_token", "callback_secret"})

Turn = Callable[[Any, str], Any]  # value, field → the other form


def sealed(options: Mapping[str, Any], seal: Turn) -> dict[str, Any]:
    return {name: {"sealed": seal(value, name)} if name in FIELDS else value for name, value in options.items()}


def opened(options: Mapping[str, Any], open_: Turn) -> dict[str, Any]:
    return {
        name: open_(value["sealed"], name).decode() if _is_sealed(value) else value for name, value in options.items()
    }


def _is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["sealed"]
