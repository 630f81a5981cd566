"""A message ready for the wire: built and signed once for all its recipients, each with its own envelope sender."""

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

KEPT = 200  # built mails cached for their other recipients; large attachments stay on disk
KEPT_OCTETS = 32 * MIB  # of their contents together
AT_ONCE = 32 * KIB  # of content: it is built within a millisecond or two
HEAD_AT_ONCE = 2 * KIB  # characters of its head, each of which takes as long as thirty of its body
THREADS = 2  # that sign: more would only compete for the interpreter's lock
TOGETHER = 16  # mails signed in one round trip to a thread

_content = msgspec.json.Decoder(EmailContent)


class Ready(msgspec.Struct, frozen=True):
    mail: mime.Mail
    signatures: bytes
    domain: str


class Kept(msgspec.Struct):
    lock: asyncio.Lock  # of whoever builds it
    octets: int  # of its content
    blobs: Sequence[str] = ()  # that it is sent with
    ready: Ready | None = None


class Unsigned(msgspec.Struct, frozen=True):
    mail: mime.Mail
    drafts: Sequence[Draft]
    domain: str

    def sign(self) -> Ready:
        return Ready(self.mail, sign_all(self.drafts), self.domain)


Waiting = tuple[Callable[[], Ready], "asyncio.Future[Ready]"]


class Outgoing:
    def __init__(
        self,
        *,
        ensure_keys: Callable[[str], Awaitable[None]],  # creates keys for a domain without any
        keys_of: Callable[[str], Sequence[SigningKey]],  # the signing keys of a domain
        bring_blob: Callable[[str], Awaitable[None]],  # to where it can be opened
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
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # by message
        self._octets = 0  # of all that are kept

    async def prepare(self, parcel: Parcel) -> Prepared:
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
        """Return the whole mail in memory, unsigned: for display, not for sending. It waits for `room`."""
        read = await LOOKING.run_large(len(content), _content.decode, content)
        await room(sum(file.size for file in read.attachments if file.blob))
        await self._bring(_blobs(read))
        return await LOOKING.run(lambda: b"".join(self._mail(message_id, read).chunks()))

    async def _bring(self, blobs: Sequence[str]) -> None:
        for blob in blobs:
            await self._bring_blob(blob)

    async def _shared(self, parcel: Parcel) -> Ready:
        """Return the mail that the first recipient's hand-over builds; the others wait for the same one."""
        kept = self._keep(parcel)
        async with kept.lock:
            if kept.ready:
                await self._bring(kept.blobs)  # they may have left since an earlier try
            else:
                kept.ready = await self._make(parcel, kept)
            return kept.ready

    def _keep(self, parcel: Parcel) -> Kept:
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
        made: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._waiting[priority].append((work, made))
        if len(self._threads) < THREADS:
            self._threads.add(asyncio.create_task(self._work()))
        return made

    async def _work(self) -> None:
        try:
            while taken := self._take():
                for (_, made), ready in zip(taken, await _signed(taken), strict=True):
                    if made.done():  # whoever asked is gone
                        continue
                    if isinstance(ready, Exception):
                        made.set_exception(ready)
                    else:
                        made.set_result(ready)
        finally:  # at once: what comes next must not count on it
            self._threads.discard(asyncio.current_task())

    def _take(self) -> list[Waiting]:
        """Take the next, the most urgent first."""
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
        """Return a signer, cached while the domain's keys stay the same: reading a key costs more than a signature."""
        keys = self._keys_of(domain)
        known = self._signers.get(domain)
        if known is None or known[0] != keys:
            known = (keys, Signer(domain, keys) if keys else None)
            self._signers[domain] = known
        return known[1]


def _blobs(content: EmailContent) -> list[str]:
    return [file.blob for file in content.attachments if file.blob]


def _is_quick(parcel: Parcel, content: EmailContent) -> bool:
    """Tell whether to build on the event loop: threads that fight for the interpreter's lock take as long again."""
    has_text = content.text is not None or content.html is None  # making it from HTML takes milliseconds
    head = (content.subject, *content.to, *content.cc, *content.headers.values())
    is_small = len(parcel.content) <= AT_ONCE and sum(map(len, head)) <= HEAD_AT_ONCE
    return has_text and is_small and not content.attachments


async def _signed(taken: Sequence[Waiting]) -> Sequence[Ready | Exception]:
    try:
        return await _started(BUILDING.run(_do_all, taken))
    except NotReady as error:  # what waits is not to wait for ever
        return [NotReady(*error.args) for _ in taken]


async def _started(made: Awaitable[T]) -> T:
    try:
        return await made
    except RuntimeError as error:  # of a thread that cannot start
        raise NotReady(f"no thread to make mails in: {error}") from error


def _do_all(taken: Sequence[Waiting]) -> list[Ready | Exception]:
    done = list[Ready | Exception]()
    for work, _ in taken:
        try:
            done.append(work())
        except Exception as error:
            done.append(error)
    return done
