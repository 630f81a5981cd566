"""What a mail provider is to a relay: the fields that it gives back, and its callbacks, verified and read."""

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Iterable

import msgspec

from heliograph.channels.carrier import Callback
from heliograph.channels.email.providers.told import FIELD, ProviderEvent
from heliograph.channels.web import Web
from heliograph.rules.limits import MINUTE_MS, SECOND_MS
from heliograph.rules.text import whole_number

WINDOW_MS = 5 * MINUTE_MS  # how far a callback's own time may be off


class CallbackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What callbacks are verified with; which of them a provider needs is its own affair."""

    secret: str = ""
    key: str = ""
    topic: str = ""
    cert: str = ""


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

    @abstractmethod
    async def is_genuine(self, callback: Callback) -> bool:
        """Tell whether the provider sent it."""

    @abstractmethod
    def read(self, body: bytes) -> Iterable[ProviderEvent]:
        """Return what it tells; nothing of what we do not know or need. Whatever the body is, it does not raise."""

    def replay_id(self, callback: Callback) -> str:
        """Return what is the same when the same callback comes again; empty when nothing is."""
        return ""

    async def greet(self, callback: Callback) -> bool | None:
        """Confirm the address if a genuine callback asks for it; return whether we did, None when it does not ask."""
        return None


def is_fresh(seconds: object, now: int) -> bool:
    number = whole_number(str(seconds), 11)
    return number is not None and abs(now - number * SECOND_MS) <= WINDOW_MS


def decoded(text: str) -> bytes:
    """Decode base64; empty when it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
