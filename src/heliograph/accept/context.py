"""Dependencies and state shared by all accepting endpoints."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from heliograph.carrier_failover import CarrierFailover
from heliograph.domain.limits import HOUR_MS
from heliograph.domain.sending.send_options import Timing
from heliograph.domain.setup.records import Caller
from heliograph.runtime.clock import Clock
from heliograph.storage.requests import RequestLog
from heliograph.storage.store import Store


class ProcessState(msgspec.Struct):
    """Mutable state of this process that is not stored in the database."""

    not_ready: bool = False  # shutdown announced: reports not ready, still answers every request
    draining: bool = False  # shutting down: rejects new requests
    # API key → number of its requests that are waiting for a message in the test inbox
    inbox_waits: Counter[str] = msgspec.field(default_factory=Counter)
    metrics_future: asyncio.Future[bytes] | None = None  # metrics collection in progress, shared by concurrent readers
    last_used: dict[str, int] = {}  # API key → time of its last request, until written to the database
    # Logged requests, until written to the database
    request_log: RequestLog = msgspec.field(default_factory=RequestLog)


class HostMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Host figures for the metrics; None if absent or unknown."""

    disk_free: Callable[[], int] = lambda: 0  # free bytes on the disk that holds attachments
    certificate_until: Callable[[], int | None] = lambda: None  # expiry of the SMTP submission certificate
    backup_at: Callable[[], int | None] = lambda: None  # time of the last backup


def _cannot_decrypt(_ciphertext: str, _context: str) -> bytes:
    raise ValueError("there is no key to decrypt with")


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the accepting endpoints in this process."""

    store: Store
    clock: Clock
    failover: CarrierFailover  # Verify sends through it inside the request
    base_url: str  # public URL of the service
    code_key: bytes  # HMAC key of the code digests, stored outside the database
    reply_key: bytes = b""  # signs Reply-To addresses of mails with `replies`, and links to attachments
    # (ciphertext, context) → plaintext; raises ValueError if decryption fails
    decrypt: Callable[[str, str], bytes] = _cannot_decrypt
    # API key used for the well-known test token of a foreign API (POSTMARK_API_TEST); empty if disabled
    test_token: bytes = b""
    # (API key, hash of Idempotency-Key) → fingerprint of the request in progress
    running_requests: dict[tuple[str, str], str] = {}
    process: int | None = None  # number of this process among the children of one parent
    build_info: Mapping[str, str] = {}  # version, Python version and database kind, for the metrics
    host_metrics: HostMetrics = HostMetrics()
    is_worker: bool = False  # delivers messages; answers only health checks
    metrics_allow: tuple[str, ...] = ()  # IP ranges besides loopback that may read the metrics
    mcp: bool = False  # serve the MCP endpoint
    metrics_token: str = ""  # bearer token that also permits reading the metrics; empty if disabled
    state: ProcessState = msgspec.field(default_factory=ProcessState)


def initial_status(context: Context, timing: Timing, now: int) -> str:
    """Return the status in the response: "queued" if scheduled for later or the platform is paused, else "sending"."""
    is_queued = (timing.due_at or 0) > now or context.store.setup.current.platform.paused
    return "queued" if is_queued else "sending"


def approval_deadline(caller: Caller, timing: Timing, now: int) -> int | None:
    """Return when a message of this caller fails unless a person releases it; None if it needs no approval."""
    if caller.key.restrictions is None or caller.key.restrictions.approval is None:
        return None
    deadline = now + caller.team.record.approval_hours * HOUR_MS
    return deadline if timing.expires_at is None else min(deadline, timing.expires_at)
