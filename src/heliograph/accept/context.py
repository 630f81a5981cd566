"""What every accepting endpoint works with."""

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
    """What changes while the process runs."""

    leaving: bool = False  # about to shut down: not ready, but all is answered
    draining: bool = False  # shutting down: nothing new is accepted
    waits: Counter[str] = msgspec.field(default_factory=Counter)  # API key → requests that wait for the test inbox
    measuring: asyncio.Future[bytes] | None = None  # the metrics, for all who ask for them now
    used: dict[str, int] = {}  # API key → its last request, until that is written down
    requests: RequestLog = msgspec.field(default_factory=RequestLog)  # until they are written down


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where the process runs, for the metrics; None: there is none, or nobody knows."""

    disk_free: Callable[[], int] = lambda: 0  # bytes, where attachments are
    certificate_until: Callable[[], int | None] = lambda: None  # of SMTP submission
    backup_at: Callable[[], int | None] = lambda: None  # the last one


def _unseal(_sealed: str, _context: str) -> bytes:
    raise ValueError("nothing can be opened here")


class Context(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    clock: Clock
    handover: Handover  # to the carriers: Verify asks them inside the request
    base_url: str  # how the world reaches us
    code_key: bytes  # the key of the codes' digests, kept outside the database
    reply_key: bytes = b""  # signs the Reply-To of mails that want replies, and links to files of mails
    unseal: Callable[[str, str], bytes] = _unseal  # sealed, its context → plain; ValueError: it cannot be opened
    test_token: bytes = b""  # what a service's well-known test token stands for; empty: it is none
    running: dict[tuple[str, str], str] = {}  # API key, hash of Idempotency-Key → fingerprint, while it runs
    process: int | None = None  # its number among several of one parent
    about: Mapping[str, str] = {}  # version, python and database, for the metrics
    machine: Machine = Machine()
    is_worker: bool = False  # delivers, and answers no requests but health checks
    metrics_allow: tuple[str, ...] = ()  # ranges beside loopback that may read the metrics
    metrics_token: str = ""  # anyone who has it may read them too; empty: there is none
    state: State = msgspec.field(default_factory=State)


def first_status(context: Context, timing: Timing, now: int) -> str:
    """Return what a send is answered: it goes out at once, or waits for its time or for an operator."""
    waits = (timing.due_at or 0) > now or context.store.setup.current.platform.paused
    return "queued" if waits else "sending"
