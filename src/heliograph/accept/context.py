"""Dependencies and state shared by all accepting endpoints."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from heliograph.carrier_failover import Handover
from heliograph.domain.sending.send_options import Timing
from heliograph.runtime.clock import Clock
from heliograph.storage.requests import RequestLog
from heliograph.storage.store import Store


class State(msgspec.Struct):
    """Mutable state of the process."""

    leaving: bool = False  # shutdown announced: reports not ready, still answers every request
    draining: bool = False  # shutting down: rejects new requests
    # API key → number of requests that wait for the test inbox
    waits: Counter[str] = msgspec.field(default_factory=Counter)
    measuring: asyncio.Future[bytes] | None = None  # metrics collection in progress, shared by concurrent readers
    used: dict[str, int] = {}  # API key → time of its last request, until written to the database
    requests: RequestLog = msgspec.field(default_factory=RequestLog)  # logged requests, until written to the database


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Host figures for the metrics; None if absent or unknown."""

    disk_free: Callable[[], int] = lambda: 0  # free bytes on the disk that holds attachments
    certificate_until: Callable[[], int | None] = lambda: None  # expiry of the SMTP submission certificate
    backup_at: Callable[[], int | None] = lambda: None  # time of the last backup


def _unseal(_sealed: str, _context: str) -> bytes:
    raise ValueError("nothing can be opened here")


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the accepting endpoints in this process."""

    store: Store
    clock: Clock
    handover: Handover  # carrier failover; Verify sends through it inside the request
    base_url: str  # public URL of the service
    code_key: bytes  # HMAC key of the code digests, stored outside the database
    reply_key: bytes = b""  # signs Reply-To addresses of mails with `replies`, and links to attachments
    # (ciphertext, context) → plaintext; ValueError if it cannot be decrypted
    unseal: Callable[[str, str], bytes] = _unseal
    # API key used for the well-known test token of a foreign API (POSTMARK_API_TEST); empty if disabled
    test_token: bytes = b""
    # (API key, hash of Idempotency-Key) → fingerprint of the request in progress
    running: dict[tuple[str, str], str] = {}
    process: int | None = None  # number of this process among the children of one parent
    about: Mapping[str, str] = {}  # version, Python version and database kind, for the metrics
    machine: Machine = Machine()
    is_worker: bool = False  # delivers messages; answers only health checks
    metrics_allow: tuple[str, ...] = ()  # IP ranges besides loopback that may read the metrics
    metrics_token: str = ""  # bearer token that also permits reading the metrics; empty if disabled
    state: State = msgspec.field(default_factory=State)


def first_status(context: Context, timing: Timing, now: int) -> str:
    """Return the status in the response: "queued" if scheduled for later or the platform is paused, else "sending"."""
    waits = (timing.due_at or 0) > now or context.store.setup.current.platform.paused
    return "queued" if waits else "sending"
