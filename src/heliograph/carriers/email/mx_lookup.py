"""What DNS says about a recipient's domain: its mail exchangers, their checked addresses, their pinned certificates."""

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

LIFETIME_S = 15.0  # of one query with all its retries

# A digest of the wrong length makes its record unusable; the library would not read the others of the answer, either.
TLSABase._cert_length_by_mtype = {}


class NullMx(Exception):
    """The domain declares that it accepts no mail (RFC 7505)."""


class Forbidden(Exception):
    """The name has an address that strangers may not make us connect to."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """Who accepts a domain's mail."""

    hosts: tuple[str, ...]  # in the order to try
    listed: bool  # by MX records; otherwise it is the domain's own address
    secure: bool  # the resolver validated the answer


class Resolver:
    def __init__(self, server: str | None, allow: Sequence[Network], random: Random) -> None:
        """Ask `server`, host:port, or the system's when it is None."""
        host, _, port = (server or "").rpartition(":")
        self._servers = NameServers((host, int(port)) if server else None, LIFETIME_S)
        self._ask = self._servers.ask
        self._allow = allow
        self._random = random

    async def exchange(self, domain: str) -> Exchange:
        answer = await self._ask(domain, "MX")
        records = [(record.preference, self._random.random(), _text(record.exchange)) for record in answer]
        if not records:
            return Exchange(hosts=(domain,), listed=False, secure=_is_secure(answer))
        hosts = dict.fromkeys(host for _, _, host in sorted(records) if host)
        if not hosts:
            raise NullMx
        return Exchange(hosts=tuple(hosts), listed=True, secure=_is_secure(answer))

    async def addresses(self, host: str) -> list[str]:
        """Return all of a host's addresses, IPv4 first, so that broken IPv6 does not cost the first attempt.

        One denied address forbids them all: a name that mixes them is up to no good.
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
        """Return the usable TLSA records in a validated answer; None when there are none, or it is not validated."""
        try:
            answer = await self._ask(f"_{port}._tcp.{host}", "TLSA")
        except Unknown:
            return None
        if not _is_secure(answer) or not list(answer):
            return None
        pins = [Pin(usage=r.usage, selector=r.selector, matching=r.mtype, value=r.cert) for r in answer]
        return tuple(pin for pin in pins if pin.usable)

    async def texts(self, name: str) -> list[str]:
        try:
            return [b"".join(record.strings).decode("utf-8", "replace") for record in await self._ask(name, "TXT")]
        except Unknown:
            return []

    async def values(self, name: str, kind: str) -> list[str]:
        """Return values of TXT, A, AAAA or MX; none when there is no such record. Raises DnsSilent."""
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
