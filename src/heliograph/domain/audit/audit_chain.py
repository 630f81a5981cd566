"""Hash chain of the audit log (ADR 0035): what is hashed, and verification.

The link of an entry is the hash of the previous link, the entry's position, and the salted hash of its content. If an
address was erased, the link keeps the hash of the original, and a later entry of the chain records the new hash.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

REWRITTEN = "audit.erase"  # action that records a rewritten entry: its subject is the key, its detail the new hash
TAKEN_IN = "audit.adopt"  # action that records which entries were written without the chain


class ChainLink(msgspec.Struct, frozen=True):
    """An entry of the chain."""

    key: int
    at: int
    actor: str
    team: str | None
    action: str
    subject: str
    detail: str
    address: str
    place: int
    salt: str | None
    link: str | None
    original: str | None

    @property
    def said(self) -> str:
        return said(msgspec.structs.astuple(self)[:8], self.salt or "")


class Head(msgspec.Struct, frozen=True):
    """End of the chain."""

    place: int
    link: str
    before: int  # key of the newest entry when the chain was started


class BrokenLink(msgspec.Struct, frozen=True):
    """The first entry that fails verification."""

    key: int | None  # None if the entry is missing
    why: str
    # Possibly written by a process of the previous version; added to the chain within a minute.
    is_unlinked: bool = False


def said(entry: Sequence[Any], salt: str) -> str:
    """Return the salted hash of an entry, from its key to its address; without the salt, erased values could be
    guessed.
    """
    return _hash([salt, *entry])


def linked(before: str, place: int, content: str) -> str:
    return _hash([before, place, content])


def salted(seed: str, place: int) -> str:
    """Derive the salt of the entry at `place`; the seed is then discarded."""
    return _hash([seed, place])[:32]


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class Walk:
    """Verifies links in order and remembers the first invalid one."""

    def __init__(self) -> None:
        self.place, self.link = 0, ""
        self._broken: BrokenLink | None = None
        self._rewritten: dict[int, str] = {}  # key → current hash of rewritten entries that a later entry must explain

    def take(self, one: ChainLink) -> None:
        now = one.said
        if one.place > self.place + 1:
            self._break(one.key, f"before entry {one.key} {_removed(one.place - self.place - 1)}")
        elif one.place <= self.place:
            self._break(one.key, f"entry {one.key} ({one.action}) has the place of another one")
        elif one.link != linked(self.link, one.place, one.original or now):
            self._break(one.key, f"entry {one.key} ({one.action}) was changed, or is not in its place")
        if one.original:
            self._rewritten[one.key] = now
        if one.action == REWRITTEN and self._rewritten.get(_number(one.subject)) == one.detail:
            del self._rewritten[int(one.subject)]
        self.place, self.link = one.place, one.link or ""

    def end(self, head: Head | None, unlinked: int | None) -> BrokenLink | None:
        """Verify the end of the chain and return the first broken link, if any; `unlinked` is the first entry that was
        written without the chain since it started.
        """
        if head is None:
            self._break(None, "the end of the chain was removed")
        elif head.place > self.place:
            self._break(None, f"at the end {_removed(head.place - self.place)}")
        elif (head.place, head.link) != (self.place, self.link):
            self._break(None, "entries were added after the end of the chain, or its end was changed")
        for key in self._rewritten:
            self._break(key, f"entry {key} was rewritten, and no erasure explains it")
        if unlinked is not None:
            self._break(unlinked, f"entry {unlinked} is not in the chain", is_unlinked=True)
        return self._broken

    def _break(self, key: int | None, why: str, *, is_unlinked: bool = False) -> None:
        self._broken = self._broken or BrokenLink(key, why, is_unlinked)


def _removed(count: int) -> str:
    return f"{count} entries were removed" if count > 1 else "an entry was removed"


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1
