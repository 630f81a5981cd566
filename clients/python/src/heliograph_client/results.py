"""Results of calls. They are immutable, and contain all fields of the response, even those unknown to this version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from heliograph_client.errors import ApiError, to_error

if TYPE_CHECKING:
    from heliograph_client.events import WebhookEvent


class Result:
    """A JSON object; its fields are attributes (`from` is `from_`), and `raw` is the decoded object."""

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
    recipients: list[dict[str, Any]]  # only in results of `get`
    events: list[dict[str, Any]]  # only in results of `get`


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
    """The message that a send would create, and its price."""

    price: str
    sandbox: bool


class SentBatch(Result):
    id: str
    data: list[dict[str, Any]]

    @property
    def ids(self) -> list[str | None]:
        """Return the messages' ids, in the order of the request; None for refused messages."""
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
    """An event of the feed or of a webhook. Store its `id` to continue the feed after it."""

    id: str
    type: str
    created_at: str
    team_id: str
    sandbox: bool
    sequence: int
    data: dict[str, Any]

    @property
    def typed(self) -> WebhookEvent:
        """Return the JSON, typed so that type checkers derive the type of `data` from `type`."""
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
