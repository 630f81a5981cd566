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

    # Shutdown was announced: health checks report not ready, but every request is still answered
    not_ready: bool = False
    draining: bool = False  # shutting down: rejects new requests
    # API key → number of its requests that wait for a message to arrive in the test inbox
    inbox_waits: Counter[str] = msgspec.field(default_factory=Counter)
    metrics_future: asyncio.Future[bytes] | None = None  # metrics collection in progress, shared by concurrent readers
    last_used: dict[str, int] = {}  # API key → time of its last request; written to the database periodically
    # Logged requests, written to the database periodically
    request_log: RequestLog = msgspec.field(default_factory=RequestLog)


class HostMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of the host, shown as metrics.

    `certificate_until` and `backup_at` return None if the file that they read is missing or unreadable.
    """

    disk_free: Callable[[], int] = lambda: 0  # free bytes on the disk that holds attachments
    certificate_until: Callable[[], int | None] = lambda: None  # expiry of the SMTP submission certificate
    backup_at: Callable[[], int | None] = lambda: None  # time of the last backup


def _cannot_decrypt(_ciphertext: str, _context: str) -> bytes:
    raise ValueError("there is no key to decrypt with")


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the accepting endpoints in this process."""

    store: Store
    clock: Clock
    failover: CarrierFailover  # Verify uses it to send codes within the request
    base_url: str  # public URL of the service
    code_key: bytes  # HMAC key of the code digests, stored outside the database
    reply_key: bytes = b""  # signs links to attachments, and the Reply-To addresses of mails whose replies we receive
    # (ciphertext, context) → plaintext; raises ValueError if decryption fails
    decrypt: Callable[[str, str], bytes] = _cannot_decrypt
    # API key used for the public test token of Postmark's API (POSTMARK_API_TEST); empty if disabled
    test_token: bytes = b""
    # (API key, hash of Idempotency-Key) → fingerprint of the request in progress
    running_requests: dict[tuple[str, str], str] = {}
    process: int | None = None  # number of this process among several processes of one parent; None: a single process
    build_info: Mapping[str, str] = {}  # version, Python version and database kind, for the metrics
    host_metrics: HostMetrics = HostMetrics()
    is_worker: bool = False  # this process delivers messages, and answers only health checks
    metrics_allow: tuple[str, ...] = ()  # IP ranges besides loopback that may read the metrics
    mcp: bool = False  # serve the MCP endpoint
    metrics_token: str = ""  # bearer token that also permits reading the metrics; empty if disabled
    state: ProcessState = msgspec.field(default_factory=ProcessState)


def initial_status(context: Context, timing: Timing, now: int) -> str:
    """Return the status in the response: "queued" if scheduled or while the platform is paused, else "sending"."""
    is_queued = (timing.due_at or 0) > now or context.store.setup.current.platform.paused
    return "queued" if is_queued else "sending"


def approval_deadline(caller: Caller, timing: Timing, now: int) -> int | None:
    """Return the time at which the message fails if it is not released before; None if it needs no approval."""
    if caller.key.restrictions is None or caller.key.restrictions.approval is None:
        return None
    deadline = now + caller.team.record.approval_hours * HOUR_MS
    return deadline if timing.expires_at is None else min(deadline, timing.expires_at)
