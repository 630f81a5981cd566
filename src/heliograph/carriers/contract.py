"""The interface between delivery and carriers: `hand_over` sends one message and returns one of three outcomes."""

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
    own,
)
from heliograph.domain.limits import CALLBACK_USUAL, SECOND_MS
from heliograph.domain.setup import records
from heliograph.templates.policy.meta_status import UpstreamNews

P = ParamSpec("P")
T = TypeVar("T")

GZIP = b"\x1f\x8b"
# Maximum number of large, still unverified callbacks in progress or queued, per carrier and per client address.
LARGE_OF_CARRIER, LARGE_OF_CLIENT = 32, 8


class Barred(Exception):
    """Raised by `Passage.admit` if a message must no longer be sent; `refusal` is the outcome to record."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.detail.get("reason"))
        self.refusal = refusal


class Passage:
    """Callbacks that a carrier calls while it sends a message. The methods here do nothing."""

    def waited(self, seconds: float) -> None:
        """Record how long the message waited for a connection or another limited resource of the carrier."""

    async def admit(self) -> None:
        """Check that the message may still be sent, or raise Barred. Called once connected, before the first byte."""


FREE = Passage()


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One message for one recipient, ready to send."""

    message_id: str
    position: int = 0  # index of the recipient in the message
    address: str  # normal form of an email address, or E.164
    given: str = ""  # the email address as the caller wrote it
    content: bytes  # JSON of the channel's content struct from domain/delivery/content.py
    attempt: int  # number of outcomes recorded before this attempt
    country: str | None = None
    uncertain: bool = False  # an earlier attempt with this carrier may have succeeded
    left_s: int | None = None  # seconds until the message expires
    priority: records.Priority = "normal"
    passage: Passage = FREE

    @property
    def mailbox(self) -> str:
        """Return the envelope address: the local part as the caller wrote it, the domain in A-labels."""
        return (self.given or self.address).rpartition("@")[0] + "@" + self.address.rpartition("@")[2]


def left_s(expires_at: int, now: int) -> int:
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
        """Return whether the body exceeds CALLBACK_USUAL or is gzipped, so that it may exceed the limit unpacked."""
        return len(self.body) > CALLBACK_USUAL or self.body.startswith(GZIP)


class CallbackTooLarge(Exception):
    """Raised for a callback with more values or events than any provider sends."""


class CallbackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed contents of a callback, and the HTTP response to send."""

    status: int = 200
    body: bytes = b""
    content_type: bytes = b"text/plain; charset=utf-8"
    reports: Sequence[CarrierReport] = ()
    texts: Sequence[IncomingText] = ()
    told: Sequence[ProviderReport] = ()  # events reported by a mail provider
    templates: Sequence[UpstreamNews] = ()
    replay_id: str = ""  # identifies the callback, so that a repeated delivery has no effect


class Carrier(ABC):
    """Sends messages through one external system, and parses its callbacks."""

    _large: asyncio.Lock | None = None  # held while a large callback is parsed

    @abstractmethod
    async def hand_over(self, parcel: Parcel) -> Outcome:
        """Attempt to send the message once. Callers treat an exception as Deferred, a temporary failure."""

    def open(self) -> None:  # noqa: B027
        """Connect before the first message, for carriers that receive reports on a persistent connection."""

    def read_callback(self, callback: Callback) -> CallbackAnswer | None:
        """Verify and parse a callback. None if this carrier has no callbacks, or no secret to verify them with."""
        return None

    async def hear(self, callback: Callback) -> CallbackAnswer | None:
        """Verify and parse a callback; a large one is processed in a thread."""
        return await self.run_for(callback, self.read_callback, callback)

    async def run_for(self, callback: Callback, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` and return its result. For a large callback, run in a thread, one at a time per carrier."""
        if not callback.is_large:
            return work(*args, **kwargs)
        if self._large is None:
            self._large = asyncio.Lock()
        async with self._large:
            return await asyncio.to_thread(work, *args, **kwargs)

    async def close(self) -> None:  # noqa: B027
        """Close all connections of the carrier."""


class NotReady(Exception):
    """Raised if a message cannot be sent now for a reason other than the carrier; the text states the reason."""


class Unusable(Carrier):
    """Placeholder for a carrier with invalid settings; defers every message, so that the next carrier is tried."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def hand_over(self, parcel: Parcel) -> Outcome:
        return Deferred(detail=own("out_of_reach", self._why), unreachable=True)


class Carriers:
    """Cache of carrier instances, built on first use and rebuilt when their settings change."""

    def __init__(self, make: Callable[[records.CarrierRecord], Carrier]) -> None:
        self._make = make
        self._live: dict[str, tuple[records.CarrierRecord, Carrier]] = {}
        self._kept: set[str] = set()
        self._large: Counter[tuple[str, str]] = Counter()  # large callbacks by ("carrier", id) and ("client", address)

    @contextmanager
    def admit_large(self, carrier: str, client: str) -> Iterator[bool]:
        """Count a large callback while the context is open; yield False if the carrier or client is at its limit."""
        counted = ("carrier", carrier), ("client", client)
        is_admitted = self._large[counted[0]] < LARGE_OF_CARRIER and self._large[counted[1]] < LARGE_OF_CLIENT
        self._large.update(counted if is_admitted else ())
        try:
            yield is_admitted
        finally:
            self._large.subtract(counted if is_admitted else ())
            self._large += Counter()  # removes zero counts

    async def get(self, record: records.CarrierRecord) -> Carrier:
        """Return the carrier for these settings; build it, and close its predecessor, if the settings changed."""
        if replaced := self._renew(record):
            await replaced.close()
        return self._live[record.id][1]

    def _renew(self, record: records.CarrierRecord) -> Carrier | None:
        """Build the carrier if it is new or its settings changed; return the replaced instance, or None."""
        known = self._live.get(record.id)
        if known is not None and (known[0] is record or known[0] == record):
            return None
        self._live[record.id] = (record, self._make(record))
        return known[1] if known else None

    def wrong_with(self, record: records.CarrierRecord) -> str:
        """Return why no carrier can be built from these settings; empty if one can."""
        try:
            self._make(record)
        except (ValueError, msgspec.ValidationError) as error:
            return str(error)
        return ""

    async def keep(self, records: Iterable[records.CarrierRecord]) -> None:
        """Open all enabled carriers, and close those that were removed or disabled.

        All instances are replaced before the first await, because `records` may be outdated after an await.
        """
        wanted = {record.id: record for record in records if record.enabled}
        ended = [self._live.pop(id_)[1] for id_ in self._kept - wanted.keys()]
        self._kept = set(wanted)
        for record in wanted.values():
            if replaced := self._renew(record):
                ended.append(replaced)
            self._live[record.id][1].open()
        for carrier in ended:
            await carrier.close()

    async def close(self) -> None:
        for _, carrier in self._live.values():
            await carrier.close()
        self._live.clear()
