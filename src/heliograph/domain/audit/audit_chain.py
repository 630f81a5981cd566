"""Hash chain of the audit log (ADR 0035): what is hashed, and verification.

The link of an entry is the hash of the previous link, the entry's position, and the salted hash of its content. If an
address was erased, the link keeps the hash of the original, and a later entry of the chain records the new hash.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

ERASE_ACTION = "audit.erase"  # action that records a rewritten entry: its subject is the key, its detail the new hash
ADOPT_ACTION = "audit.adopt"  # action of an entry that lists entries which were written without a link of the chain


class ChainLink(msgspec.Struct, frozen=True):
    """One link of the hash chain, for one audit entry."""

    key: int
    at: int
    actor: str
    team: str | None
    action: str
    subject: str
    detail: str
    address: str
    position: int
    salt: str | None
    link: str | None
    original: str | None

    @property
    def content_hash(self) -> str:
        return hash_entry(msgspec.structs.astuple(self)[:8], self.salt or "")


class Head(msgspec.Struct, frozen=True):
    """The last link of the hash chain."""

    position: int
    link: str
    last_unchained_key: int  # key of the newest entry when the chain was started


class BrokenLink(msgspec.Struct, frozen=True):
    """The first entry of the chain that fails verification."""

    key: int | None  # None if the entry is missing
    reason: str
    # The entry is not in the chain. A process of the previous version may have written it; a job adds it in a minute.
    is_unlinked: bool = False


def hash_entry(entry: Sequence[Any], salt: str) -> str:
    """Return the hash of an entry's columns, from key to address, salted so that erased values cannot be guessed."""
    return _hash([salt, *entry])


def hash_link(previous_link: str, position: int, content_hash: str) -> str:
    return _hash([previous_link, position, content_hash])


def derive_salt(seed: str, position: int) -> str:
    """Derive the salt of the entry at `position` from the seed, which is then discarded."""
    return _hash([seed, position])[:32]


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class ChainVerifier:
    """Verifies links in order and remembers the first invalid link."""

    def __init__(self) -> None:
        self.position, self.last_link = 0, ""
        self._broken: BrokenLink | None = None
        # key → current hash of each rewritten entry; a later entry (`audit.erase`) must record this hash
        self._rewritten: dict[int, str] = {}

    def verify(self, entry: ChainLink) -> None:
        content_hash = entry.content_hash
        if entry.position > self.position + 1:
            self._record_break(
                entry.key, f"before entry {entry.key} {_removed_text(entry.position - self.position - 1)}"
            )
        elif entry.position <= self.position:
            self._record_break(entry.key, f"entry {entry.key} ({entry.action}) has the position of another entry")
        elif entry.link != hash_link(self.last_link, entry.position, entry.original or content_hash):
            self._record_break(entry.key, f"entry {entry.key} ({entry.action}) was changed, or is not in its position")
        if entry.original:
            self._rewritten[entry.key] = content_hash
        if entry.action == ERASE_ACTION and self._rewritten.get(_parse_entry_key(entry.subject)) == entry.detail:
            del self._rewritten[int(entry.subject)]
        self.position, self.last_link = entry.position, entry.link or ""

    def finish(self, head: Head | None, unlinked: int | None) -> BrokenLink | None:
        """Verify the end of the chain and return the first broken link, if any.

        `unlinked`: key of the first entry that was written after the chain was started, but is not linked to it.
        """
        if head is None:
            self._record_break(None, "the end of the chain was removed")
        elif head.position > self.position:
            self._record_break(None, f"at the end {_removed_text(head.position - self.position)}")
        elif (head.position, head.link) != (self.position, self.last_link):
            self._record_break(None, "entries were added after the end of the chain, or its end was changed")
        for key in self._rewritten:
            self._record_break(key, f"entry {key} was rewritten, and no erasure explains it")
        if unlinked is not None:
            self._record_break(unlinked, f"entry {unlinked} is not in the chain", is_unlinked=True)
        return self._broken

    def _record_break(self, key: int | None, reason: str, *, is_unlinked: bool = False) -> None:
        self._broken = self._broken or BrokenLink(key, reason, is_unlinked)


def _removed_text(count: int) -> str:
    return f"{count} entries were removed" if count > 1 else "an entry was removed"


def _parse_entry_key(text: str) -> int:
    return int(text) if text.isdecimal() else -1
