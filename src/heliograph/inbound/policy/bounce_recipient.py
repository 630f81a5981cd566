"""Decides which address a report is about: our recipient, or one to which the mail was forwarded or expanded.

A report about another address does not affect ours (contract 6), unless it says that ours is unknown.
"""

import re
from collections.abc import Iterable

from heliograph.domain.mail.address import normal_domain
from heliograph.inbound.policy.bounce_classifier import ADDRESS, read_reason

# Domains under which providers give a tenant's mailboxes a second name; no other provider can use them.
_TENANTS = (".onmicrosoft.com", ".onmicrosoft.us", ".onmicrosoft.de", ".onmschina.cn", ".test-google-a.com")
_SECOND_LEVELS = frozenset(("ac", "co", "com", "edu", "gov", "net", "org"))  # second-level domains: contoso.co.uk
_SAYING = 3  # minimum length of a name for a substring match
_INSIDE = (".local", ".lan", ".internal", ".intern", ".localdomain", ".corp", ".home.arpa", ".localhost")
_TWINS = ({"gmail.com", "googlemail.com"},)

# `(generated from <a@b>)`, `(expanded from: <a@b>)`: the route of the mail, not the subject of the report.
_CAME_BY = re.compile(
    r"\(?(?:ultimately )?(?:generated|expanded|forwarded|redirected|resent|alias(?:ed)?|originally)"
    r" (?:from|for|by|of|to)\b[^()\n]{0,400}\)?",
    re.IGNORECASE,
)
_BEGINNING = re.compile(rf"[#0-9. \[(<\"']{{0,20}}({ADDRESS.pattern})")
_ROUTE = re.compile(r"@[^:\s]{1,255}:")  # RFC 5321's source route before an address, as LMTP servers still write it
_HEX = re.compile(r"\\x\{([0-9A-Fa-f]{2,6})\}|\+([0-9A-F]{2})")


def is_ours(named: str, ours: str) -> bool:
    """Return whether both addresses are the same mailbox. `ours`: normalised address."""
    local, _, domain = _folded(ours)
    other, at, place = _folded(named)
    if other not in (local, local.partition("+")[0]) and _folded(_unescaped(named))[0] != local:
        return False
    return not at or _is_same_place(place, domain)


def is_at_ours(named: str, ours: str) -> bool:
    """Return whether both addresses have the same domain. Complaint forwarders often hide the local part (RFC 6590)."""
    return _is_same_place(_folded(named)[2], _folded(ours)[2])


def _is_same_place(place: str, domain: str) -> bool:
    return (
        place == domain
        or place.endswith((f".{domain}", *_INSIDE))
        or (place.endswith(_TENANTS) and _is_tenant_of(place, domain))
        or domain.endswith(f".{place}")
        or "." not in place
        or any({place, domain} <= twins for twins in _TWINS)
    )


def _is_tenant_of(place: str, domain: str) -> bool:
    """Return whether a tenant is named like the domain; mail to any other tenant was forwarded."""
    tenant, own = place.partition(".")[0].replace("-", ""), _own_label(domain).replace("-", "")
    return tenant == own or (min(len(tenant), len(own)) >= _SAYING and (tenant in own or own in tenant))


def _own_label(domain: str) -> str:
    """Return the registered label: `contoso` for mail.contoso.co.uk."""
    *before, label = domain.split(".")[:-1] or [domain]
    return before[-1] if before and label in _SECOND_LEVELS else label


def _folded(address: str) -> tuple[str, str, str]:
    local, at, domain = without_route(address).rpartition("@")
    if not at:
        local, domain = domain, ""
    domain = domain.rstrip(".")
    return local.strip('"').lower(), at, normal_domain(domain) or domain.lower()


def without_route(address: str) -> str:
    """Return the address without angle brackets and source route: `<@relay.test:jo@acme.test>` → `jo@acme.test`."""
    address = address.strip("<> ")
    route = _ROUTE.match(address)
    return address[route.end() :] if route else address


def _unescaped(address: str) -> str:
    """Decode the escapes of RFC 3461 (xtext) and RFC 6533."""
    return _HEX.sub(lambda found: _letter(int(found[1] or found[2], 16)), address)


def _letter(code: int) -> str:
    return chr(code) if code < 0x110000 else ""


def part_about(notice: str, ours: str, strangers: Iterable[str], written_to: Iterable[str]) -> str | None:
    """Return the part of a notice about our recipient; None if it names only other addresses.

    `strangers`: addresses mentioned for other reasons, such as senders. A postmaster address is ignored too, unless it
    is in `written_to`. A line with an address starts the part about this address, up to the next such line.
    """
    known, meant = {address.lower() for address in strangers}, {address.lower() for address in written_to}
    begin, mine, foreign, about_us = list[str](), list[str](), False, None
    for line in notice.split("\n"):
        named = _addresses(_CAME_BY.sub("", line))
        if any(is_ours(one, ours) for one in named):
            about_us = True
        elif any(one.lower() not in known and (one.lower() in meant or not is_contact(one)) for one in named):
            about_us, foreign = False, True
        if about_us is None:
            begin.append(line)
        elif about_us:
            mine.append(line)
    if not foreign:
        return notice
    return "\n".join(begin + mine) if mine else None


def says_unknown(text: str, ours: str) -> bool:
    """Return whether a line that names only our address says that it is bad."""
    for line in text.split("\n"):
        named = _addresses(_CAME_BY.sub("", line))
        reason = read_reason(line) if named and all(is_ours(one, ours) for one in named) else None
        if reason and reason.address and not reason.weak:
            return True
    return False


def begins_with_another(reply: str, ours: str) -> bool:
    """Return whether a reply for our recipient is about another address: `<b@c.example>: user unknown`."""
    found = _BEGINNING.match(reply)
    return bool(found and not is_ours(found[1], ours))


def _addresses(line: str) -> list[str]:
    return [found[0].rstrip(".") for found in ADDRESS.finditer(line)] if "@" in line else []


def is_contact(address: str) -> bool:
    return address.lower().startswith(("postmaster@", "support@", "helpdesk@", "abuse@", "mailer-daemon@"))
