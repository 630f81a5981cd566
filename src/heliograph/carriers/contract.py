"""The interface between delivery and carriers: `send_message` sends a message and returns one of three outcomes.

The outcomes are Accepted, Refused and Deferred.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import msgspec

from heliograph.domain.delivery.outcome import (
    CarrierReport,
    Deferred,
    IncomingText,
    Outcome,
    ProviderReport,
    Refused,
    local_failure,
)
from heliograph.domain.limits import CALLBACK_INLINE_MAX, SECOND_MS
from heliograph.domain.setup import records
from heliograph.domain.setup.source_options import DEFAULT_POOL
from heliograph.templates.policy.meta_status import UpstreamUpdate

P = ParamSpec("P")
T = TypeVar("T")

GZIP_MAGIC = b"\x1f\x8b"
# Maximum number of large, unverified callbacks in progress or queued, per carrier and per client address.
LARGE_CALLBACKS_PER_CARRIER, LARGE_CALLBACKS_PER_CLIENT = 32, 8


class SendCancelled(Exception):
    """Raised by `SendHooks.before_send` if a message must no longer be sent; `refusal` is the outcome to record."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.detail.get("reason"))
        self.refusal = refusal


class SendHooks:
    """Callbacks that a carrier calls while it sends a message. This base class does nothing."""

    def on_queued(self, seconds: float) -> None:
        """Record how long the message waited for a connection or another limited resource of the carrier."""

    async def before_send(self) -> None:
        """Raise SendCancelled if the message must not be sent any more. Called just before the first byte is sent."""


NO_HOOKS = SendHooks()


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message for one recipient, ready to send."""

    message_id: str
    position: int = 0  # index of the recipient in the message
    address: str  # normal form of an email address, or E.164
    original_address: str = ""  # the email address as the caller wrote it
    content: bytes  # JSON of the channel's content struct from domain/delivery/content.py
    attempt: int  # number of outcomes recorded before this attempt; 0 for the first
    country: str | None = None
    uncertain: bool = False  # an earlier attempt with this carrier may have succeeded
    seconds_left: int | None = None  # seconds until the message expires
    priority: records.Priority = "normal"
    pool: str = DEFAULT_POOL  # pool of source addresses
    was_held: bool = False  # the message was held before for an internal reason, such as a rate limit
    hooks: SendHooks = NO_HOOKS

    @property
    def envelope_address(self) -> str:
        """Return the envelope address: the local part as the caller wrote it, the domain in A-labels."""
        return (self.original_address or self.address).rpartition("@")[0] + "@" + self.address.rpartition("@")[2]


def seconds_until(expires_at: int, now: int) -> int:
    """Return the seconds until `expires_at`, rounded up and at least 1."""
    return max(1, -(-(expires_at - now) // SECOND_MS))


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """An unverified HTTP request to a carrier's callback URL."""

    method: str  # GET or POST
    url: str  # public URL including the query string, as covered by signatures
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    now: int  # Unix time in ms
    client: str = ""  # IP address of the client

    @property
    def is_large(self) -> bool:
        """Return whether the body exceeds CALLBACK_INLINE_MAX, or may exceed it once decompressed."""
        return len(self.body) > CALLBACK_INLINE_MAX or self.body.startswith(GZIP_MAGIC)


class CallbackTooLarge(Exception):
    """Raised for a callback that has more values or events than any provider sends."""


