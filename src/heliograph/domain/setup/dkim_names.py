"""Names of DKIM keys.

For domains with CNAME records, two selectors per algorithm alternate, and their targets are in our zone.
"""

import hashlib
import re
from collections.abc import Iterable

from heliograph.domain.setup.domain_records import Record
from heliograph.domain.setup.records import DkimKey

CNAME_SELECTORS: dict[str, tuple[str, str]] = {
    "rsa-sha256": ("hg1", "hg2"),
    "ed25519-sha256": ("hge1", "hge2"),
}
_ALL_CNAME_SELECTORS = tuple(sorted(name for names in CNAME_SELECTORS.values() for name in names))
_SELECTOR = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?){0,3}")


def is_cname_key(key: DkimKey) -> bool:
    return key.selector in _ALL_CNAME_SELECTORS


def selector_error(selector: str) -> str:
    """Return what is wrong with the selector of a key that a team imports; empty if it is valid."""
    if selector in _ALL_CNAME_SELECTORS:
        return f"{selector} is reserved for DKIM by CNAME. Publish the key under another selector."
    if not _SELECTOR.fullmatch(selector):
        return "The selector must be a DNS name in lower case, such as s1 or mail.2026."
    return ""


def idle_selectors(keys: Iterable[DkimKey]) -> dict[str, str] | None:
    """Return algorithm → selector that no key uses; None if an algorithm has no unused selector.

    Both selectors of an algorithm are in use while its retired key is still published.
    """
    used = {key.selector for key in keys}
    idle = {
        algorithm: next((name for name in names if name not in used), "")
        for algorithm, names in CNAME_SELECTORS.items()
    }
    return idle if all(idle.values()) else None


def cname_target(selector: str, domain_id: str, zone: str) -> str:
    """Return the name of a domain's key in our zone.

    The name contains the domain's id, because several teams may add the same domain.
    """
    return f"{selector}.d{hashlib.sha256(domain_id.encode()).hexdigest()[:16]}.{zone}"


def cname_records(domain: str, domain_id: str, zone: str) -> list[Record]:
    """Return the CNAME records that the domain's owner publishes once, one for each selector."""
    return [
        Record(
            type="CNAME",
            name=f"{selector}._domainkey.{domain}",
            value=cname_target(selector, domain_id, zone),
            purpose="dkim",
        )
        for selector in _ALL_CNAME_SELECTORS
    ]


def zone_records(keys: Iterable[DkimKey], domain_id: str, zone: str) -> list[Record]:
    """Return the records of a domain's keys in our zone."""
    return [
        Record(type="TXT", name=cname_target(key.selector, domain_id, zone), value=key.public, purpose="dkim")
        for key in keys
        if is_cname_key(key)
    ]
