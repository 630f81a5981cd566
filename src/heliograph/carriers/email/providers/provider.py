"""What a mail provider is to a relay: the fields that it gives back, and its callbacks, verified and read."""

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import FIELD, ProviderEvent
from heliograph.carriers.http_client import Web
from heliograph.domain.limits import CALLBACK_ID_KEPT_MS, DAY_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.text import whole_number

WINDOW_MS = 5 * MINUTE_MS  # how far a callback's own time may be off
SIGNED_MAX_MS = CALLBACK_ID_KEPT_MS - DAY_MS  # age of a signature whose callback is known by its id

Run = Callable[..., Awaitable[Any]]  # runs a function on a callback, in a thread if that is large


class CallbackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What callbacks are verified with; which of them a provider needs is its own affair."""

    secret: str = ""
    key: str = ""
    topic: str = ""
    cert: str = ""


class Genuine(msgspec.Struct, frozen=True, kw_only=True):
    """A callback whose signature is valid."""

    payload: Any  # the decoded body
    replay_id: str = ""  # the same when the same callback comes again; empty if there is nothing of the kind


class MailProvider(ABC):
    name: str

    def __init__(self, options: CallbackOptions, web: Web) -> None:
        self.options = options

    @property
    def hears(self) -> bool:
        """Tell whether it has what its callbacks are verified with."""
        return bool(self.options.secret)

    def along(self, message_id: str) -> dict[str, str]:
        """Return the header fields that it gives back with each event."""
        return {FIELD: message_id}

    async def authenticate(self, callback: Callback, run: Run) -> Genuine | None:
        """Return the callback if the provider sent it, else None."""
        genuine: Genuine | None = await run(self.verify, callback)
        return genuine

    def verify(self, callback: Callback) -> Genuine | None:
        """Return the callback if its signature is valid, else None."""
        raise NotImplementedError

    @abstractmethod
    def read(self, payload: Any) -> Iterable[ProviderEvent]:
        """Yield the events that we know and need. Does not raise, whatever the payload is."""

    async def greet(self, payload: Any) -> bool | None:
        """Confirm the address if a genuine callback asks for it; return whether we did, None when it does not ask."""
        return None


def is_fresh(seconds: object, now: int) -> bool:
    number = whole_number(str(seconds), 11)
    return number is not None and abs(now - number * SECOND_MS) <= WINDOW_MS


def is_remembered(seconds: object, now: int) -> bool:
    """Return whether a callback of this time that came before is still known by its id."""
    number = whole_number(str(seconds), 11)
    return number is not None and -WINDOW_MS <= now - number * SECOND_MS <= SIGNED_MAX_MS


def decoded(text: str) -> bytes:
    """Decode base64; empty when it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
