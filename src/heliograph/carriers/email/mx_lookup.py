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

from heliograph.carriers.email.tls_policy import TlsaRecord
from heliograph.domain.network.ssrf import Network, is_denied
from heliograph.runtime.resolver import NameNotFound, Resolver

QUERY_TIMEOUT_S = 15.0  # timeout for one query including retries

# Disables dnspython's check of digest lengths, which rejects the whole answer because of one invalid record.
# `TlsaRecord.is_usable` rejects only that record.
TLSABase._cert_length_by_mtype = {}


class NullMx(Exception):
    """Raised if the domain declares that it accepts no mail (RFC 7505)."""


class BlockedAddress(Exception):
    """Raised if a name resolves to a blocked address, such as a private one (SSRF protection)."""


class MxRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The mail exchangers of a recipient's domain."""

    hosts: tuple[str, ...]  # in order of preference
    has_mx: bool  # True if from MX records; False if the domain itself is the host
    dnssec_validated: bool  # the resolver validated the answer with DNSSEC


class MxResolver:
    """DNS client of the carrier `mx`."""

    def __init__(self, server: str | None, allowed_networks: Sequence[Network], random: Random) -> None:
        """Create a DNS client.

        `server`: the resolver (host:port), or the system's if None. `allowed_networks`: private networks to which mail
        may be sent.
        """
        host, _, port = (server or "").rpartition(":")
        self._resolver = Resolver((host, int(port)) if server else None, QUERY_TIMEOUT_S)
        self._query = self._resolver.query
        self._allowed_networks = allowed_networks
        self._random = random

    async def mx_records(self, domain: str) -> MxRecords:
        """Return the mail exchangers, shuffled within a preference; raises NullMx if the domain accepts no mail."""
        answer = await self._query(domain, "MX")
        records = [(record.preference, self._random.random(), _name_text(record.exchange)) for record in answer]
        if not records:
            return MxRecords(hosts=(domain,), has_mx=False, dnssec_validated=_is_dnssec_validated(answer))
        hosts = dict.fromkeys(host for _, _, host in sorted(records) if host)
        if not hosts:
            raise NullMx
        return MxRecords(hosts=tuple(hosts), has_mx=True, dnssec_validated=_is_dnssec_validated(answer))

    async def addresses(self, host: str) -> list[str]:
        """Return all addresses of a host, IPv4 first, so that broken IPv6 does not fail the first attempt.

        Raises BlockedAddress if any address is blocked: a name with public and private addresses is suspicious.
        """
        answers = await asyncio.gather(self._query(host, "A"), self._query(host, "AAAA"), return_exceptions=True)
        families = [
            [record.address for record in answer] for answer in answers if not isinstance(answer, BaseException)
        ]
        if any(is_denied(address, self._allowed_networks) for family in families for address in family):
            raise BlockedAddress
        if not any(families):
            raise next((answer for answer in answers if isinstance(answer, BaseException)), NameNotFound())
        for family in families:
            self._random.shuffle(family)
        return [address for family in families for address in family]

    async def tlsa_records(self, host: str, port: int) -> tuple[TlsaRecord, ...] | None:
        """Return the usable TLSA records of a DNSSEC-validated answer.

        None if there are no records, or the answer is not validated; empty if none of the records is usable.
        """
        try:
            answer = await self._query(f"_{port}._tcp.{host}", "TLSA")
        except NameNotFound:
            return None
        if not _is_dnssec_validated(answer) or not list(answer):
            return None
        records = [
            TlsaRecord(usage=rdata.usage, selector=rdata.selector, matching=rdata.mtype, value=rdata.cert)
            for rdata in answer
        ]
        return tuple(record for record in records if record.is_usable)

    async def txt_values(self, name: str) -> list[str]:
        """Return the values of a name's TXT records; empty if it has none."""
        try:
            return [b"".join(record.strings).decode("utf-8", "replace") for record in await self._query(name, "TXT")]
        except NameNotFound:
            return []

    async def values(self, name: str, rdtype: str) -> list[str]:
        """Return the values of TXT, A, AAAA or MX records; empty if not found. Raises DnsTimeout."""
        if rdtype == "TXT":
            return await self.txt_values(name)
        try:
            answer = await self._query(name, rdtype)
        except NameNotFound:
            return []
        return [_name_text(record.exchange) if rdtype == "MX" else record.address for record in answer]


def parse_networks(ranges: Sequence[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(cidr) for cidr in ranges)


def _name_text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower() if name != dns.name.root else ""


def _is_dnssec_validated(answer: Any) -> bool:
    return bool(answer.response.flags & dns.flags.AD)
