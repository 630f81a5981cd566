"""Erasing an address: what stands in its place, the keyed hash that stays, and finding it in texts."""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

DOMAIN = "@erased.invalid"  # of no address that mail can reach (RFC 2606)
ERASED_EMAIL = f"erased{DOMAIN}"
ERASED_PHONE = "[erased]"
SHOWN = "erased address"
HIDDEN = "[another address]"
# These fields hold the team's own addresses, not other people's.
SENDERS = frozenset({"from", "from_address", "reply_to", "reply_to_addresses", "sender_id"})
# Address or phone number. The first part has an end: else a long word is read once for each of its letters.
ANY = re.compile(r"[\w.+%'-]{1,128}(?:@|%40)[\w.-]*\w|\+\d[\d ()-]{5,20}\d")

NOBODY = "[address]"

NameOf = Callable[[int, str], str]  # team, address in its normal form → its name on the suppression list


def erased_name(key: bytes, team: int, address: str) -> str:
    """Return what the suppression list has instead of an erased address: a hash that nobody without the key can try
    out.

    It has the form of an address, so that lists, paging, exports and removal need not know about it.
    """
    return f"erased-{hmac.new(key, f'{team}/{address}'.encode(), hashlib.sha256).hexdigest()[:40]}{DOMAIN}"


def hide_addresses(text: str) -> str:
    """Hide addresses for logs. Who signs in to a database (//user@host) is nobody's address."""
    return ANY.sub(lambda found: found[0] if text.startswith("//", found.start() - 2) else NOBODY, text)


def short_name(name: str) -> str:
    """Return the first characters of the hash, for the audit log."""
    return name.removeprefix("erased-")[:12]


def is_erased(address: str) -> bool:
    return address == ERASED_PHONE or address.endswith(DOMAIN)


def stand_in(address: str, position: int | None = None) -> str:
    """Return what is shown in the place of an address; recipients of one message must differ."""
    if "@" not in address:
        return ERASED_PHONE
    return ERASED_EMAIL if position is None else f"erased-{position + 1}{DOMAIN}"


class Forms(msgspec.Struct, frozen=True):
    """The ways that texts write one address."""

    address: str  # normal form
    written: frozenset[str]

    def needles(self) -> list[tuple[str]]:
        """List what the database first looks for, in lower case as SQLite knows it and as PostgreSQL does."""
        forms = self.written | {msgspec.json.encode(form).decode()[1:-1] for form in self.written}
        lower = {form.lower() for form in forms} | {
            form.encode().lower().decode() for form in forms
        }  # also ASCII alone
        return [(form,) for form in sorted(lower)]

    def also(self, written: Iterable[str]) -> "Forms":
        return Forms(self.address, self.written | set(written))

    def are_in(self, text: str | None) -> bool:
        return bool(text and self._pattern().search(text))

    def scrub(self, text: str | None) -> str | None:
        """Return the text without the address; a longer one that only contains it stays."""
        return self._pattern().sub(stand_in(self.address), text) if text else text

    def without(self, value: Any) -> Any:
        """Return a JSON value with its texts scrubbed."""
        match value:
            case str():
                return self.scrub(value)
            case list():
                return [self.without(one) for one in value]
            case dict():
                return {self.scrub(name): self.without(one) for name, one in value.items()}
        return value

    def alone(self, value: Any) -> Any:
        """Return what the person may see of a JSON value: nobody
        else's address, and of lists no entry that is another's.
        """
        match value:
            case str():
                return ANY.sub(lambda found: found[0] if self._is_own(found[0]) else HIDDEN, value)
            case list():
                return [self.alone(one) for one in value if not self._is_of_another(one)]
            case dict():
                own = SENDERS if value.get("object") != "received" else ()  # its sender is somebody else
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
    """Collect the forms of an address; carriers write phone numbers without their plus as well."""
    written = {address, typed} if "@" in address else {address, address.removeprefix("+"), typed}
    return Forms(address, frozenset(written))