class CallbackResult(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed contents of a callback, and the HTTP response to it."""

    status: int = 200
    body: bytes = b""
    content_type: bytes = b"text/plain; charset=utf-8"
    reports: Sequence[CarrierReport] = ()
    incoming_texts: Sequence[IncomingText] = ()
    provider_reports: Sequence[ProviderReport] = ()  # events reported by a mail provider
    template_updates: Sequence[UpstreamUpdate] = ()
    replay_id: str = ""  # identifies the callback, so that a repeated delivery has no effect


class Carrier(ABC):
    """Sends messages through one external system, and parses its callbacks."""

    _large_callback_lock: asyncio.Lock | None = None  # held while a large callback is parsed

    @abstractmethod
    async def send_message(self, message: OutboundMessage) -> Outcome:
        """Attempt to send the message once. Callers treat an exception as Deferred, a temporary failure."""

    def open(self) -> None:  # noqa: B027
        """Connect before the first message, for carriers that receive reports on a persistent connection."""

    def parse_callback(self, callback: Callback) -> CallbackResult | None:
        """Verify and parse a callback; None if the carrier has no callbacks, or no secret with which to verify them."""
        return None

    async def parse_callback_async(self, callback: Callback) -> CallbackResult | None:
        """Verify and parse a callback; a large one is processed in a thread."""
        return await self.run_in_thread_if_large(callback, self.parse_callback, callback)

    async def run_in_thread_if_large(
        self, callback: Callback, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `function`; in a thread if the carrier's HTTP callback is large, one such call at a time per carrier."""
        if not callback.is_large:
            return function(*args, **kwargs)
        if self._large_callback_lock is None:
            self._large_callback_lock = asyncio.Lock()
        async with self._large_callback_lock:
            return await asyncio.to_thread(function, *args, **kwargs)

    async def close(self) -> None:  # noqa: B027
        """Close all connections of the carrier."""


class NotReady(Exception):
    """Raised if a message cannot be sent now although the carrier works; the text states the reason."""


class InvalidCarrier(Carrier):
    """Placeholder for a carrier with invalid settings; defers every message, so that the next carrier is tried."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def send_message(self, message: OutboundMessage) -> Outcome:
        return Deferred(detail=local_failure("out_of_reach", self._reason), unreachable=True)


class Carriers:
    """Cache of carrier instances, which are built on first use and rebuilt when their settings change."""

    def __init__(self, build: Callable[[records.CarrierRecord], Carrier]) -> None:
        self._build = build
        self._instances: dict[str, tuple[records.CarrierRecord, Carrier]] = {}
        self._open_ids: set[str] = set()
        # Large callbacks in progress, by ("carrier", id) and by ("client", address)
        self._large_callbacks: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def reserve_large_callback(self, carrier_id: str, client_address: str) -> Iterator[bool]:
        """Count a large callback while the context is open; yield False if the carrier or client is at its limit."""
        keys = ("carrier", carrier_id), ("client", client_address)
        is_admitted = (
            self._large_callbacks[keys[0]] < LARGE_CALLBACKS_PER_CARRIER
            and self._large_callbacks[keys[1]] < LARGE_CALLBACKS_PER_CLIENT
        )
        self._large_callbacks.update(keys if is_admitted else ())
        try:
            yield is_admitted
        finally:
            self._large_callbacks.subtract(keys if is_admitted else ())
            self._large_callbacks += Counter()  # removes zero counts

    async def get(self, record: records.CarrierRecord) -> Carrier:
        """Return the carrier for these settings; build it, and close its predecessor, if the settings changed."""
        if replaced := self._rebuild_if_changed(record):
            await replaced.close()
        return self._instances[record.id][1]

    def _rebuild_if_changed(self, record: records.CarrierRecord) -> Carrier | None:
        """Build the carrier if it is new or its settings changed. Return the instance that was replaced, or None."""
        cached_instance = self._instances.get(record.id)
        if cached_instance is not None and (cached_instance[0] is record or cached_instance[0] == record):
            return None
        try:
            carrier = self._build(record)
        except (ValueError, msgspec.ValidationError) as error:  # such as a certificate file that was removed
            carrier = InvalidCarrier(f"the carrier's settings are invalid: {error}")
        self._instances[record.id] = (record, carrier)
        return cached_instance[1] if cached_instance else None

    def settings_error(self, record: records.CarrierRecord) -> str:
        """Return why no carrier can be built from these settings; empty if a carrier can be built."""
        try:
            self._build(record)
        except (ValueError, msgspec.ValidationError) as error:
            return str(error)
        return ""

    async def sync(self, carrier_records: Iterable[records.CarrierRecord]) -> None:
        """Open all enabled carriers, close those that were removed or disabled, and try again to build invalid ones.

        All instances are replaced before the first await, because `carrier_records` may be outdated after an await.
        """
        enabled = {record.id: record for record in carrier_records if record.enabled}
        obsolete = [self._instances.pop(id_)[1] for id_ in self._open_ids - enabled.keys()]
        self._open_ids = set(enabled)
        for record in enabled.values():
            if record.id in self._instances and isinstance(self._instances[record.id][1], InvalidCarrier):
                del self._instances[record.id]  # build it again: a missing certificate file may exist now
            if replaced := self._rebuild_if_changed(record):
                obsolete.append(replaced)
            self._instances[record.id][1].open()
        for carrier in obsolete:
            await carrier.close()

    async def close(self) -> None:
        for _, carrier in self._instances.values():
            await carrier.close()
        self._instances.clear()
