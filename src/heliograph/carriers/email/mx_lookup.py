"""DNS lookups for a recipient's domain: mail exchangers, their checked addresses, and TLSA records."""

import asyncio
import ipaddress
from collections.abc import Sequence
from random import Random
from typing import Any

import dns.flags
import dns.name
import msgspec
from dns.rdtypes.tlsabase import TLSABase

from heliograph.carriers.email.tls_policy import Pin
from heliograph.domain.network.ssrf import Network, is_denied
from heliograph.runtime.resolver import NameServers, Unknown

LIFETIME_S = 15.0  # timeout for one query including retries

# Disables dnspython's check of digest lengths, which rejects the whole answer because of one invalid record.
# `Pin.usable` rejects only that record.
TLSABase._cert_length_by_mtype = {}


class NullMx(Exception):
    """Raised if the domain declares that it accepts no mail (RFC 7505)."""


class Forbidden(Exception):
    """Raised if a name resolves to a blocked address, such as a private one (SSRF protection)."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """The mail exchangers of a domain."""

    hosts: tuple[str, ...]  # in order of preference
    listed: bool  # True if from MX records; False if the domain itself is the host
    secure: bool  # the resolver validated the answer with DNSSEC


class Resolver:
    """DNS client of the carrier `mx`."""

    def __init__(self, server: str | None, allow: Sequence[Network], random: Random) -> None:
        """Use the resolver `server` (host:port), or the system's if None; `allow`: permitted private networks."""
        host, _, port = (server or "").rpartition(":")
        self._servers = NameServers((host, int(port)) if server else None, LIFETIME_S)
        self._ask = self._servers.ask
        self._allow = allow
        self._random = random

    async def exchange(self, domain: str) -> Exchange:
        """Return the domain's mail exchangers; hosts of equal preference are shuffled. Raises NullMx."""
        answer = await self._ask(domain, "MX")
        records = [(record.preference, self._random.random(), _text(record.exchange)) for record in answer]
        if not records:
            return Exchange(hosts=(domain,), listed=False, secure=_is_secure(answer))
        hosts = dict.fromkeys(host for _, _, host in sorted(records) if host)
        if not hosts:
            raise NullMx
        return Exchange(hosts=tuple(hosts), listed=True, secure=_is_secure(answer))

    async def addresses(self, host: str) -> list[str]:
        """Return all addresses of a host, IPv4 first, so that broken IPv6 does not fail the first attempt.

        Raises Forbidden if any address is blocked: a name with public and private addresses is suspicious.
        """
        answers = await asyncio.gather(self._ask(host, "A"), self._ask(host, "AAAA"), return_exceptions=True)
        found = [[record.address for record in answer] for answer in answers if not isinstance(answer, BaseException)]
        if any(is_denied(address, self._allow) for family in found for address in family):
            raise Forbidden
        if not any(found):
            raise next((answer for answer in answers if isinstance(answer, BaseException)), Unknown())
        for family in found:
            self._random.shuffle(family)
        return [address for family in found for address in family]

    async def pins(self, host: str, port: int) -> tuple[Pin, ...] | None:
        """Return the usable TLSA records of a DNSSEC-validated answer.

        None if there are no records, or the answer is not validated; empty if none of the records is usable.
        """
        try:
            answer = await self._ask(f"_{port}._tcp.{host}", "TLSA")
        except Unknown:
            return None
        if not _is_secure(answer) or not list(answer):
            return None
        pins = [Pin(usage=r.usage, selector=r.selector, matching=r.mtype, value=r.cert) for r in answer]
        return tuple(pin for pin in pins if pin.usable)

    async def texts(self, name: str) -> list[str]:
        """Return the TXT values; empty if there are none."""
        try:
            return [b"".join(record.strings).decode("utf-8", "replace") for record in await self._ask(name, "TXT")]
        except Unknown:
            return []

    async def values(self, name: str, kind: str) -> list[str]:
        """Return the values of TXT, A, AAAA or MX records; empty if not found. Raises DnsSilent."""
        if kind == "TXT":
            return await self.texts(name)
        try:
            answer = await self._ask(name, kind)
        except Unknown:
            return []
        return [_text(record.exchange) if kind == "MX" else record.address for record in answer]


def networks(ranges: Sequence[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in ranges)


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower() if name != dns.name.root else ""


def _is_secure(answer: Any) -> bool:
    return bool(answer.response.flags & dns.flags.AD)
