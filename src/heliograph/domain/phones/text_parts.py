"""Multipart inbound SMS: parts are collected by reference, joined in order, and reported once (contract 17)."""

import hashlib
from itertools import pairwise

import msgspec

from heliograph.domain.delivery.outcome import IncomingText, TextPart
from heliograph.domain.limits import MINUTE_MS
from heliograph.domain.phones.sms_octets import from_octets

PARTS_WAIT_MS = 10 * MINUTE_MS  # how long to wait for the other parts after the first one
DUPLICATE_MS = 10 * MINUTE_MS  # an equal text without a carrier id counts as a duplicate within this time


class StoredPart(msgspec.Struct, frozen=True, array_like=True):
    coding: int  # SMPP data_coding: encoding of `octets`
    octets: bytes


class SplitText(msgspec.Struct, kw_only=True):
    """The received parts of one multipart text."""

    sender: str
    to: str
    reference: str
    total: int
    started_at: int  # when the first part was received
    finished_at: int | None = None  # when the text was reported
    parts: dict[int, StoredPart] = {}

    @property
    def is_complete(self) -> bool:
        return len(self.parts) == self.total


def split_text_id(carrier: str, part: TextPart) -> str:
    """Return the id under which all processes collect the parts of a multipart text."""
    fields = (carrier, part.sender, part.to, part.reference, str(part.total))
    return hashlib.sha256("\0".join(fields).encode()).hexdigest()


def add_part(text: SplitText, part: TextPart, now: int) -> list[IncomingText]:
    """Add a part; return the texts that can be reported now, usually none. A duplicate part changes nothing."""
    new, reports = StoredPart(part.coding, part.octets), []
    if text.finished_at is not None and text.finished_at <= now - DUPLICATE_MS:
        _restart(text, now)
    existing = text.parts.get(part.number)
    if existing == new:
        return []
    if existing is not None:  # same number, other content: the sender reused the reference for another text
        reports = [] if text.finished_at is not None else [join_parts(text)]
        _restart(text, now)
    text.parts = text.parts | {part.number: new}
    if text.finished_at is not None:  # the part arrived after the others were reported
        return [join_parts(msgspec.structs.replace(text, parts={part.number: new}))]
    if text.is_complete:
        text.finished_at = now
        reports.append(join_parts(text))
    return reports


def join_parts(text: SplitText) -> IncomingText:
    """Join the received parts of a multipart text, in order, to one inbound text."""
    numbers = sorted(text.parts)
    runs = [[numbers[0]]]
    for before, number in pairwise(numbers):
        follows = number == before + 1 and text.parts[number].coding == text.parts[before].coding
        runs[-1:] = [[*runs[-1], number]] if follows else [runs[-1], [number]]
    # Characters may be split between two parts, so bytes are joined before decoding.
    pieces = [from_octets(text.parts[run[0]].coding, b"".join(text.parts[n].octets for n in run)) for run in runs]
    content = msgspec.json.encode((text.sender, text.to, text.reference, text.total, sorted(text.parts.items())))
    return IncomingText(
        id=hashlib.sha256(content).hexdigest(),
        sender=text.sender,
        to=text.to,
        text="".join(pieces),
        is_unnamed=True,
        is_incomplete=not text.is_complete,
    )


def _restart(text: SplitText, now: int) -> None:
    text.parts, text.started_at, text.finished_at = {}, now, None
