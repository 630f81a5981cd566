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
from heliograph.domain.text import CONTROLS, single_spaced

ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
_BEYOND_ASCII = "\x80-\U0010ffff"
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"

_LOCAL = re.compile(rf"[{ATEXT}]+(?:\.[{ATEXT}]+)*")
_WIDE_LOCAL = re.compile(rf"[{ATEXT}{_BEYOND_ASCII}]+(?:\.[{ATEXT}{_BEYOND_ASCII}]+)*")
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+(?![0-9]+\Z){_LABEL}")
_PHRASE = re.compile(rf"[{ATEXT}. {_BEYOND_ASCII}]+")
_ATOMS = re.compile(rf"[{ATEXT}{_BEYOND_ASCII}]+(?: [{ATEXT}{_BEYOND_ASCII}]+)*")
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')


class Address(msgspec.Struct, frozen=True):
    given: str
    normal: str  # lower-cased local part @ domain; used for comparison
    domain: str  # lower-case A-labels


def parse_address(text: str) -> Address | None:
    # The length is checked before the cache, so that the cache cannot hold megabytes.
    return _parse(text) if len(text) <= LOCAL_PART_MAX + 1 + DOMAIN_MAX else None


@lru_cache(maxsize=4096)
def _parse(text: str) -> Address | None:
    local, _, name = text.rpartition("@")
    local_normal = _normal_local(local)
    domain = normal_domain(name)
    if local_normal is None or domain is None:
        return None
    return Address(text, f"{local_normal}@{domain}", domain)


def _normal_local(local: str) -> str | None:
    if local.isascii():
        return local.lower() if len(local) <= LOCAL_PART_MAX and _LOCAL.fullmatch(local) else None
    # `isprintable` excludes controls, spaces, format and bidi characters, surrogates and unassigned code points.
    if not (_WIDE_LOCAL.fullmatch(local) and local.isprintable() and unicodedata.is_normalized("NFC", local)):
        return None
    normal = unicodedata.normalize("NFC", local.lower())
    octets = max(len(local.encode()), len(normal.encode()))  # the lower-case form can be longer
    return normal if octets <= LOCAL_PART_MAX else None


def normal_domain(text: str) -> str | None:
    """Return the domain as lower-case A-labels; None if invalid."""
    if len(text) > DOMAIN_MAX:
        return None
    try:
        domain = text.encode().lower().decode()  # lower-case ASCII letters only: IDNA2008 has no case mapping
        if not domain.isascii() or "--" in domain:  # existing A-labels are validated too
            domain = _a_labels(domain)
    except ValueError:  # idna errors, lone surrogates
        return None
    return domain if len(domain) <= DOMAIN_MAX and _DOMAIN.fullmatch(domain) else None


def _a_labels(domain: str) -> str:
    encoded = idna.encode(domain, strict=True)
    if idna.encode(idna.decode(encoded, strict=True), strict=True) != encoded:
        raise ValueError("not the one A-label of its U-label")
    return encoded.decode()


def parse_name_addr(text: str) -> tuple[str | None, Address] | None:
    """Parse `a@b` or `<a@b>` (no name), `Name <a@b>` or `"Name" <a@b>`; None if invalid.

    Surrounding whitespace is ignored; runs of whitespace in the name become one space (contract 4).
    """
    return None if len(text) > NAME_ADDR_MAX else _parse_name_addr(text)


@lru_cache(maxsize=1024)  # a team's mails have few distinct senders
def _parse_name_addr(text: str) -> tuple[str | None, Address] | None:
    text = single_spaced(text)
    if not text.endswith(">"):
        bare = parse_address(text)
        return (None, bare) if bare else None
    phrase, bracket, inner = text[:-1].rpartition("<")
    address = parse_address(inner)
    if not bracket or address is None or CONTROLS.search(phrase):
        return None
    phrase = phrase.strip(" ")
    if not phrase:
        return None, address
    if found := _QUOTED.fullmatch(phrase):
        return single_spaced(re.sub(r"\\(.)", r"\1", found[1])), address
    return (phrase, address) if _PHRASE.fullmatch(phrase) else None


def name_addr(name: str, address: str) -> str:
    """Format a name and address so that `parse_name_addr` can parse them."""
    if not name:
        return address
    if not _ATOMS.fullmatch(name):
        name = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
    return f"{name} <{address}>"
