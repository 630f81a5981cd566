"""SPF check (RFC 7208) of the sending server, with the RFC's limits on DNS lookups that a sender can cause."""

import re
from ipaddress import IPv6Address, ip_address, ip_network

import msgspec

from heliograph.inbound.policy.inbound_mail import Verdict
from heliograph.runtime.resolver import Ask, DnsSilent

LOOKUPS_MAX = 10
VOID_MAX = 2  # maximum DNS answers without records
EXCHANGERS_MAX = 10
TERMS_MAX = 100
NAME_MAX = 253


_RESULTS: dict[str, Verdict] = {"+": "pass", "-": "fail", "~": "fail", "?": "none"}
_TERM = re.compile(r"([+?~-]?)([A-Za-z][A-Za-z0-9._-]*)(?::([^/]*))?(/[0-9]{1,3})?(//[0-9]{1,3})?")
_IP = re.compile(r"([+?~-]?)ip[46]:(\S+)", re.IGNORECASE)
_MODIFIER = re.compile(r"([A-Za-z][A-Za-z0-9._-]*)=(\S*)")
_MACRO = re.compile(r"%(?:\{([slodiphcrtv])([0-9]{0,3})(r?)([.+,/_=-]*)\}|([%_-]))", re.IGNORECASE)


class BadRecord(Exception):
    """The SPF record is invalid."""


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """The sending server and envelope sender as given in SMTP."""

    peer: str
    helo: str
    sender: str  # envelope sender; empty for a bounce

    @property
    def domain(self) -> str:
        return (self.sender.rpartition("@")[2] or self.helo).lower().rstrip(".")


async def check_spf(envelope: Sending, ask: Ask) -> Verdict:
    try:
        return await _Check(envelope, ask).check(envelope.domain)
    except DnsSilent:
        return "temperror"
    except (BadRecord, ValueError):
        return "permerror"


class _Check:
    def __init__(self, envelope: Sending, ask: Ask) -> None:
        self._envelope = envelope
        self._ask = ask
        self._ip = ip_address(envelope.peer)
        if isinstance(self._ip, IPv6Address) and self._ip.ipv4_mapped:
            self._ip = self._ip.ipv4_mapped
        self._lookups = self._void = 0

    async def check(self, domain: str) -> Verdict:
        if not domain or "." not in domain or len(domain) > NAME_MAX:
            return "none"
        found = await self._records(domain)
        if len(found) != 1:
            if found:
                raise BadRecord
            return "none"
        terms = found[0].split()[1:]
        if len(terms) > TERMS_MAX:
            raise BadRecord
        redirect = ""
        for term in terms:
            if modifier := _MODIFIER.fullmatch(term):
                redirect = modifier[2] if modifier[1].lower() == "redirect" else redirect
            elif sign := await self._matches(term, domain):
                return _RESULTS[sign]
        if not redirect:
            return "none"
        self._count()
        return await self._other(self._expanded(redirect, domain))

    async def _other(self, domain: str) -> Verdict:
        """Check the record of an included or redirected domain; raise BadRecord if it has none."""
        if not await self._records(domain):
            raise BadRecord
        return await self.check(domain)

    async def _records(self, domain: str) -> list[str]:
        return [text for text in await self._ask(domain, "TXT") if text.lower().split(" ")[0] == "v=spf1"]

    async def _matches(self, term: str, domain: str) -> str:
        """Return the qualifier (+ - ~ ?) of a term if it matches; else empty."""
        if found := _IP.fullmatch(term):
            network = ip_network(found[2], strict=False)
            return (found[1] or "+") if network.version == self._ip.version and self._ip in network else ""
        mechanism = _TERM.fullmatch(term)
        if mechanism is None:
            raise BadRecord
        sign, name, given, four, six = mechanism.groups()
        target = self._expanded(given, domain) if given else domain
        if await self._holds(name.lower(), target, bool(given), (four or "/32")[1:], (six or "//128")[2:]):
            return sign or "+"
        return ""

    async def _holds(self, name: str, target: str, is_given: bool, four: str, six: str) -> bool:
        if name == "all":
            return True
        self._count()
        if name == "include" and is_given:
            return await self._other(target) == "pass"
        if name == "a":
            return self._among(await self._addresses(target), four, six)
        if name == "mx":
            hosts = (await self._asked(target, "MX"))[: EXCHANGERS_MAX + 1]
            if len(hosts) > EXCHANGERS_MAX:
                raise BadRecord
            return any([self._among(await self._addresses(host), four, six) for host in hosts])
        if name == "exists" and is_given:
            return bool(await self._asked(target, "A"))
        if name == "ptr":  # deprecated (RFC 7208, 5.5)
            return False
        raise BadRecord

    async def _addresses(self, host: str) -> list[str]:
        return await self._asked(host, "A" if self._ip.version == 4 else "AAAA")

    async def _asked(self, name: str, kind: str) -> list[str]:
        found = await self._ask(name, kind)
        self._void += not found
        if self._void > VOID_MAX:
            raise BadRecord
        return found

    def _among(self, addresses: list[str], four: str, six: str) -> bool:
        width = four if self._ip.version == 4 else six
        return any(self._ip in ip_network(f"{address}/{width}", strict=False) for address in addresses)

    def _count(self) -> None:
        self._lookups += 1
        if self._lookups > LOOKUPS_MAX:
            raise BadRecord

    def _expanded(self, text: str, domain: str) -> str:
        sender = self._envelope.sender or f"postmaster@{self._envelope.helo}"
        local, _, theirs = sender.rpartition("@")
        ip = str(self._ip) if self._ip.version == 4 else ".".join(self._ip.exploded.replace(":", ""))
        values = {"s": sender, "l": local, "o": theirs, "d": domain, "i": ip, "h": self._envelope.helo}
        values |= {"v": "in-addr" if self._ip.version == 4 else "ip6", "p": "unknown"}

        def value(found: re.Match[str]) -> str:
            if found[5]:
                return {"%": "%", "_": " ", "-": "%20"}[found[5]]
            parts = re.split(f"[{re.escape(found[4] or '.')}]", values.get(found[1].lower(), ""))
            parts = parts[::-1] if found[3] else parts
            return ".".join(parts[-int(found[2] or 0) :])

        return _MACRO.sub(value, text)[-NAME_MAX:].strip(".").lower()
