"""What is answered: frozen, with everything the service said, also what this version does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from heliograph_client.errors import ApiError, to_error

if TYPE_CHECKING:
    from heliograph_client.events import WebhookEvent


class Result:
    """Fields are attributes (`from` is `from_`); `raw` is the JSON as received."""

    __slots__ = ("raw",)
    raw: Mapping[str, Any]

    def __init__(self, raw: Mapping[str, Any]) -> None:
        object.__setattr__(self, "raw", raw)

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "raw")[name.removesuffix("_")]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw.get("id"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"

    def __reduce__(self) -> Any:
        return type(self), (self.raw,)


class Message(Result):
    """An SMS or WhatsApp message."""

    id: str
    to: str
    status: str
    sandbox: bool
    created_at: str
    tags: dict[str, str]
    metadata: dict[str, Any]
    scheduled_at: str | None
    recipients: list[dict[str, Any]]  # read by `get`
    events: list[dict[str, Any]]  # read by `get`


class Email(Message):
    to_addresses: list[str]
    cc: list[str]
    bcc: list[str]
    reply_to: str | None
    from_: str
    subject: str
    recipient_count: int
    attachments_count: int


class Preview(Result):
    """What a send would do, and cost."""

    price: str
    sandbox: bool


class SentBatch(Result):
    id: str
    data: list[dict[str, Any]]

    @property
    def ids(self) -> list[str | None]:
        """Of the messages, in the order given; None where one was refused."""
        return [entry.get("id") for entry in self.data]

    @property
    def errors(self) -> dict[int, ApiError]:
        return {i: to_error(entry["error"]) for i, entry in enumerate(self.data) if "error" in entry}


class Batch(Result):
    id: str
    total: int
    counts: dict[str, int]


class Verification(Result):
    id: str
    channel: str
    to: str
    status: str
    sandbox: bool
    expires_at: str
    error_message: str | None


class Check(Result):
    status: str
    remaining_attempts: int


class Event(Result):
    """Of the feed or of a webhook; keep its `id` to go on from there."""

    id: str
    type: str
    created_at: str
    team_id: str
    sandbox: bool
    sequence: int
    data: dict[str, Any]

    @property
    def typed(self) -> WebhookEvent:
        """The JSON, of the type that its `type` tells type checkers."""
        return cast("WebhookEvent", self.raw)


class InboxMessage(Result):
    id: str
    channel: str
    to: list[str]
    from_: str | None
    subject: str | None
    text: str | None
    html: str | None
    code: str | None
    links: list[str]
    created_at: str
