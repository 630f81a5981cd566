"""Input of the accept transaction: a message after all checks that need no database, and the final decision function.

The store looks up what only the database knows (suppressions, account, the last day's marketing messages), calls
`decide` while it holds the account lock, and writes everything or nothing. So the final rules of a channel stay in the
channel's module.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any, Generic, TypeVar

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.phones.opt_out import OptOutReason
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending.pricing import Account
from heliograph.domain.sending.send_options import IMMEDIATE, ExtraFields, Timing
from heliograph.domain.setup.records import Channel

R = TypeVar("R")

# Stored `sandbox` value of messages and codes: 0 live, 1 sandbox, 2 captured by a simulator even if the recipient is
# real.
CAPTURED = 2


class AcceptState(msgspec.Struct, frozen=True):
    """Database state at the moment of the decision."""

    suppressed: Set[str]  # the suppressed addresses among `Acceptance.suppression_addresses`
    account: Account  # running totals; `decide` deducts quota and credit
    marketing_times: Sequence[int]  # times of the recipient's MARKETING messages in the last day, oldest first
    unsubscribed: bool = False  # whether the recipient has unsubscribed from `Acceptance.category`
    opted_out: OptOutReason | None = None  # why the recipient's phone is on the team's opt-out list for this channel


class AcceptedRecipient(msgspec.Struct, frozen=True):
    address: str  # normalised
    original: str  # as written by the caller
    kind: str  # to, cc, bcc


class Decision(msgspec.Struct, frozen=True):
    """What the accept transaction writes: the response to the caller and the recipients."""

    response: bytes  # response body: the record as JSON
    recipients: Sequence[AcceptedRecipient]
    record: Any = None  # the record returned to the caller
    price: int = 0  # amount held now and captured when a carrier accepts the message


class IdempotencyKey(msgspec.Struct, frozen=True):
    """Idempotency-Key of a request: hash of the key, and fingerprint of path and body."""

    hash: str
    fingerprint: str


class SendResult(msgspec.Struct, Generic[R], frozen=True):
    """Result of a send request. For a replayed request, it has only the stored response."""

    id: str
    record: R | None  # None if replayed
    body: bytes  # the record as JSON, stored for the Idempotency-Key
    replayed: bool = False

    @property
    def new_record(self) -> R:
        """Return the record of a request without an Idempotency-Key."""
        assert self.record is not None, "only a request with an Idempotency-Key is replayed"
        return self.record


class SharedText(msgspec.Struct, frozen=True):
    """Content shared by many messages of a batch, stored once."""

    digest: bytes
    body: bytes  # the content as members of a JSON object, without its braces


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    channel: Channel
    lane: str
    status: str
    sandbox: bool
    captured: bool = False  # sent only to simulators, even for a real recipient
    key_id: str
    created_at: int
    content: bytes  # message content as JSON, without the shared part
    shared: SharedText | None = None
    decide: Callable[[AcceptState], Decision]
    template_id: str | None = None
    template_version: int | None = None
    country: str | None = None
    suppression_addresses: Sequence[str] = ()  # addresses to look up on the suppression list
    category: str | None = None  # category of an email, whose only recipient may have unsubscribed
    opt_out_phone: str | None = None  # phone number to look up among the opt-outs of this channel
    credit_low: int = 0  # `credit.low` is published when the credit falls below this amount; 0: never
    marketing_to: str | None = None  # recipient whose MARKETING messages are counted; None for other messages
    variables_bytes: int = 0  # bytes of the content that are the caller's variables
    blobs: Sequence[str] = ()  # hashes of attachment files
    file_bytes: int = 0  # total bytes of the attachment files
    daily_bytes_limit: int = 0  # bytes that the team may store per day; 0: unlimited
    idempotency_key: IdempotencyKey | None = None
    audit: AuditEntry | None = None  # audit entry of a send by a person
    timing: Timing = IMMEDIATE
    approval_expires_at: int | None = None  # when the message fails if nobody has released it; None: needs no approval
    extra_fields: ExtraFields = ExtraFields()
    batch: str | None = None  # public id of the batch that contains this message
    trace: str | None = None  # traceparent of the request
    callback: str | None = None  # URL that receives the events of this message, in place of the team's endpoint

    @property
    def content_bytes(self) -> int:
        """Return the size of the content in bytes."""
        return len(self.content) + (len(self.shared.body) if self.shared else 0)

    @property
    def rendered_bytes(self) -> int:
        """Return the size of the content in bytes without the variables, which are stored only to preview templates."""
        return self.content_bytes - self.variables_bytes

    def stored_record(self, response: bytes) -> str:
        """Return the record to store, as one JSON object: the record in the response together with `extra_fields`."""
        extra = msgspec.json.encode(self.extra_fields)
        return (response if extra == b"{}" else response[:-1] + b"," + extra[1:]).decode()


class BatchAcceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Sends that are decided in order and written together; in place of a refused send there is its Refusal."""

    id: str
    team: int
    key_id: str
    created_at: int
    sends: Sequence[Acceptance | Refusal]
    strict: bool  # the first refusal rejects the whole batch
    respond: Callable[[Sequence[SendResult[Any] | Refusal]], bytes]  # builds the response from the result of each send
    idempotency_key: IdempotencyKey | None = None
