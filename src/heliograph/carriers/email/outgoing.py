"""Builds and signs each email once for all its recipients; each recipient has its own envelope sender (VERP)."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO, TypeVar

import msgspec

from heliograph.carriers.contract import NotReady, Parcel
from heliograph.carriers.email import mime
from heliograph.carriers.email.connection_pool import Prepared
from heliograph.domain.delivery.content import EmailContent
from heliograph.domain.delivery.lanes import PRIORITIES, take_turns
from heliograph.domain.ids import PREFIXES, ulid_ms
from heliograph.domain.limits import KIB, MIB
from heliograph.domain.mail import verp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.dkim import Draft, Signer, SigningKey, sign_all
from heliograph.domain.setup.records import Priority
from heliograph.runtime.threads import BUILDING, LOOKING

T = TypeVar("T")

KEPT = 200  # maximum cached mails, kept for their other recipients; large attachments stay on disk
KEPT_OCTETS = 32 * MIB  # maximum bytes of the contents of all cached mails
AT_ONCE = 32 * KIB  # bytes of content that are built on the event loop, in one or two milliseconds
HEAD_AT_ONCE = 2 * KIB  # characters of headers built on the event loop; one takes as long as 30 characters of body
THREADS = 2  # number of signing threads; more would only compete for the GIL
TOGETHER = 16  # maximum mails signed per call into a thread

_content = msgspec.json.Decoder(EmailContent)


class Ready(msgspec.Struct, frozen=True):
    """A built and signed mail."""

    mail: mime.Mail
    signatures: bytes
    domain: str


class Kept(msgspec.Struct):
    """A cache entry of one message."""

    lock: asyncio.Lock  # held while the mail is built
    octets: int  # bytes of the content
    blobs: Sequence[str] = ()  # attachments stored as blobs
    ready: Ready | None = None


class Unsigned(msgspec.Struct, frozen=True):
    """A built mail that is not signed yet."""

    mail: mime.Mail
    drafts: Sequence[Draft]
    domain: str

    def sign(self) -> Ready:
        return Ready(self.mail, sign_all(self.drafts), self.domain)


Waiting = tuple[Callable[[], Ready], "asyncio.Future[Ready]"]


class Outgoing:
    """Prepares emails for sending, with a cache of built mails and a queue for the signing threads."""

    def __init__(
        self,
        *,
        ensure_keys: Callable[[str], Awaitable[None]],  # creates signing keys for a domain without keys
        keys_of: Callable[[str], Sequence[SigningKey]],  # returns the signing keys of a domain
        bring_blob: Callable[[str], Awaitable[None]],  # makes a blob available to `open_blob`
        open_blob: Callable[[str], BinaryIO],
        envelope_key: bytes,
        entropy: Callable[[int], bytes],
        now: Callable[[], int],
    ) -> None:
        self._ensure_keys = ensure_keys
        self._keys_of = keys_of
        self._bring_blob = bring_blob
        self._open_blob = open_blob
        self._envelope_key = envelope_key
        self._entropy = entropy
        self._now = now
        self._signers: dict[str, tuple[Sequence[SigningKey], Signer | None]] = {}
        self._waiting: dict[Priority, list[Waiting]] = {priority: [] for priority in PRIORITIES}
        self._turns = 0
        self._threads: set[asyncio.Task[None]] = set()
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # keyed by message id
        self._octets = 0  # bytes of all cached contents

    async def prepare(self, parcel: Parcel) -> Prepared:
        """Return the signed mail with the recipient's envelope sender."""
        ready = await self._shared(parcel)
        return_path = verp.return_path(ready.domain)

        def chunks() -> Iterator[bytes]:
            yield ready.signatures
            yield from ready.mail.chunks()

        return Prepared(
            envelope_from=verp.sign(self._envelope_key, parcel.message_id, parcel.position, return_path, self._now()),
            chunks=chunks,
            size=len(ready.signatures) + ready.mail.size,
            needs_utf8=ready.mail.needs_utf8 or not parcel.mailbox.isascii(),
        )

    async def plain(self, message_id: str, content: str, room: Callable[[int], Awaitable[None]]) -> bytes:
        """Return the whole unsigned mail, for display only.

        `room` is awaited with the total size of the blobs before they are loaded into memory.
        """
        read = await LOOKING.run_large(len(content), _content.decode, content)
        await room(sum(file.size for file in read.attachments if file.blob))
        await self._bring(_blobs(read))
        return await LOOKING.run(lambda: b"".join(self._mail(message_id, read).chunks()))

    async def _bring(self, blobs: Sequence[str]) -> None:
        for blob in blobs:
            await self._bring_blob(blob)

    async def _shared(self, parcel: Parcel) -> Ready:
        """Return the message's mail. The first recipient's attempt builds the mail, the others wait for the result."""
        kept = self._keep(parcel)
        async with kept.lock:
            if kept.ready:
                await self._bring(kept.blobs)  # may have been evicted since an earlier attempt
            else:
                kept.ready = await self._make(parcel, kept)
            return kept.ready

    def _keep(self, parcel: Parcel) -> Kept:
        """Return the message's cache entry; create it, and evict the oldest ones, if necessary."""
        kept = self._kept.get(parcel.message_id)
        if kept is None:
            kept = self._kept[parcel.message_id] = Kept(asyncio.Lock(), len(parcel.content))
            self._octets += kept.octets
            while len(self._kept) > KEPT or (self._octets > KEPT_OCTETS and len(self._kept) > 1):
                self._octets -= self._kept.popitem(last=False)[1].octets
        return kept

    async def _make(self, parcel: Parcel, kept: Kept) -> Ready:
        content = await _started(BUILDING.run_large(len(parcel.content), _content.decode, parcel.content))
        sender = parse_address(content.from_address)
        if sender is None:
            raise ValueError("the sender is not an email address")
        if not self._keys_of(sender.domain):
            await self._ensure_keys(sender.domain)
        kept.blobs = _blobs(content)
        await self._bring(kept.blobs)
        build = partial(self._build, parcel.message_id, content, sender.domain)
        work = build().sign if _is_quick(parcel, content) else lambda: build().sign()
        return await self._in_thread(parcel.priority, work)

    def _in_thread(self, priority: Priority, work: Callable[[], Ready]) -> "asyncio.Future[Ready]":
        """Queue `work` for a signing thread and return the future of its result."""
        made: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._waiting[priority].append((work, made))
        if len(self._threads) < THREADS:
            self._threads.add(asyncio.create_task(self._work()))
        return made

    async def _work(self) -> None:
        try:
            while taken := self._take():
                for (_, made), ready in zip(taken, await _signed(taken), strict=True):
                    if made.done():  # the caller was cancelled
                        continue
                    if isinstance(ready, Exception):
                        made.set_exception(ready)
                    else:
                        made.set_result(ready)
        finally:  # immediately, so that the next call of `_in_thread` does not rely on this task
            self._threads.discard(asyncio.current_task())

    def _take(self) -> list[Waiting]:
        """Remove and return up to TOGETHER queued items, by priority."""
        order = take_turns(self._turns, TOGETHER, {priority: len(line) for priority, line in self._waiting.items()})
        self._turns += len(order)
        return [self._waiting[priority].pop(0) for priority in order]

    def _build(self, message_id: str, content: EmailContent, domain: str) -> Unsigned:
        mail = self._mail(message_id, content)
        signer = self._signer(domain)
        drafts = signer.draft(mail.headers, mail.body_chunks(), time_ms=self._now()) if signer else ()
        return Unsigned(mail, drafts, domain)

    def _mail(self, message_id: str, content: EmailContent) -> mime.Mail:
        return mime.build(
            content,
            message_id=message_id,
            date_ms=ulid_ms(message_id.removeprefix(PREFIXES["email"])),
            entropy=self._entropy(16),
            open_blob=self._open_blob,
        )

    def _signer(self, domain: str) -> Signer | None:
        """Return the domain's signer, cached until its keys change, because loading a key costs more than signing.

        None if the domain has no keys.
        """
        keys = self._keys_of(domain)
        known = self._signers.get(domain)
        if known is None or known[0] != keys:
            known = (keys, Signer(domain, keys) if keys else None)
            self._signers[domain] = known
        return known[1]


