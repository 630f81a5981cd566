"""Base class of mail providers: adds our message id to mails, and verifies and parses callbacks."""

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from heliograph.carriers.contract import Callback
from heliograph.carriers.email.providers.event import TRACKING_FIELD, ProviderEvent
from heliograph.carriers.http_client import CarrierHttp
from heliograph.domain.limits import CALLBACK_ID_RETENTION_MS, DAY_MS, MINUTE_MS, SECOND_MS
from heliograph.domain.text import parse_int

CLOCK_SKEW_MAX_MS = 5 * MINUTE_MS  # maximum difference between a callback's timestamp and our clock
# Maximum age of a signature: during this time, the stored id of the callback detects a replay
SIGNATURE_AGE_MAX_MS = CALLBACK_ID_RETENTION_MS - DAY_MS

RunFunction = Callable[..., Awaitable[Any]]  # runs a function, in a thread if the callback is large


class CallbackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for verifying callbacks; each provider uses some of them."""

    secret: str = ""
    key: str = ""
    topic: str = ""
    cert: str = ""


class VerifiedCallback(msgspec.Struct, frozen=True, kw_only=True):
    """A callback that was authenticated, with its payload."""

    payload: Any  # the decoded body
    replay_id: str = ""  # identifies repeated deliveries of the callback; empty if the provider has no such id


class MailProvider(ABC):
    """A mail provider whose SMTP relay we use and whose callbacks we receive."""

    name: str

    def __init__(self, options: CallbackOptions, http: CarrierHttp) -> None:
        self.options = options

    @property
    def can_verify_callbacks(self) -> bool:
        """Return whether the credentials for verifying callbacks are configured."""
        return bool(self.options.secret)

    def tracking_headers(self, message_id: str) -> dict[str, str]:
        """Return header fields that carry our message id, which the provider returns with each event."""
        return {TRACKING_FIELD: message_id}

    async def authenticate(self, callback: Callback, run: RunFunction) -> VerifiedCallback | None:
        """Authenticate a callback; None if the provider did not send the callback."""
        verified: VerifiedCallback | None = await run(self.verify, callback)
        return verified

    def verify(self, callback: Callback) -> VerifiedCallback | None:
        """Verify the callback's signature or credentials; None if they are invalid."""
        raise NotImplementedError

    @abstractmethod
    def parse_events(self, payload: Any) -> Iterable[ProviderEvent]:
        """Yield the relevant events of a callback; unknown ones are skipped. Must not raise for any payload."""

    async def confirm_subscription(self, payload: Any) -> bool | None:
        """Confirm the callback URL if the authenticated callback requests it.

        Returns whether the confirmation succeeded; None if none was requested.
        """
        return None


def is_fresh(seconds: object, now: int) -> bool:
    """Return whether a Unix timestamp differs from `now` by at most CLOCK_SKEW_MAX_MS."""
    number = parse_int(str(seconds), 11)
    return number is not None and abs(now - number * SECOND_MS) <= CLOCK_SKEW_MAX_MS


def is_replay_detectable(seconds: object, now: int) -> bool:
    """Return whether a signature with this Unix timestamp is recent enough to detect its replay by the stored id."""
    number = parse_int(str(seconds), 11)
    return number is not None and -CLOCK_SKEW_MAX_MS <= now - number * SECOND_MS <= SIGNATURE_AGE_MAX_MS


def decode_base64(text: str) -> bytes:
    """Decode base64 text; empty if the text is invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
