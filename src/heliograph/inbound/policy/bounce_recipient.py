"""Decides whether a bounce is about our recipient, or about an address to which our recipient forwards mail.

A bounce about another address has no effect on our recipient (contract 6), unless it says that our recipient is
unknown.
"""

import re
from collections.abc import Iterable

from heliograph.domain.mail.address import normalize_domain
from heliograph.inbound.policy.bounce_classifier import ADDRESS, find_reason

# providers' domains with a subdomain for each customer, such as contoso.onmicrosoft.com
_TENANT_DOMAINS = (".onmicrosoft.com", ".onmicrosoft.us", ".onmicrosoft.de", ".onmschina.cn", ".test-google-a.com")
# Labels that are part of a public suffix, as in contoso.co.uk
_SECOND_LEVELS = frozenset(("ac", "co", "com", "edu", "gov", "net", "org"))
_TENANT_NAME_MIN = 3  # a tenant name of fewer characters must be equal; a longer one may be part of the other
_PRIVATE_DOMAINS = (".local", ".lan", ".internal", ".intern", ".localdomain", ".corp", ".home.arpa", ".localhost")
_EQUIVALENT_DOMAINS = ({"gmail.com", "googlemail.com"},)

# `(generated from <a@b>)`, `(expanded from: <a@b>)`: the address before forwarding, which did not fail
_FORWARDING_NOTE = re.compile(
    r"\(?(?:ultimately )?(?:generated|expanded|forwarded|redirected|resent|alias(?:ed)?|originally)"
    r" (?:from|for|by|of|to)\b[^()\n]{0,400}\)?",
    re.IGNORECASE,
)
_LEADING_ADDRESS = re.compile(rf"[#0-9. \[(<\"']{{0,20}}({ADDRESS.pattern})")
# source route before an address (RFC 5321), still used by LMTP servers
_SOURCE_ROUTE = re.compile(r"@[^:\s]{1,255}:")
_HEX_ESCAPE = re.compile(r"\\x\{([0-9A-Fa-f]{2,6})\}|\+([0-9A-F]{2})")


def is_same_mailbox(reported: str, our_recipient: str) -> bool:
    """Return whether both addresses are the same mailbox. `our_recipient`: normalised address."""
    local, _, domain = _split_address(our_recipient)
    reported_local, at_sign, reported_domain = _split_address(reported)
    if reported_local not in (local, local.partition("+")[0]) and _split_address(_decode_escapes(reported))[0] != local:
        return False
    return not at_sign or _domains_match(reported_domain, domain)


def is_same_domain(reported: str, our_recipient: str) -> bool:
    """Return whether both addresses have the same domain. Forwarded complaints often hide the local part (RFC 6590)."""
    return _domains_match(_split_address(reported)[2], _split_address(our_recipient)[2])


def _domains_match(reported_domain: str, our_domain: str) -> bool:
    return (
        reported_domain == our_domain
        or reported_domain.endswith((f".{our_domain}", *_PRIVATE_DOMAINS))
        or (reported_domain.endswith(_TENANT_DOMAINS) and _is_tenant_named_like(reported_domain, our_domain))
        or our_domain.endswith(f".{reported_domain}")
        or "." not in reported_domain
        or any({reported_domain, our_domain} <= equivalents for equivalents in _EQUIVALENT_DOMAINS)
    )


def _is_tenant_named_like(tenant_domain: str, domain: str) -> bool:
    """Return whether a customer's domain at a provider (contoso.onmicrosoft.com) is named like our recipient's domain.

    If not, the mail was forwarded to another customer of the provider.
    """
    tenant, label = tenant_domain.partition(".")[0].replace("-", ""), _registered_label(domain).replace("-", "")
    return tenant == label or (
        min(len(tenant), len(label)) >= _TENANT_NAME_MIN and (tenant in label or label in tenant)
    )


def _registered_label(domain: str) -> str:
    """Return the registered label: `contoso` for mail.contoso.co.uk."""
    *parents, label = domain.split(".")[:-1] or [domain]
    return parents[-1] if parents and label in _SECOND_LEVELS else label


def _split_address(address: str) -> tuple[str, str, str]:
    local, at_sign, domain = strip_route(address).rpartition("@")
    if not at_sign:
        local, domain = domain, ""
    domain = domain.rstrip(".")
    return local.strip('"').lower(), at_sign, normalize_domain(domain) or domain.lower()


def strip_route(address: str) -> str:
    """Return the address without angle brackets and source route: `<@relay.test:jo@acme.test>` → `jo@acme.test`."""
    address = address.strip("<> ")
    match = _SOURCE_ROUTE.match(address)
    return address[match.end() :] if match else address


def _decode_escapes(address: str) -> str:
    """Decode the escapes of RFC 3461 (xtext) and RFC 6533."""
    return _HEX_ESCAPE.sub(lambda match: _character(int(match[1] or match[2], 16)), address)


def _character(code: int) -> str:
    return chr(code) if code < 0x110000 else ""


def recipient_part(
    notice: str, our_recipient: str, unrelated_addresses: Iterable[str], original_recipients: Iterable[str]
) -> str | None:
    """Return the lines of a bounce notice that concern our recipient; None if all concern other addresses.

    The part about an address begins at a line with the address, and ends before the next line with an address.
    Addresses in `unrelated_addresses` did not fail, such as senders. Contact addresses such as postmaster are ignored
    unless they are in `original_recipients`.
    """
    unrelated = {address.lower() for address in unrelated_addresses}
    addressed = {address.lower() for address in original_recipients}
    preamble, recipient_lines, names_other, is_about_recipient = list[str](), list[str](), False, None
    for line in notice.split("\n"):
        addresses = _find_addresses(_FORWARDING_NOTE.sub("", line))
        if any(is_same_mailbox(address, our_recipient) for address in addresses):
            is_about_recipient = True
        elif any(
            address.lower() not in unrelated and (address.lower() in addressed or not is_contact_address(address))
            for address in addresses
        ):
            is_about_recipient, names_other = False, True
        if is_about_recipient is None:
            preamble.append(line)
        elif is_about_recipient:
            recipient_lines.append(line)
    if not names_other:
        return notice
    return "\n".join(preamble + recipient_lines) if recipient_lines else None


def says_recipient_is_bad(text: str, our_recipient: str) -> bool:
    """Return whether a line that names only our recipient's address says that this address is invalid."""
    for line in text.split("\n"):
        addresses = _find_addresses(_FORWARDING_NOTE.sub("", line))
        if addresses and all(is_same_mailbox(address, our_recipient) for address in addresses):
            reason = find_reason(line)
            if reason and reason.address_fault and not reason.weak:
                return True
    return False


def names_other_recipient(reply: str, our_recipient: str) -> bool:
    """Return whether an SMTP reply begins with another address than our recipient's: `<b@c.example>: user unknown`."""
    match = _LEADING_ADDRESS.match(reply)
    return bool(match and not is_same_mailbox(match[1], our_recipient))


def _find_addresses(line: str) -> list[str]:
    return [match[0].rstrip(".") for match in ADDRESS.finditer(line)] if "@" in line else []


def is_contact_address(address: str) -> bool:
    return address.lower().startswith(("postmaster@", "support@", "helpdesk@", "abuse@", "mailer-daemon@"))
