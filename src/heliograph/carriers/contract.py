"""The interface between delivery and the carriers: one call, three possible outcomes."""

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
# Large callbacks that are read or wait to be read at once. None of them is verified yet.
LARGE_OF_CARRIER, LARGE_OF_CLIENT = 32, 8


class Barred(Exception):
    """A message must not be handed over any more."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.detail.get("reason"))
        self.refusal = refusal


class Passage:
    """What a carrier tells and asks on a message's way out."""

    def waited(self, seconds: float) -> None:
        """Note a wait for a connection, or whatever else the carrier has few of."""

    async def admit(self) -> None:
        """Let it pass when the connection is there, before the first octet, or raise Barred."""


FREE = Passage()


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One message for one recipient, ready to be handed over."""

    message_id: str
    position: int = 0  # of the recipient in its message
    address: str  # normal form of an email address, or E.164
    given: str = ""  # the email address as the caller wrote it
    content: bytes  # the channel's record of domain/delivery/content.py, as JSON
    attempt: int  # outcomes recorded before this one
    country: str | None = None
    uncertain: bool = False  # an earlier hand-over to this carrier may have gone through
    left_s: int | None = None  # until it expires
    priority: records.Priority = "normal"
    passage: Passage = FREE

    @property
    def mailbox(self) -> str:
        """Return the email address for an envelope: local part as given, domain in A-labels."""
        return (self.given or self.address).rpartition("@")[0] + "@" + self.address.rpartition("@")[2]


def left_s(expires_at: int, now: int) -> int:
    return max(1, -(-(expires_at - now) // SECOND_MS))


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a carrier's callback address; nothing in it is trusted yet."""

    method: str  # GET or POST
    url: str  # the public address with the query: what signatures cover
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    now: int  # ms
    client: str = ""  # address of the client

    @property
    def is_large(self) -> bool:
        """Return whether its body is larger than usual, or may be once it is unpacked."""
        return len(self.body) > CALLBACK_USUAL or self.body.startswith(GZIP)


class CallbackTooLarge(Exception):
    """A callback has more values or events than any provider sends."""


class CallbackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a callback reported, and how to answer it."""

    status: int = 200
    body: bytes = b""
    content_type: bytes = b"text/plain; charset=utf-8"
    reports: Sequence[CarrierReport] = ()
    texts: Sequence[IncomingText] = ()
    told: Sequence[ProviderReport] = ()  # by a mail provider
    templates: Sequence[UpstreamNews] = ()
    replay_id: str = ""  # the same when the same callback comes again, which then changes nothing


class Carrier(ABC):
    _large: asyncio.Lock | None = None  # held while a large callback is read

    @abstractmethod
    async def hand_over(self, parcel: Parcel) -> Outcome:
        """Try once. A temporary failure is Deferred; so is an exception."""

    def open(self) -> None:  # noqa: B027
        """Open early what reports arrive on, for carriers with a standing connection."""

    def read_callback(self, callback: Callback) -> CallbackAnswer | None:
        """Verify and read it; None when this carrier takes no callbacks, or has no secret to verify them with."""
        return None

    async def hear(self, callback: Callback) -> CallbackAnswer | None:
        """Verify and read a callback with its body, in a thread if that is large."""
        return await self.run_for(callback, self.read_callback, callback)

    async def run_for(self, callback: Callback, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on a callback: in a thread if its body is large, one at a time for each carrier."""
        if not callback.is_large:
            return work(*args, **kwargs)
        if self._large is None:
            self._large = asyncio.Lock()
        async with self._large:
            return await asyncio.to_thread(work, *args, **kwargs)

    async def close(self) -> None:  # noqa: B027
        """Close its connections."""


class NotReady(Exception):
    """A message cannot be handed over now, for a reason other than the carrier; the text says which."""


class Unusable(Carrier):
    """Replaces a carrier that cannot be built: it defers everything, so the next carrier is asked."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def hand_over(self, parcel: Parcel) -> Outcome:
        return Deferred(detail=own("out_of_reach", self._why), unreachable=True)


class Carriers:
    """The live carriers, built when first needed and rebuilt when their settings change."""

    def __init__(self, make: Callable[[records.CarrierRecord], Carrier]) -> None:
        self._make = make
        self._live: dict[str, tuple[records.CarrierRecord, Carrier]] = {}
        self._kept: set[str] = set()
        self._large: Counter[tuple[str, str]] = Counter()  # large callbacks by ("carrier", id) and ("client", address)

    @contextmanager
    def admit_large(self, carrier: str, client: str) -> Iterator[bool]:
        """Count a large callback; yields False if the carrier or the client has too many already."""
        counted = ("carrier", carrier), ("client", client)
        is_admitted = self._large[counted[0]] < LARGE_OF_CARRIER and self._large[counted[1]] < LARGE_OF_CLIENT
        self._large.update(counted if is_admitted else ())
        try:
            yield is_admitted
        finally:
            self._large.subtract(counted if is_admitted else ())
            self._large += Counter()  # drops zeros

    async def get(self, record: records.CarrierRecord) -> Carrier:
        if replaced := self._renew(record):
            await replaced.close()
        return self._live[record.id][1]

    def _renew(self, record: records.CarrierRecord) -> Carrier | None:
        """Build the carrier if it is new or its settings changed; return the one that it replaces."""
        known = self._live.get(record.id)
        if known is not None and (known[0] is record or known[0] == record):
            return None
        self._live[record.id] = (record, self._make(record))
        return known[1] if known else None

    def wrong_with(self, record: records.CarrierRecord) -> str:
        """Return why it cannot be made from these settings; empty when it can."""
        try:
            self._make(record)
        except (ValueError, msgspec.ValidationError) as error:
            return str(error)
        return ""

    async def keep(self, records: Iterable[records.CarrierRecord]) -> None:
        """Open the carriers that are set up and close those that no longer are.

        All are replaced before anything is awaited: meanwhile the setup may change, and `records` be out of date.
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
