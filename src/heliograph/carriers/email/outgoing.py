"""Builds and signs each email once for all its recipients; each recipient has its own envelope sender (VERP)."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO, TypeVar

import msgspec
from msgspec.structs import replace

from heliograph.carriers.contract import NotReady, OutboundMessage
from heliograph.carriers.email import mime
from heliograph.carriers.email.connection_pool import PreparedMail
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.lanes import PRIORITIES, schedule_priorities
from heliograph.domain.ids import PREFIXES, ulid_ms
from heliograph.domain.limits import KIB, MIB
from heliograph.domain.mail import verp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.dkim import Draft, Signer, SigningKey, sign_all
from heliograph.domain.mail.feedback_id import DIRECT, feedback_id_suffix
from heliograph.domain.setup.records import Priority
from heliograph.runtime.threads import BUILD_POOL, READ_POOL

T = TypeVar("T")

CACHED_MAILS_MAX = 200  # maximum cached mails, reused for their other recipients; large attachments stay on disk
CACHED_BYTES_MAX = 32 * MIB  # maximum bytes of the contents of all cached mails
INLINE_CONTENT_MAX = 32 * KIB  # bytes of content up to which a mail is built on the event loop, in 1 to 2 ms
# Characters of headers up to which a mail is built on the event loop; each takes as long as 30 characters of a body
INLINE_HEADERS_MAX = 2 * KIB
UNSUBSCRIBE_HEADERS = {"list-unsubscribe", "list-unsubscribe-post"}
SIGNING_THREADS = 2  # number of signing threads; more would only compete for the GIL
SIGN_BATCH_MAX = 16  # maximum mails signed per call into a thread

_content_decoder = msgspec.json.Decoder(EmailContent)


class SignedMail(msgspec.Struct, frozen=True):
    """A built and signed mail, which all recipients of a message share."""

    mail: mime.MimeMessage
    signatures: bytes
    domain: str


class CacheEntry(msgspec.Struct):
    """Cache entry of one message's signed mail."""

    lock: asyncio.Lock  # held while the mail is built
    size: int  # bytes of the content
    blobs: Sequence[str] = ()  # attachments stored as blobs
    signed: SignedMail | None = None


class UnsignedMail(msgspec.Struct, frozen=True):
    """A built mail that is not signed yet."""

    mail: mime.MimeMessage
    drafts: Sequence[Draft]  # one DKIM signature to be computed per key
    domain: str

    def sign(self) -> SignedMail:
        return SignedMail(self.mail, sign_all(self.drafts), self.domain)


QueuedWork = tuple[Callable[[], SignedMail], "asyncio.Future[SignedMail]"]


