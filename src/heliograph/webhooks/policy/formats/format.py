"""How one service tells its events: which it has a word for, the body of one, and what signs it."""

from collections.abc import Callable, Collection

import msgspec

from heliograph.domain.events import StoredEvent
from heliograph.domain.setup.records import Team
from heliograph.webhooks.policy.signature import Signing, service_header

JSON = "application/json"


class Format(msgspec.Struct, frozen=True, kw_only=True):
    types: Collection[str]  # of ours; no other is told, but for tests and what waited while the format changed
    body: Callable[[StoredEvent, Team], bytes]  # the same bytes whenever it is asked for
    sign: Callable[[Signing], dict[str, str]]  # the headers that this format adds to X-Service-Signature
    content_type: str = JSON
    name: Callable[[str, str | None], str] = lambda type_, _: type_  # ours and why it failed → its own name
    hushed: Collection[str] = ()  # why something failed that is no failure there: told to whom asked by name only
    by_name: Collection[str] = ()  # which that service posts elsewhere: told to whom asked by name only
    has_keys: bool = False  # it signs with a pair of keys
    callbacks: bool = False  # a message may have an address of its own for its events

    def headers(self, signing: Signing) -> dict[str, str]:
        return {"Content-Type": self.content_type, **service_header(signing), **self.sign(signing)}
