"""Base class of mail providers: adds our message id to mails, and verifies and parses callbacks."""

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

WINDOW_MS = 5 * MINUTE_MS  # maximum difference between a callback's timestamp and our clock
SIGNED_MAX_MS = CALLBACK_ID_KEPT_MS - DAY_MS  # maximum age of a signature whose replay is detected by its stored id

Run = Callable[..., Awaitable[Any]]  # runs a function, in a thread if the callback is large


class CallbackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for verifying callbacks; each provider uses some of them."""

    secret: str = ""
    key: str = ""
    topic: str = ""
    cert: str = ""


class Genuine(msgspec.Struct, frozen=True, kw_only=True):
    """A callback that was authenticated."""

    payload: Any  # the decoded body
    replay_id: str = ""  # identifies repeated deliveries of the callback; empty if the provider has no such id


class MailProvider(ABC):
    """A mail provider whose SMTP relay we use and whose callbacks we receive."""

    name: str

    def __init__(self, options: CallbackOptions, web: Web) -> None:
        self.options = options

    @property
    def hears(self) -> bool:
        """Return whether the credentials for verifying callbacks are configured."""
        return bool(self.options.secret)

    def along(self, message_id: str) -> dict[str, str]:
        """Return header fields that carry our message id, which the provider returns with each event."""
        return {FIELD: message_id}

    async def authenticate(self, callback: Callback, run: Run) -> Genuine | None:
        """Authenticate a callback; None if the provider did not send it."""
        genuine: Genuine | None = await run(self.verify, callback)
        return genuine

    def verify(self, callback: Callback) -> Genuine | None:
        """Verify the callback's signature or credentials; None if invalid."""
        raise NotImplementedError

    @abstractmethod
    def read(self, payload: Any) -> Iterable[ProviderEvent]:
        """Yield the relevant events; unknown ones are skipped. Must not raise for any payload."""

    async def greet(self, payload: Any) -> bool | None:
        """Confirm the callback URL if the authenticated callback requests it.

        Return whether the confirmation succeeded; None if none was requested.
        """
        return None


def is_fresh(seconds: object, now: int) -> bool:
    """Return whether a Unix timestamp is within WINDOW_MS of now."""
    number = whole_number(str(seconds), 11)
    return number is not None and abs(now - number * SECOND_MS) <= WINDOW_MS


def is_remembered(seconds: object, now: int) -> bool:
    """Return whether a Unix timestamp is recent enough that a replay would be detected by its stored id."""
    number = whole_number(str(seconds), 11)
    return number is not None and -WINDOW_MS <= now - number * SECOND_MS <= SIGNED_MAX_MS


def decoded(text: str) -> bytes:
    """Decode base64; empty if invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
