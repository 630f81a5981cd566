"""Definition of an event format: supported event types, request body and signature."""

from collections.abc import Callable, Collection

import msgspec

from heliograph.domain.events import StoredEvent
from heliograph.domain.setup.records import Team
from heliograph.webhooks.policy.signature import Signing, service_header

JSON = "application/json"


class Format(msgspec.Struct, frozen=True, kw_only=True):
    types: Collection[str]  # supported event types of ours; others only as tests or if queued before a format change
    body: Callable[[StoredEvent, Team], bytes]  # deterministic: the same bytes for every attempt
    sign: Callable[[Signing], dict[str, str]]  # headers that this format adds to X-Service-Signature
    content_type: str = JSON
    name: Callable[[str, str | None], str] = lambda type_, _: type_  # our type, failure reason → event name
    hushed: Collection[str] = ()  # failure reasons that are no failure in this format: sent only if subscribed by name
    by_name: Collection[str] = ()  # types that the other service posts elsewhere: sent only if subscribed by name
    has_keys: bool = False  # signs with a key pair
    callbacks: bool = False  # messages may have their own callback URL

    def headers(self, signing: Signing) -> dict[str, str]:
        return {"Content-Type": self.content_type, **service_header(signing), **self.sign(signing)}
