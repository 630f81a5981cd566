"""Erasure of an address: placeholders, the keyed hash that remains, and finding the address in texts."""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

DOMAIN = "@erased.invalid"  # reserved domain that mail cannot reach (RFC 2606)
ERASED_EMAIL = f"erased{DOMAIN}"
ERASED_PHONE = "[erased]"
SHOWN = "erased address"
HIDDEN = "[another address]"
# Fields with the team's own addresses, not those of other people.
SENDERS = frozenset({"from", "from_address", "reply_to", "reply_to_addresses", "sender_id"})
# Email address or phone number. The local part is bounded, otherwise a long word takes quadratic time.
ANY = re.compile(r"[\w.+%'-]{1,128}(?:@|%40)[\w.-]*\w|\+\d[\d ()-]{5,20}\d")

NOBODY = "[address]"

NameOf = Callable[[int, str], str]  # (team, normalised address) → entry on the suppression list


def erased_name(key: bytes, team: int, address: str) -> str:
    """Return the suppression list entry for an erased address: a hash that cannot be guessed without the key.

    The entry has the form of an address, so that lists, paging, exports and removal need no special case.
    """
    return f"erased-{hmac.new(key, f'{team}/{address}'.encode(), hashlib.sha256).hexdigest()[:40]}{DOMAIN}"


def hide_addresses(text: str) -> str:
    """Replace addresses for logs. The user in a database URL (//user@host) is kept."""
    return ANY.sub(lambda found: found[0] if text.startswith("//", found.start() - 2) else NOBODY, text)


def short_name(name: str) -> str:
    """Return the first characters of the hash, for the audit log."""
    return name.removeprefix("erased-")[:12]


def is_erased(address: str) -> bool:
    return address == ERASED_PHONE or address.endswith(DOMAIN)


def stand_in(address: str, position: int | None = None) -> str:
    """Return the placeholder for an address; recipients of one message get different ones."""
    if "@" not in address:
        return ERASED_PHONE
    return ERASED_EMAIL if position is None else f"erased-{position + 1}{DOMAIN}"


class Forms(msgspec.Struct, frozen=True):
    """Spellings of one address in texts."""

    address: str  # normal form
    written: frozenset[str]

    def needles(self) -> list[tuple[str]]:
        """Return the search terms for the database, lower-cased as by SQLite (ASCII only) and as by PostgreSQL."""
        forms = self.written | {msgspec.json.encode(form).decode()[1:-1] for form in self.written}
        lower = {form.lower() for form in forms} | {
            form.encode().lower().decode() for form in forms
        }  # lower-cases ASCII only
        return [(form,) for form in sorted(lower)]

    def also(self, written: Iterable[str]) -> "Forms":
        return Forms(self.address, self.written | set(written))

    def are_in(self, text: str | None) -> bool:
        return bool(text and self._pattern().search(text))

    def scrub(self, text: str | None) -> str | None:
        """Return the text without the address; longer addresses that contain it are kept."""
        return self._pattern().sub(stand_in(self.address), text) if text else text

    def without(self, value: Any) -> Any:
        """Return a JSON value with the address removed from its strings."""
        match value:
            case str():
                return self.scrub(value)
            case list():
                return [self.without(one) for one in value]
            case dict():
                return {self.scrub(name): self.without(one) for name, one in value.items()}
        return value

    def alone(self, value: Any) -> Any:
        """Return the part of a JSON value that the person may see: other addresses are hidden, and list entries about
        other people are removed.
        """
        match value:
            case str():
                return ANY.sub(lambda found: found[0] if self._is_own(found[0]) else HIDDEN, value)
            case list():
                return [self.alone(one) for one in value if not self._is_of_another(one)]
            case dict():
                # The sender of an inbound message is another person.
                own = SENDERS if value.get("object") != "received" else ()
                return {name: one if name in own else self.alone(one) for name, one in value.items()}
        return value

    def _is_of_another(self, entry: Any) -> bool:
        text = entry if isinstance(entry, str) else msgspec.json.encode(entry).decode()
        return bool(ANY.search(text)) and not self.are_in(text)

    def _is_own(self, written: str) -> bool:
        return self.are_in(written.replace("%40", "@")) or self.are_in(re.sub(r"[ ()-]", "", written))

    def _pattern(self) -> "re.Pattern[str]":
        forms = self.written | {msgspec.json.encode(form).decode()[1:-1] for form in self.written}
        some = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        if "@" in self.address:
            return re.compile(rf"(?<![\w.+%-])(?:{some})(?![\w-]|\.\w)", re.IGNORECASE)
        return re.compile(rf"(?<![0-9])(?:{some})(?![0-9])")


def forms_of(address: str, typed: str) -> Forms:
    """Return the spellings of an address; carriers also write phone numbers without the plus."""
    written = {address, typed} if "@" in address else {address, address.removeprefix("+"), typed}
    return Forms(address, frozenset(written))