def _blobs(content: EmailContent) -> list[str]:
    return [file.blob for file in content.attachments if file.blob]


def _is_quick(parcel: Parcel, content: EmailContent) -> bool:
    """Return whether to build on the event loop: in a thread, contention for the GIL would double the time."""
    has_text = content.text is not None or content.html is None  # converting HTML to text takes milliseconds
    head = (content.subject, *content.to, *content.cc, *content.headers.values())
    is_small = len(parcel.content) <= AT_ONCE and sum(map(len, head)) <= HEAD_AT_ONCE
    return has_text and is_small and not content.attachments


async def _signed(taken: Sequence[Waiting]) -> Sequence[Ready | Exception]:
    try:
        return await _started(BUILDING.run(_do_all, taken))
    except NotReady as error:  # fail all waiting callers, so that none waits forever
        return [NotReady(*error.args) for _ in taken]


async def _started(made: Awaitable[T]) -> T:
    try:
        return await made
    except RuntimeError as error:  # the thread cannot start
        raise NotReady(f"no thread to make mails in: {error}") from error


def _do_all(taken: Sequence[Waiting]) -> list[Ready | Exception]:
    done = list[Ready | Exception]()
    for work, _ in taken:
        try:
            done.append(work())
        except Exception as error:
            done.append(error)
    return done