class MailPreparer:
    """Prepares emails for sending, with a cache of built mails and a queue for the signing threads."""

    def __init__(
        self,
        *,
        ensure_keys: Callable[[str], Awaitable[None]],  # creates signing keys for a domain without keys
        signing_keys: Callable[[str], Sequence[SigningKey]],  # returns the signing keys of a domain
        fetch_blob: Callable[[str], Awaitable[None]],  # makes a blob available to `open_blob`
        open_blob: Callable[[str], BinaryIO],
        envelope_key: bytes,
        entropy: Callable[[int], bytes],
        now: Callable[[], int],
        receives_complaints: bool,  # whether our inbound server receives complaints (ARF)
    ) -> None:
        self._ensure_keys = ensure_keys
        self._signing_keys = signing_keys
        self._fetch_blob = fetch_blob
        self._open_blob = open_blob
        self._envelope_key = envelope_key
        self._entropy = entropy
        self._now = now
        self._receives_complaints = receives_complaints
        self._system_feedback_id = f"{DIRECT}:{feedback_id_suffix(envelope_key, '', from_template=False)}"
        self._signers: dict[str, tuple[Sequence[SigningKey], Signer | None]] = {}
        self._queued: dict[Priority, list[QueuedWork]] = {priority: [] for priority in PRIORITIES}
        self._taken_count = 0
        self._threads: set[asyncio.Task[None]] = set()
        self._cache: OrderedDict[str, CacheEntry] = OrderedDict()  # keyed by message id
        self._cached_bytes = 0  # bytes of all cached contents

    async def prepare(self, message: OutboundMessage) -> PreparedMail:
        """Return the signed mail with the recipient's envelope sender."""
        signed = await self._signed_mail(message)
        return_path = verp.bounce_domain(signed.domain)

        def chunks() -> Iterator[bytes]:
            yield signed.signatures
            yield from signed.mail.chunks()

        return PreparedMail(
            envelope_from=verp.sign_return_path(
                self._envelope_key, message.message_id, message.position, return_path, self._now()
            ),
            chunks=chunks,
            size=len(signed.signatures) + signed.mail.size,
            needs_utf8=signed.mail.needs_utf8 or not message.envelope_address.isascii(),
        )

    async def build_unsigned(self, message_id: str, content: str, reserve: Callable[[int], Awaitable[None]]) -> bytes:
        """Return the whole unsigned mail, for display only.

        `reserve` is awaited with the total size of the blobs before they are loaded into memory.
        """
        email_content = await READ_POOL.run_large(len(content), _content_decoder.decode, content)
        await reserve(sum(file.size for file in email_content.attachments if file.blob))
        await self._fetch_blobs(_blobs(email_content))
        sender = parse_address(email_content.from_address)
        domain = sender.domain if sender else ""
        return await READ_POOL.run(lambda: b"".join(self._build_mime(message_id, email_content, domain).chunks()))

    async def _fetch_blobs(self, blobs: Sequence[str]) -> None:
        for blob in blobs:
            await self._fetch_blob(blob)

    async def _signed_mail(self, message: OutboundMessage) -> SignedMail:
        """Return the message's signed mail. The first recipient's attempt builds it, the others wait for the result."""
        entry = self._cache_entry(message)
        async with entry.lock:
            if entry.signed:
                await self._fetch_blobs(entry.blobs)  # a blob may have been evicted since an earlier attempt
            else:
                entry.signed = await self._build_and_sign(message, entry)
            return entry.signed

    def _cache_entry(self, message: OutboundMessage) -> CacheEntry:
        """Return the message's cache entry; create it if necessary, and evict the oldest entries above the limits."""
        entry = self._cache.get(message.message_id)
        if entry is None:
            entry = self._cache[message.message_id] = CacheEntry(asyncio.Lock(), len(message.content))
            self._cached_bytes += entry.size
            while len(self._cache) > CACHED_MAILS_MAX or (
                self._cached_bytes > CACHED_BYTES_MAX and len(self._cache) > 1
            ):
                self._cached_bytes -= self._cache.popitem(last=False)[1].size
        return entry

    async def _build_and_sign(self, message: OutboundMessage, entry: CacheEntry) -> SignedMail:
        content = await _await_thread(
            BUILD_POOL.run_large(len(message.content), _content_decoder.decode, message.content)
        )
        sender = parse_address(content.from_address)
        if sender is None:
            raise ValueError("the sender is not an email address")
        if not self._signing_keys(sender.domain):
            await self._ensure_keys(sender.domain)
        entry.blobs = _blobs(content)
        await self._fetch_blobs(entry.blobs)
        build = partial(self._build_with_drafts, message.message_id, content, sender.domain)
        work = build().sign if _is_quick(message, content) else lambda: build().sign()
        return await self._queue_work(message.priority, work)

    def _queue_work(self, priority: Priority, work: Callable[[], SignedMail]) -> "asyncio.Future[SignedMail]":
        """Queue `work` for a signing thread and return the future of its result."""
        result: asyncio.Future[SignedMail] = asyncio.get_running_loop().create_future()
        self._queued[priority].append((work, result))
        if len(self._threads) < SIGNING_THREADS:
            self._threads.add(asyncio.create_task(self._run_queue()))
        return result

    async def _run_queue(self) -> None:
        try:
            while batch := self._next_batch():
                for (_, result), signed in zip(batch, await _sign_batch(batch), strict=True):
                    if result.done():  # the caller was cancelled
                        continue
                    if isinstance(signed, Exception):
                        result.set_exception(signed)
                    else:
                        result.set_result(signed)
        finally:  # from now on, `_queue_work` must start a new task instead of relying on this one
            self._threads.discard(asyncio.current_task())

    def _next_batch(self) -> list[QueuedWork]:
        """Remove and return up to SIGN_BATCH_MAX queued items, by priority."""
        order = schedule_priorities(
            self._taken_count, SIGN_BATCH_MAX, {priority: len(queued) for priority, queued in self._queued.items()}
        )
        self._taken_count += len(order)
        return [self._queued[priority].pop(0) for priority in order]

    def _build_with_drafts(self, message_id: str, content: EmailContent, domain: str) -> UnsignedMail:
        mail = self._build_mime(message_id, content, domain)
        signer = self._signer(domain)
        drafts = signer.draft(mail.headers, mail.body_chunks(), time_ms=self._now()) if signer else ()
        return UnsignedMail(mail, drafts, domain)

    def _build_mime(self, message_id: str, content: EmailContent, domain: str) -> mime.MimeMessage:
        return mime.build_message(
            replace(content, headers=content.headers | self._added_headers(message_id, content, domain)),
            message_id=message_id,
            date_ms=ulid_ms(message_id.removeprefix(PREFIXES["email"])),
            entropy=self._entropy(16),
            open_blob=self._open_blob,
        )

    def _added_headers(self, message_id: str, content: EmailContent, domain: str) -> dict[str, str]:
        """Return the header fields for unsubscribing, and those that attribute complaints."""
        headers: dict[str, str] = {}
        names, domain = {name.lower() for name in content.headers}, verp.bounce_domain(domain)
        if content.unsubscribe_url and names.isdisjoint(UNSUBSCRIBE_HEADERS):
            address = verp.sign_unsubscribe_address(self._envelope_key, message_id, domain)
            headers["List-Unsubscribe"] = f"<{content.unsubscribe_url}>, <mailto:{address}>"
            headers["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
        if "feedback-id" not in names:
            headers["Feedback-ID"] = content.feedback_id or self._system_feedback_id
        if self._receives_complaints:
            address = verp.sign_return_path(self._envelope_key, message_id, verp.ANY_RECIPIENT, domain, self._now())
            headers["CFBL-Address"] = f"{address}; report=arf"
        return headers

    def _signer(self, domain: str) -> Signer | None:
        """Return the domain's signer; None if the domain has no keys.

        The signer is cached until the keys change, because loading a key costs more than signing.
        """
        keys = self._signing_keys(domain)
        cached_signer = self._signers.get(domain)
        if cached_signer is None or cached_signer[0] != keys:
            cached_signer = (keys, Signer(domain, keys) if keys else None)
            self._signers[domain] = cached_signer
        return cached_signer[1]


def _blobs(content: EmailContent) -> list[str]:
    return [file.blob for file in content.attachments if file.blob]


def _is_quick(message: OutboundMessage, content: EmailContent) -> bool:
    """Return whether to build the mail on the event loop, because in a thread it would take twice as long (GIL)."""
    has_text = content.text is not None or content.html is None  # converting HTML to text takes milliseconds
    header_values = (content.subject, *content.to, *content.cc, *content.headers.values())
    is_small = len(message.content) <= INLINE_CONTENT_MAX and sum(map(len, header_values)) <= INLINE_HEADERS_MAX
    return has_text and is_small and not content.attachments


async def _sign_batch(batch: Sequence[QueuedWork]) -> Sequence[SignedMail | Exception]:
    try:
        return await _await_thread(BUILD_POOL.run(_run_all, batch))
    except NotReady as error:  # fail all waiting callers, so that none waits forever
        return [NotReady(*error.args) for _ in batch]


async def _await_thread(running: Awaitable[T]) -> T:
    try:
        return await running
    except RuntimeError as error:  # the thread cannot start
        raise NotReady(f"no thread is available to build mails: {error}") from error


def _run_all(batch: Sequence[QueuedWork]) -> list[SignedMail | Exception]:
    results = list[SignedMail | Exception]()
    for work, _ in batch:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)
    return results
