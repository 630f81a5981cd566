"""Strict grammar of email addresses (contract 4) and of the name-addr allowed in `from`.

Only dot-atom local parts and IDNA2008 domains are accepted. A valid address therefore has no whitespace, line break,
quoting or invisible character, and is safe in a header or an SMTP command without escaping.
"""

import re
import unicodedata
from functools import lru_cache

import idna
import msgspec

from heliograph.domain.limits import DOMAIN_MAX, LOCAL_PART_MAX, NAME_ADDR_MAX
from heliograph.domain.text import CONTROL_CHARACTER, collapse_spaces

ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
_NON_ASCII = "\x80-\U0010ffff"
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"

_LOCAL_PART = re.compile(rf"[{ATEXT}]+(?:\.[{ATEXT}]+)*")
_UNICODE_LOCAL_PART = re.compile(rf"[{ATEXT}{_NON_ASCII}]+(?:\.[{ATEXT}{_NON_ASCII}]+)*")
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+(?![0-9]+\Z){_LABEL}")
_PHRASE = re.compile(rf"[{ATEXT}. {_NON_ASCII}]+")
_ATOM_PHRASE = re.compile(rf"[{ATEXT}{_NON_ASCII}]+(?: [{ATEXT}{_NON_ASCII}]+)*")
_QUOTED_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')


class Address(msgspec.Struct, frozen=True):
    original: str
    normal: str  # lower-cased local part @ domain; used for comparison
    domain: str  # lower-case A-labels


def parse_address(text: str) -> Address | None:
    # The length is checked before the cache, so that the cache cannot hold megabytes.
    return _parse(text) if len(text) <= LOCAL_PART_MAX + 1 + DOMAIN_MAX else None


@lru_cache(maxsize=4096)
def _parse(text: str) -> Address | None:
    local, _, domain_text = text.rpartition("@")
    local_normal = _normalize_local(local)
    domain = normalize_domain(domain_text)
    if local_normal is None or domain is None:
        return None
    return Address(text, f"{local_normal}@{domain}", domain)


def _normalize_local(local: str) -> str | None:
    if local.isascii():
        return local.lower() if len(local) <= LOCAL_PART_MAX and _LOCAL_PART.fullmatch(local) else None
    # `isprintable` excludes controls, spaces, format and bidi characters, surrogates and unassigned code points.
    if not (_UNICODE_LOCAL_PART.fullmatch(local) and local.isprintable() and unicodedata.is_normalized("NFC", local)):
        return None
    normal = unicodedata.normalize("NFC", local.lower())
    octets = max(len(local.encode()), len(normal.encode()))  # the lower-case form can be longer
    return normal if octets <= LOCAL_PART_MAX else None


def normalize_domain(text: str) -> str | None:
    """Return the domain as lower-case A-labels; None if it is invalid."""
    if len(text) > DOMAIN_MAX:
        return None
    try:
        domain = text.encode().lower().decode()  # lower-case ASCII letters only: IDNA2008 has no case mapping
        if not domain.isascii() or "--" in domain:  # existing A-labels are validated too
            domain = _to_a_labels(domain)
    except ValueError:  # idna errors, lone surrogates
        return None
    return domain if len(domain) <= DOMAIN_MAX and _DOMAIN.fullmatch(domain) else None


def _to_a_labels(domain: str) -> str:
    encoded = idna.encode(domain, strict=True)
    if idna.encode(idna.decode(encoded, strict=True), strict=True) != encoded:
        raise ValueError("not the one A-label of its U-label")
    return encoded.decode()


def parse_name_addr(text: str) -> tuple[str | None, Address] | None:
    """Parse `a@b` or `<a@b>` (no name), `Name <a@b>` or `"Name" <a@b>` to (name, address); None if invalid.

    Surrounding whitespace is ignored; runs of whitespace in the name become one space (contract 4).
    """
    return None if len(text) > NAME_ADDR_MAX else _parse_name_addr(text)


@lru_cache(maxsize=1024)  # `from` has few distinct values
def _parse_name_addr(text: str) -> tuple[str | None, Address] | None:
    text = collapse_spaces(text)
    if not text.endswith(">"):
        bare = parse_address(text)
        return (None, bare) if bare else None
    phrase, bracket, address_text = text[:-1].rpartition("<")
    address = parse_address(address_text)
    if not bracket or address is None or CONTROL_CHARACTER.search(phrase):
        return None
    phrase = phrase.strip(" ")
    if not phrase:
        return None, address
    if quoted_match := _QUOTED_STRING.fullmatch(phrase):
        return collapse_spaces(re.sub(r"\\(.)", r"\1", quoted_match[1])), address
    return (phrase, address) if _PHRASE.fullmatch(phrase) else None


def format_name_addr(name: str, address: str) -> str:
    """Format a name and address so that `parse_name_addr` can parse them."""
    if not name:
        return address
    if not _ATOM_PHRASE.fullmatch(name):
        name = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
    return f"{name} <{address}>"
