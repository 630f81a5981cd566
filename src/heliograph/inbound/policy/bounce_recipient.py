"""Which address a report is about: the one we wrote to, or another that it was forwarded or expanded to.

A report about another address says nothing of ours (contract 6), except where it says that ours is unknown.
"""

import re
from collections.abc import Iterable

from heliograph.domain.mail.address import normal_domain
from heliograph.inbound.policy.bounce_classifier import ADDRESS, read_reason

# Where providers keep a tenant's mailboxes under a second name, and names that no other provider can have.
_TENANTS = (".onmicrosoft.com", ".onmicrosoft.us", ".onmicrosoft.de", ".onmschina.cn", ".test-google-a.com")
_SECOND_LEVELS = frozenset(("ac", "co", "com", "edu", "gov", "net", "org"))  # contoso.co.uk
_SAYING = 3  # letters that say something of a name that contains them
_INSIDE = (".local", ".lan", ".internal", ".intern", ".localdomain", ".corp", ".home.arpa", ".localhost")
_TWINS = ({"gmail.com", "googlemail.com"},)

# `(generated from <a@b>)`, `(expanded from: <a@b>)`: where the mail came by, not what is said about it.
_CAME_BY = re.compile(
    r"\(?(?:ultimately )?(?:generated|expanded|forwarded|redirected|resent|alias(?:ed)?|originally)"
    r" (?:from|for|by|of|to)\b[^()\n]{0,400}\)?",
    re.IGNORECASE,
)
_BEGINNING = re.compile(rf"[#0-9. \[(<\"']{{0,20}}({ADDRESS.pattern})")
_ROUTE = re.compile(r"@[^:\s]{1,255}:")  # RFC 5321's source route before an address, as LMTP servers still write it
_HEX = re.compile(r"\\x\{([0-9A-Fa-f]{2,6})\}|\+([0-9A-F]{2})")


def is_ours(named: str, ours: str) -> bool:
    """Tell whether two addresses are one mailbox; `ours` is in its normal form."""
    local, _, domain = _folded(ours)
    other, at, place = _folded(named)
    if other not in (local, local.partition("+")[0]) and _folded(_unescaped(named))[0] != local:
        return False
    return not at or _is_same_place(place, domain)


def is_at_ours(named: str, ours: str) -> bool:
    """Tell whether an address is where ours is; who passes complaints on often hides the local part (RFC 6590)."""
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
    """Tell whether a tenant is named like a domain; any other is whom the mail was forwarded to."""
    tenant, own = place.partition(".")[0].replace("-", ""), _own_label(domain).replace("-", "")
    return tenant == own or (min(len(tenant), len(own)) >= _SAYING and (tenant in own or own in tenant))


def _own_label(domain: str) -> str:
    """Return the label that its owner chose: `contoso` of mail.contoso.co.uk."""
    *before, label = domain.split(".")[:-1] or [domain]
    return before[-1] if before and label in _SECOND_LEVELS else label


def _folded(address: str) -> tuple[str, str, str]:
    local, at, domain = without_route(address).rpartition("@")
    if not at:
        local, domain = domain, ""
    domain = domain.rstrip(".")
    return local.strip('"').lower(), at, normal_domain(domain) or domain.lower()


def without_route(address: str) -> str:
    """Return the address without angle brackets and a source route: `<@relay.test:jo@acme.test>` → `jo@acme.test`."""
    address = address.strip("<> ")
    route = _ROUTE.match(address)
    return address[route.end() :] if route else address


def _unescaped(address: str) -> str:
    """Return it without the escapes of RFC 3461 (xtext) and RFC 6533."""
    return _HEX.sub(lambda found: _letter(int(found[1] or found[2], 16)), address)


def _letter(code: int) -> str:
    return chr(code) if code < 0x110000 else ""


def part_about(notice: str, ours: str, strangers: Iterable[str], written_to: Iterable[str]) -> str | None:
    """Return what a notice says of our recipient; None when it names nobody but others.

    `strangers` are addresses that it names for another reason: its own sender's, our sender's; so is a postmaster's,
    unless the mail was written to it. A line that names an address begins what is said about it, up to the next such
    line.
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
    """Tell whether a line that names our address and no other blames it."""
    for line in text.split("\n"):
        named = _addresses(_CAME_BY.sub("", line))
        reason = read_reason(line) if named and all(is_ours(one, ours) for one in named) else None
        if reason and reason.address and not reason.weak:
            return True
    return False


def begins_with_another(reply: str, ours: str) -> bool:
    """Tell whether a reply to our recipient speaks of another: `<b@c.example>: user unknown`."""
    found = _BEGINNING.match(reply)
    return bool(found and not is_ours(found[1], ours))


def _addresses(line: str) -> list[str]:
    return [found[0].rstrip(".") for found in ADDRESS.finditer(line)] if "@" in line else []


def is_contact(address: str) -> bool:
    return address.lower().startswith(("postmaster@", "support@", "helpdesk@", "abuse@", "mailer-daemon@"))
