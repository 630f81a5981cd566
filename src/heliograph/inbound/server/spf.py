"""Checks the sending server by SPF (RFC 7208), within the RFC's limits on DNS queries caused by a sender."""

import re
from ipaddress import IPv6Address, ip_address, ip_network

import msgspec

from heliograph.inbound.policy.inbound_mail import Verdict
from heliograph.runtime.resolver import DnsTimeout, QueryDns

LOOKUPS_MAX = 10
VOID_LOOKUPS_MAX = 2  # maximum DNS queries with an empty answer (RFC 7208, 4.6.4)
MX_HOSTS_MAX = 10
TERMS_MAX = 100
NAME_MAX = 253


_VERDICT_BY_QUALIFIER: dict[str, Verdict] = {"+": "pass", "-": "fail", "~": "fail", "?": "none"}
_TERM = re.compile(r"([+?~-]?)([A-Za-z][A-Za-z0-9._-]*)(?::([^/]*))?(/[0-9]{1,3})?(//[0-9]{1,3})?")
_IP_MECHANISM = re.compile(r"([+?~-]?)ip[46]:(\S+)", re.IGNORECASE)
_MODIFIER = re.compile(r"([A-Za-z][A-Za-z0-9._-]*)=(\S*)")
_MACRO = re.compile(r"%(?:\{([slodiphcrtv])([0-9]{0,3})(r?)([.+,/_=-]*)\}|([%_-]))", re.IGNORECASE)


class InvalidSpfRecord(Exception):
    """A domain's SPF record is invalid."""


class SmtpOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a mail: the client's IP address, its HELO name, and the envelope sender."""

    peer: str
    helo: str
    sender: str  # envelope sender; empty for a bounce

    @property
    def domain(self) -> str:
        return (self.sender.rpartition("@")[2] or self.helo).lower().rstrip(".")


async def check_spf(origin: SmtpOrigin, query_dns: QueryDns) -> Verdict:
    try:
        return await _SpfCheck(origin, query_dns).check(origin.domain)
    except DnsTimeout:
        return "temperror"
    except (InvalidSpfRecord, ValueError):
        return "permerror"


class _SpfCheck:
    def __init__(self, origin: SmtpOrigin, query_dns: QueryDns) -> None:
        self._origin = origin
        self._query_dns = query_dns
        self._ip = ip_address(origin.peer)
        if isinstance(self._ip, IPv6Address) and self._ip.ipv4_mapped:
            self._ip = self._ip.ipv4_mapped
        self._lookups = self._void_lookups = 0

    async def check(self, domain: str) -> Verdict:
        if not domain or "." not in domain or len(domain) > NAME_MAX:
            return "none"
        records = await self._records(domain)
        if len(records) != 1:
            if records:
                raise InvalidSpfRecord
            return "none"
        terms = records[0].split()[1:]
        if len(terms) > TERMS_MAX:
            raise InvalidSpfRecord
        redirect = ""
        for term in terms:
            if modifier := _MODIFIER.fullmatch(term):
                redirect = modifier[2] if modifier[1].lower() == "redirect" else redirect
            elif qualifier := await self._match_term(term, domain):
                return _VERDICT_BY_QUALIFIER[qualifier]
        if not redirect:
            return "none"
        self._count_lookup()
        return await self._check_referenced(self._expand_macros(redirect, domain))

    async def _check_referenced(self, domain: str) -> Verdict:
        """Check the SPF record of an included domain or of a redirect; the domain must have one."""
        if not await self._records(domain):
            raise InvalidSpfRecord
        return await self.check(domain)

    async def _records(self, domain: str) -> list[str]:
        return [text for text in await self._query_dns(domain, "TXT") if text.lower().split(" ")[0] == "v=spf1"]

    async def _match_term(self, term: str, domain: str) -> str:
        """Return the qualifier (+ - ~ ?) of an SPF term if it matches the sender; empty if it does not."""
        if match := _IP_MECHANISM.fullmatch(term):
            network = ip_network(match[2], strict=False)
            return (match[1] or "+") if network.version == self._ip.version and self._ip in network else ""
        mechanism = _TERM.fullmatch(term)
        if mechanism is None:
            raise InvalidSpfRecord
        qualifier, name, domain_spec, ipv4_prefix, ipv6_prefix = mechanism.groups()
        target = self._expand_macros(domain_spec, domain) if domain_spec else domain
        if await self._mechanism_matches(
            name.lower(), target, bool(domain_spec), (ipv4_prefix or "/32")[1:], (ipv6_prefix or "//128")[2:]
        ):
            return qualifier or "+"
        return ""

    async def _mechanism_matches(
        self, name: str, target: str, has_domain_spec: bool, ipv4_prefix: str, ipv6_prefix: str
    ) -> bool:
        if name == "all":
            return True
        self._count_lookup()
        if name == "include" and has_domain_spec:
            return await self._check_referenced(target) == "pass"
        if name == "a":
            return self._contains_sender_ip(await self._addresses(target), ipv4_prefix, ipv6_prefix)
        if name == "mx":
            hosts = (await self._query(target, "MX"))[: MX_HOSTS_MAX + 1]
            if len(hosts) > MX_HOSTS_MAX:
                raise InvalidSpfRecord
            return any(
                [self._contains_sender_ip(await self._addresses(host), ipv4_prefix, ipv6_prefix) for host in hosts]
            )
        if name == "exists" and has_domain_spec:
            return bool(await self._query(target, "A"))
        if name == "ptr":  # deprecated (RFC 7208, 5.5)
            return False
        raise InvalidSpfRecord

    async def _addresses(self, host: str) -> list[str]:
        return await self._query(host, "A" if self._ip.version == 4 else "AAAA")

    async def _query(self, name: str, record_type: str) -> list[str]:
        records = await self._query_dns(name, record_type)
        self._void_lookups += not records
        if self._void_lookups > VOID_LOOKUPS_MAX:
            raise InvalidSpfRecord
        return records

    def _contains_sender_ip(self, addresses: list[str], ipv4_prefix: str, ipv6_prefix: str) -> bool:
        prefix_length = ipv4_prefix if self._ip.version == 4 else ipv6_prefix
        return any(self._ip in ip_network(f"{address}/{prefix_length}", strict=False) for address in addresses)

    def _count_lookup(self) -> None:
        self._lookups += 1
        if self._lookups > LOOKUPS_MAX:
            raise InvalidSpfRecord

    def _expand_macros(self, text: str, domain: str) -> str:
        sender = self._origin.sender or f"postmaster@{self._origin.helo}"
        local, _, sender_domain = sender.rpartition("@")
        ip = str(self._ip) if self._ip.version == 4 else ".".join(self._ip.exploded.replace(":", ""))
        values = {"s": sender, "l": local, "o": sender_domain, "d": domain, "i": ip, "h": self._origin.helo}
        values |= {"v": "in-addr" if self._ip.version == 4 else "ip6", "p": "unknown"}

        def expand_macro(match: re.Match[str]) -> str:
            if match[5]:
                return {"%": "%", "_": " ", "-": "%20"}[match[5]]
            parts = re.split(f"[{re.escape(match[4] or '.')}]", values.get(match[1].lower(), ""))
            parts = parts[::-1] if match[3] else parts
            return ".".join(parts[-int(match[2] or 0) :])

        return _MACRO.sub(expand_macro, text)[-NAME_MAX:].strip(".").lower()
