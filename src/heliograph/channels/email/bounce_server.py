"""What comes back: an SMTP listener for our own signed envelope senders and the abuse address, and for nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiosmtpd.smtp import SMTP, Envelope, Session

from heliograph.channels.email.returned import read_returned, to_report
from heliograph.rules import verp
from heliograph.rules.limits import MIB
from heliograph.rules.outcome import Report

log = structlog.get_logger()

SIZE_MAX = 10 * MIB  # what is read of it is bounded further by `read_returned`
ABUSE = ("abuse@", "postmaster@")
UNKNOWN = "550 5.1.1 No such address here"

Place = tuple[str, int]  # message id, position of the recipient
Receive = Callable[[str, int, Report], Awaitable[None]]


class Returns:
    """aiosmtpd asks this at every step of a session."""

    def __init__(self, envelope_key: bytes, now: Callable[[], int], receive: Receive) -> None:
        self._key = envelope_key
        self._now = now
        self._receive = receive

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if not self._place(address) and not address.lower().startswith(ABUSE):
            return UNKNOWN
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        raw: Any = envelope.content
        # In a thread: a hostile message of 1 MiB takes up to half a second to read.
        returned = await asyncio.to_thread(read_returned, raw)
        report = to_report(returned)
        for address in envelope.rcpt_tos:
            # What comes to the abuse address proves itself by the signed sender of the mail that it is about.
            place = self._place(address) or self._place((returned.original_sender or "").strip("<> "))
            log.info("mail came back", kind=returned.kind, status=returned.status, message=place and place[0])
            if place and report:
                await self._receive(*place, report)
        return "250 2.0.0 OK"

    def _place(self, address: str) -> Place | None:
        return verp.read(self._key, address, self._now())


def protocol(returns: Returns, host: str) -> Callable[[], SMTP]:
    """For `loop.create_server`."""
    return lambda: SMTP(returns, hostname=host or None, data_size_limit=SIZE_MAX, enable_SMTPUTF8=True, ident="ESMTP")
