"""Erasure of an address: placeholders, the keyed hash that remains, and finding the address in texts."""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

ERASED_DOMAIN = "@erased.invalid"  # reserved domain that mail cannot reach (RFC 2606)
ERASED_EMAIL = f"erased{ERASED_DOMAIN}"
ERASED_PHONE = "[erased]"
ERASED_TEXT = "erased address"
HIDDEN_ADDRESS = "[another address]"
# Fields that contain the team's own addresses, not those of other people.
TEAM_ADDRESS_FIELDS = frozenset({"from", "from_address", "reply_to", "reply_to_addresses", "sender_id"})
# Email address or phone number. The local part is bounded, otherwise a long word takes quadratic time.
ADDRESS_OR_PHONE = re.compile(r"[\w.+%'-]{1,128}(?:@|%40)[\w.-]*\w|\+\d[\d ()-]{5,20}\d")

REDACTED_ADDRESS = "[address]"

EntryName = Callable[[int, str], str]  # (team, normalised address) → entry on the suppression list


def erased_entry(key: bytes, team: int, address: str) -> str:
    """Return the suppression list entry for an erased address: a hash that cannot be guessed without the key.

    The entry has the form of an address, so that lists, paging, exports and removal need no special case.
    """
    return f"erased-{hmac.new(key, f'{team}/{address}'.encode(), hashlib.sha256).hexdigest()[:40]}{ERASED_DOMAIN}"


def hide_addresses(text: str) -> str:
    """Replace addresses in a text for logs. The user in a database URL (//user@host) is not replaced."""
    return ADDRESS_OR_PHONE.sub(
        lambda match: match[0] if text.startswith("//", match.start() - 2) else REDACTED_ADDRESS, text
    )


def short_hash(name: str) -> str:
    """Return the first characters of an address's hash, for the audit log."""
    return name.removeprefix("erased-")[:12]


def is_erased(address: str) -> bool:
    return address == ERASED_PHONE or address.endswith(ERASED_DOMAIN)


def placeholder(address: str, position: int | None = None) -> str:
    """Return the placeholder for an erased address. `position`: makes it unique among the recipients of a message."""
    if "@" not in address:
        return ERASED_PHONE
    return ERASED_EMAIL if position is None else f"erased-{position + 1}{ERASED_DOMAIN}"


class AddressVariants(msgspec.Struct, frozen=True):
    """The spellings of one address that may occur in texts."""

    address: str  # normal form
    spellings: frozenset[str]

    def search_terms(self) -> list[tuple[str]]:
        """Return the terms to search for in the lower-cased texts of a database.

        SQLite lower-cases only ASCII, PostgreSQL all letters, so each spelling is included in both forms.
        """
        variants = self.spellings | {msgspec.json.encode(variant).decode()[1:-1] for variant in self.spellings}
        # `bytes.lower` changes only ASCII letters.
        lower = {variant.lower() for variant in variants} | {variant.encode().lower().decode() for variant in variants}
        return [(variant,) for variant in sorted(lower)]

    def with_spellings(self, spellings: Iterable[str]) -> "AddressVariants":
        return AddressVariants(self.address, self.spellings | set(spellings))

    def occurs_in(self, text: str | None) -> bool:
        return bool(text and self._pattern().search(text))

    def redact_text(self, text: str | None) -> str | None:
        """Return the text without the address. Longer addresses that contain it are not changed."""
        return self._pattern().sub(placeholder(self.address), text) if text else text

    def redact_json(self, value: Any) -> Any:
        """Return a JSON value with the address removed from its strings."""
        match value:
            case str():
                return self.redact_text(value)
            case list():
                return [self.redact_json(item) for item in value]
            case dict():
                return {self.redact_text(name): self.redact_json(item) for name, item in value.items()}
        return value

    def only_own_data(self, value: Any) -> Any:
        """Return the part of a JSON value that the person with this address may see.

        Other addresses are hidden, and list entries about other people are removed.
        """
        match value:
            case str():
                return ADDRESS_OR_PHONE.sub(
                    lambda match: match[0] if self._is_this_address(match[0]) else HIDDEN_ADDRESS, value
                )
            case list():
                return [self.only_own_data(item) for item in value if not self._is_about_others(item)]
            case dict():
                # The sender of an inbound message is another person.
                unredacted_fields = TEAM_ADDRESS_FIELDS if value.get("object") != "received" else ()
                return {
                    name: item if name in unredacted_fields else self.only_own_data(item)
                    for name, item in value.items()
                }
        return value

    def _is_about_others(self, entry: Any) -> bool:
        text = entry if isinstance(entry, str) else msgspec.json.encode(entry).decode()
        return bool(ADDRESS_OR_PHONE.search(text)) and not self.occurs_in(text)

    def _is_this_address(self, text: str) -> bool:
        return self.occurs_in(text.replace("%40", "@")) or self.occurs_in(re.sub(r"[ ()-]", "", text))

    def _pattern(self) -> "re.Pattern[str]":
        variants = self.spellings | {msgspec.json.encode(variant).decode()[1:-1] for variant in self.spellings}
        alternatives = "|".join(re.escape(variant) for variant in sorted(variants, key=len, reverse=True))
        if "@" in self.address:
            return re.compile(rf"(?<![\w.+%-])(?:{alternatives})(?![\w-]|\.\w)", re.IGNORECASE)
        return re.compile(rf"(?<![0-9])(?:{alternatives})(?![0-9])")


def address_variants(address: str, typed: str) -> AddressVariants:
    """Return the spellings of an address. Carriers also write phone numbers without the plus."""
    spellings = {address, typed} if "@" in address else {address, address.removeprefix("+"), typed}
    return AddressVariants(address, frozenset(spellings))
