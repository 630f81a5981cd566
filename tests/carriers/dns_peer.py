"""A name server on loopback that answers from a dictionary."""

import asyncio
from collections import Counter
from types import TracebackType
from typing import Any, Self

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

# (name, type) → records as text. A missing name gives NXDOMAIN, a name with other types an empty answer.
Zone = dict[tuple[str, str], list[str]]


class DnsPeer(asyncio.DatagramProtocol):
    def __init__(self, zone: Zone, *, validated: bool = False) -> None:
        self.zone = zone
        self.validated = validated  # answers have the AD flag,
        self.unvalidated_names: set[str] = set()  # except for these names
        self.failing_names: set[str] = set()  # names answered with SERVFAIL
        self.query_counts: Counter[tuple[str, str]] = Counter()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        self.address = "127.0.0.1:{}".format(self._transport.get_extra_info("sockname")[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        query = dns.message.from_wire(data)
        response = dns.message.make_response(query)
        self._answer(response, query.question[0].name, query.question[0].rdtype)
        self._transport.sendto(response.to_wire(), addr)

    def _answer(self, response: dns.message.Message, name: dns.name.Name, kind: dns.rdatatype.RdataType) -> None:
        text, kind_text = name.to_text(omit_final_dot=True), dns.rdatatype.to_text(kind)
        self.query_counts[text, kind_text] += 1
        if text in self.failing_names:
            response.set_rcode(dns.rcode.SERVFAIL)
            return
        if self.validated and text not in self.unvalidated_names:
            response.flags |= dns.flags.AD
        if not any(known == text for known, _ in self.zone):
            response.set_rcode(dns.rcode.NXDOMAIN)
        for record_type in (kind_text, "CNAME"):
            if records := self.zone.get((text, record_type)):
                response.answer.append(dns.rrset.from_text(name, 0, "IN", record_type, *records))
                if record_type != kind_text:
                    self._answer(response, dns.name.from_text(records[0]), kind)
                return
