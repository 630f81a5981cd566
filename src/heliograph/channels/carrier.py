"""The seam between delivery and the carriers: one call, three possible outcomes."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from heliograph.rules import team
from heliograph.rules.outcome import Outcome


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One message for one recipient, ready to be handed over."""

    message_id: str
    position: int = 0  # of the recipient in its message
    address: str  # normal form of an email address, or E.164
    given: str = ""  # the email address as the caller wrote it
    content: bytes  # the channel's record of rules/content.py, as JSON
    attempt: int  # outcomes recorded before this one
    country: str | None = None

    @property
    def mailbox(self) -> str:
        """The email address for an envelope: local part as given, domain in A-labels."""
        return (self.given or self.address).rpartition("@")[0] + "@" + self.address.rpartition("@")[2]


class Carrier(Protocol):
    async def hand_over(self, parcel: Parcel) -> Outcome:
        """Try once. A failure that may pass is Deferred; an exception counts as Deferred too."""

    async def close(self) -> None: ...


class Carriers:
    """The live carriers, made when first asked for and made anew when their settings change."""

    def __init__(self, make: Callable[[team.Carrier], Carrier]) -> None:
        self._make = make
        self._live: dict[str, tuple[team.Carrier, Carrier]] = {}

    async def get(self, record: team.Carrier) -> Carrier:
        known = self._live.get(record.id)
        if known is None or known[0] != record:
            self._live[record.id] = (record, self._make(record))
            if known is not None:
                await known[1].close()
        return self._live[record.id][1]

    async def close(self) -> None:
        for _, carrier in self._live.values():
            await carrier.close()
        self._live.clear()
