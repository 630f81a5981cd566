"""Stores receipts and inbound messages in batches.

Each is acknowledged once stored; otherwise it is rejected with a temporary error, and the SMSC sends it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from heliograph.carriers.sms.smpp import status
from heliograph.carriers.sms.smpp.pdu import Pdu
from heliograph.carriers.sms.smpp.session import SmppSession
from heliograph.domain.delivery.outcome import CarrierReport, IncomingText, TextPart

log = structlog.get_logger()

WAITING_MAX = 512  # maximum queued items; further ones are rejected

ToStore = Callable[[Sequence[CarrierReport]], Awaitable[object]]
TextsToStore = Callable[[Sequence[IncomingText | TextPart]], Awaitable[object]]
Incoming = TypeVar("Incoming")


class Intake(Generic[Incoming]):
    """Queue in front of the store; items that arrive during a write are stored together in the next one."""

    def __init__(self, report: Callable[[Sequence[Incoming]], Awaitable[object]]) -> None:
        self._report = report
        self._waiting: list[tuple[Incoming, SmppSession, Pdu]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def take(self, receipt: Incoming, session: SmppSession, pdu: Pdu) -> None:
        """Queue an item parsed from `pdu`; rejects it with a temporary error if the queue is full or closed."""
        if self._closed or len(self._waiting) >= WAITING_MAX:
            session.acknowledge(pdu, status.RX_T_APPN)
            return
        self._waiting.append((receipt, session, pdu))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self, seconds: float) -> None:
        """Accept no more items, and wait at most `seconds` for queued ones to be stored."""
        self._closed = True
        if self._task:
            await asyncio.wait([self._task], timeout=seconds)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await self._report([receipt for receipt, _, _ in batch])
                answer = status.ROK
            except Exception as error:
                log.warning("receipts not stored", receipts=len(batch), error=type(error).__name__)
                answer = status.RX_T_APPN
            for _, session, pdu in batch:
                session.acknowledge(pdu, answer)
