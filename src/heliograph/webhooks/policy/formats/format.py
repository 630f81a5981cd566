"""Definition of an event format: supported event types, request body and signature."""

from collections.abc import Callable, Collection

import msgspec

from heliograph.domain.events import StoredEvent
from heliograph.domain.setup.records import Team
from heliograph.webhooks.policy.signature import SignatureInput, service_header

JSON = "application/json"


class WebhookFormat(msgspec.Struct, frozen=True, kw_only=True):
    # Event types that can be subscribed to; others are only sent as tests, or if queued before a format change
    types: Collection[str]
    body: Callable[[StoredEvent, Team], bytes]  # must return the same bytes for every attempt
    sign: Callable[[SignatureInput], dict[str, str]]  # returns headers in addition to X-Service-Signature
    content_type: str = JSON
    event_name: Callable[[str, str | None], str] = lambda type_, _: type_  # (our type, failure reason) → event name
    unreported_reasons: Collection[str] = ()  # failure reasons that are reported only if subscribed to by event name
    opt_in_types: Collection[str] = ()  # event types that `*` does not include
    uses_key_pair: bool = False  # signs with a key pair
    supports_callbacks: bool = False  # messages may have their own callback URL

    def headers(self, signing: SignatureInput) -> dict[str, str]:
        return {"Content-Type": self.content_type, **service_header(signing), **self.sign(signing)}
