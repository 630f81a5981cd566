"""What a sending endpoint hands to the store: the message as far as memory can decide it, and the last decision.

The store looks up what only it knows (suppressions, the account, the day's marketing), asks `decide` while it
holds the account, and writes all or nothing. So the channel's last rules stay with the channel.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any, Generic, TypeVar

import msgspec

from heliograph.domain.audit.actor import AuditEntry
from heliograph.domain.phones.opt_out import OptOutReason
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending.pricing import Account
from heliograph.domain.sending.send_options import AT_ONCE, Added, Timing
from heliograph.domain.setup.records import Channel

R = TypeVar("R")

CAUGHT = 2  # as `sandbox` of messages and codes is kept: 0 live, 1 in the sandbox, 2 caught there


class Found(msgspec.Struct, frozen=True):
    """What the store knows at the moment of the decision."""

    suppressed: Set[str]  # of the addresses in `watch`, the suppressed ones
    account: Account  # running totals; `decide` takes quota and credit from it
    marketing: Sequence[int]  # times of the recipient's MARKETING messages of the last day, oldest first
    opted_out: OptOutReason | None = None  # why the phone that it is for is listed by the team for this channel


class AcceptedRecipient(msgspec.Struct, frozen=True):
    address: str  # in its normal form
    given: str  # as the caller wrote it
    kind: str  # to, cc, bcc


class Decision(msgspec.Struct, frozen=True):
    """What is written: the answer to the caller and who gets the message."""

    response: bytes  # the record, as JSON
    recipients: Sequence[AcceptedRecipient]
    record: Any = None  # what the caller is told of it
    price: int = 0  # held now, captured when a carrier accepts


class IdempotencyKey(msgspec.Struct, frozen=True):
    """The Idempotency-Key of a request: hash of the key, fingerprint of path and body."""

    hash: str
    fingerprint: str


class Sent(msgspec.Struct, Generic[R], frozen=True):
    """What a request made. Of one that comes again only the first answer is left, as it was."""

    id: str
    record: R | None  # None: it comes again
    body: bytes  # the record, as JSON, which the Idempotency-Key remembers
    replayed: bool = False

    @property
    def made(self) -> R:
        """Return the record of a request that had no key."""
        assert self.record is not None, "only a request with a key comes again"
        return self.record


class SharedText(msgspec.Struct, frozen=True):
    """What many messages of a batch have in common, stored once for them."""

    digest: bytes
    body: bytes  # members of a JSON object, without its braces


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    team: int
    channel: Channel
    lane: str
    status: str
    sandbox: bool
    caught: bool = False  # only simulators get it, whoever it is for
    key_id: str
    created_at: int
    content: bytes  # what is handed over, as JSON, but for what is shared
    shared: SharedText | None = None
    decide: Callable[[Found], Decision]
    template_id: str | None = None
    template_version: int | None = None
    country: str | None = None
    watch: Sequence[str] = ()  # addresses to look up on the suppression list
    phone: str | None = None  # to look up among those that opted out of this channel
    credit_low: int = 0  # tell when credit falls below; 0 = never
    marketing_to: str | None = None  # count this recipient's MARKETING messages
    blobs: Sequence[str] = ()  # hashes of attachment files
    file_octets: int = 0  # of them together
    octets_most: int = 0  # what the team may store in a day; 0: as much as it likes
    retry_key: IdempotencyKey | None = None
    audit: AuditEntry | None = None  # of a send by a person
    timing: Timing = AT_ONCE
    added: Added = Added()
    batch: str | None = None  # public id of the batch that it came in
    trace: str | None = None  # the traceparent of its request
    callback: str | None = None  # where its own events are told, in place of the team's endpoint

    @property
    def octets(self) -> int:
        """Count the octets of its content."""
        return len(self.content) + (len(self.shared.body) if self.shared else 0)

    def kept(self, response: bytes) -> str:
        """Return the record that the caller is answered and what they added to it, in one object."""
        added = msgspec.json.encode(self.added)
        return (response if added == b"{}" else response[:-1] + b"," + added[1:]).decode()


class BatchAcceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Sends that are decided in their order and written together; a refused one's refusal stands in its place."""

    id: str
    team: int
    key_id: str
    created_at: int
    sends: Sequence[Acceptance | Refusal]
    strict: bool  # the first refusal refuses all
    respond: Callable[[Sequence[Sent[Any] | Refusal]], bytes]  # what became of each → the answer
    retry_key: IdempotencyKey | None = None
